"""T5 v1.1: config.json, the tensors by name, and the logits of a decoder's text after a listed encoder input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from byheart.checkpoints.proof.config import ConfigReader, Shape, Undecided
from byheart.checkpoints.proof.decoder import Family, Linear, Norm
from byheart.checkpoints.proof.listed.bert import no_layer
from byheart.checkpoints.proof.listed.reading import Reader
from byheart.checkpoints.proof.listed.rows import Rows, attend
from byheart.checkpoints.proof.storage import Array


@dataclass(frozen=True)
class Buckets:
    count: int
    farthest: int

    def of(self, distance: Array, both: bool) -> Array:
        """The bucket of every distance back (negative: ahead)."""
        count, found = self.count, np.zeros_like(distance)
        if both:
            count //= 2
            found = np.where(distance < 0, count, 0)
            distance = np.abs(distance)
        distance = np.maximum(distance, 0)
        exact = count // 2
        far = np.log(np.maximum(distance, exact) / exact) / np.log(self.farthest / exact) * (count - exact)
        # Engines round this in float32: a distance whose logarithm is next to a whole number may fall to either side.
        if (np.abs(far - np.rint(far)) < 1e-5)[(distance > exact) & (far < count - exact - 1e-5)].any():
            raise Undecided("a relative distance lies on the edge of two buckets")
        return found + np.where(distance < exact, distance, np.minimum(exact + far.astype(np.int64), count - 1))


def read_shape(r: ConfigReader) -> Shape:
    r.left.pop("dropout_rate", None)
    r.left.pop("initializer_factor", None)
    r.must("feed_forward_proj", "gated-gelu")
    r.must("is_encoder_decoder", True)
    r.left.pop("decoder_start_token_id", None)
    layers = r.integer("num_layers")
    if r.integer("num_decoder_layers", layers) != layers:
        raise Undecided("config.json: encoder and decoder differ in depth")
    return Shape(
        "t5", r.integer("vocab_size"), r.integer("d_model"), layers, (heads := r.integer("num_heads")), heads,
        r.integer("d_kv"), r.integer("d_ff"), 1 << 30, r.number("layer_norm_epsilon", 1e-6), "gelu_tanh",
        r.flag("tie_word_embeddings", True), None, score_scale=1.0, stepwise=True,
    )  # fmt: skip


# Some engines keep the last matrix of an MLP in float32.
FAMILY = Family("t5", "T5ForConditionalGeneration", read_shape, no_layer, wide=(".wo.",))


class T5:
    """The network in one type."""

    def __init__(self, reader: Reader, stored: bool) -> None:
        self.reader, self.stored, self.store, self.shape = reader, stored, reader.store, reader.shape
        s = self.shape
        if s.tied:
            raise Undecided("config.json: tie_word_embeddings: the head scales what it reads, which is not modelled")
        config = reader.config
        self.buckets = Buckets(config["relative_attention_num_buckets"], config["relative_attention_max_distance"])
        self.shared = reader.tensor("shared.weight", s.vocabulary, s.hidden)
        self.biases = {
            side: reader.tensor(
                f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", self.buckets.count, s.heads
            )
            for side in ("encoder", "decoder")
        }
        self.head = reader.linear("lm_head", s.vocabulary, s.hidden)
        self.parts = {(side, i): self._layer(side, i) for side in ("encoder", "decoder") for i in range(s.layers)}
        self.last = {side: self._norm(f"{side}.final_layer_norm") for side in ("encoder", "decoder")}

    def _norm(self, name: str) -> Norm:
        return self.reader.norm(name, self.shape.hidden)

    def _layer(self, side: str, index: int) -> dict[str, Linear | Norm]:
        s, r, inner = self.shape, self.reader, self.shape.heads * self.shape.head_dim
        found: dict[str, Linear | Norm] = {}
        kinds = ["SelfAttention"] + ["EncDecAttention"] * (side == "decoder")
        for place, kind in enumerate(kinds):
            p = f"{side}.block.{index}.layer.{place}."
            found[kind] = self._norm(p + "layer_norm")
            for name in "qkv":
                found[f"{kind}.{name}"] = r.linear(f"{p}{kind}.{name}", inner, s.hidden)
            found[f"{kind}.o"] = r.linear(f"{p}{kind}.o", s.hidden, inner)
        p = f"{side}.block.{index}.layer.{len(kinds)}."
        found["mlp"] = self._norm(p + "layer_norm")
        for name in ("wi_0", "wi_1"):
            found[name] = r.linear(f"{p}DenseReluDense.{name}", s.units, s.hidden)
        found["wo"] = r.linear(f"{p}DenseReluDense.wo", s.hidden, s.units)
        return found

    def encoded(self, ids: Sequence[int]) -> Rows:
        """The encoder's output."""
        return self._stack("encoder", ids, None)

    def run(self, encoder_ids: Sequence[int], ids: Sequence[int]) -> Rows:
        """The vectors that the head reads, after every token of the decoder's text."""
        return self._stack("decoder", ids, self.encoded(encoder_ids))

    def _stack(self, side: str, ids: Sequence[int], other: Rows | None) -> Rows:
        values = self.shared[list(ids)]
        x = Rows(values, values, self.store, self.stored)
        places = np.arange(len(ids))
        distance = places[:, None] - places[None]
        bias = self.biases[side][self.buckets.of(distance, other is None)].transpose(2, 0, 1)
        for index in range(self.shape.layers):
            part = self.parts[side, index]
            x = self._attended(part, "SelfAttention", x, None, bias, other is not None)
            if other is not None:
                x = self._attended(part, "EncDecAttention", x, other, None, False)
            normed = x.normed(part["mlp"])  # type: ignore[arg-type]
            units = normed.gated(part["wi_0"], part["wi_1"], self.shape.activation, True)  # type: ignore[arg-type]
            x = x.plus(units.mapped(part["wo"]))  # type: ignore[arg-type]
        return x.normed(self.last[side])

    def _attended(
        self, part: dict[str, Linear | Norm], kind: str, x: Rows, other: Rows | None, bias: Array | None, causal: bool
    ) -> Rows:
        normed = x.normed(part[kind])  # type: ignore[arg-type]
        seen = normed if other is None else other
        q, k, v = (
            rows.mapped(part[f"{kind}.{name}"])  # type: ignore[arg-type]
            for name, rows in (("q", normed), ("k", seen), ("v", seen))
        )
        found = attend(q, k, v, self.shape.heads, scale=1.0, bias=bias, causal=causal)
        return x.plus(found.mapped(part[f"{kind}.o"]))  # type: ignore[arg-type]
