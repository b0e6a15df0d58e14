"""BERT's masked language model: config.json, the tensors by name, and the logits of listed inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from byheart.checkpoints.proof.config import ConfigReader, Shape, Undecided
from byheart.checkpoints.proof.decoder import Family, Layer, Linear, Norm, TensorReader
from byheart.checkpoints.proof.listed.reading import Reader
from byheart.checkpoints.proof.listed.rows import Rows, attend, stack
from byheart.checkpoints.proof.storage import Array


def read_shape(r: ConfigReader) -> Shape:
    r.must("position_embedding_type", "absolute")
    r.must("type_vocab_size", 2)
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        r.left.pop(name, None)
    hidden, heads = r.integer("hidden_size"), r.integer("num_attention_heads")
    if hidden % heads:
        raise Undecided(f"config.json: {hidden} channels for {heads} heads")
    if r.left.get("hidden_act") != "gelu":
        raise Undecided(f"config.json: hidden_act = {r.left.get('hidden_act')!r}; the proof supports 'gelu'")
    kind = r.activation("hidden_act", "gelu")
    return Shape(
        "bert", r.integer("vocab_size"), hidden, r.integer("num_hidden_layers"), heads, heads, hidden // heads,
        r.integer("intermediate_size"), r.integer("max_position_embeddings"), r.number("layer_norm_eps"), kind,
        r.flag("tie_word_embeddings", True), None,
    )  # fmt: skip


def no_layer(reader: TensorReader, prefix: str) -> Layer:
    """Refuse to read the layers of an encoder as those of a decoder."""
    raise Undecided(f"{prefix}: layers of an encoder are not those of a decoder")


FAMILY = Family("bert", "BertForMaskedLM", read_shape, no_layer)


@dataclass(frozen=True)
class _Layer:
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    attended: Norm
    first: Linear
    second: Linear
    moved: Norm


class Bert:
    """The network in one type."""

    def __init__(self, reader: Reader, stored: bool) -> None:
        s, self.stored, self.store = reader.shape, stored, reader.store
        self.shape, e = s, "bert.embeddings."
        self.word = reader.tensor(e + "word_embeddings.weight", s.vocabulary, s.hidden)
        self.position = reader.tensor(e + "position_embeddings.weight", s.positions, s.hidden)
        self.kind = reader.tensor(e + "token_type_embeddings.weight", 2, s.hidden)
        self.norm = reader.norm(e + "LayerNorm", s.hidden, centred=True)
        self.layers = [self._layer(reader, f"bert.encoder.layer.{i}.") for i in range(s.layers)]
        if not s.tied:
            raise Undecided("config.json: tie_word_embeddings = false")
        p = "cls.predictions."
        self.dense = reader.linear(p + "transform.dense", s.hidden, s.hidden, True)
        self.last = reader.norm(p + "transform.LayerNorm", s.hidden, centred=True)
        self.head = Linear(p + "decoder", self.word, reader.tensor(p + "bias", s.vocabulary))

    def _layer(self, r: Reader, p: str) -> _Layer:
        s, a = self.shape, p + "attention."
        query, key, value = (r.linear(f"{a}self.{n}", s.hidden, s.hidden, True) for n in ("query", "key", "value"))
        attended, moved = (r.norm(f"{x}output.LayerNorm", s.hidden, centred=True) for x in (a, p))
        output = r.linear(a + "output.dense", s.hidden, s.hidden, True)
        first = r.linear(p + "intermediate.dense", s.units, s.hidden, True)
        second = r.linear(p + "output.dense", s.hidden, s.units, True)
        return _Layer(query, key, value, output, attended, first, second, moved)

    def run(self, inputs: Sequence[tuple[Sequence[int], Sequence[int], Sequence[int]]]) -> Rows:
        """The vectors that the head reads, at chosen places of inputs: (ids, token types, places)."""
        if any(len(ids) > self.shape.positions for ids, _, _ in inputs):
            raise Undecided(f"an input of more than {self.shape.positions} tokens")
        x = stack([self._embedded(ids, kinds) for ids, kinds, _ in inputs]).normed(self.norm)
        ends = np.cumsum([0, *(len(ids) for ids, _, _ in inputs)])
        for number, layer in enumerate(self.layers):
            last = number == len(self.layers) - 1
            wanted = [np.asarray(places if last else range(len(ids))) for ids, _, places in inputs]
            queried = np.concatenate([start + some for start, some in zip(ends[:-1], wanted, strict=True)])
            q, k, v = x[queried].mapped(layer.q), x.mapped(layer.k), x.mapped(layer.v)
            at, found = 0, []
            for start, stop, some in zip(ends[:-1], ends[1:], wanted, strict=True):
                rows = slice(at, at + len(some))
                if len(some):
                    scale = self.shape.scale
                    found.append(attend(q[rows], k[start:stop], v[start:stop], self.shape.heads, scale=scale))
                at += len(some)
            x = x[queried].plus(stack(found).mapped(layer.o)).normed(layer.attended)
            inner = x.mapped(layer.first).activated(self.shape.activation)
            x = x.plus(inner.mapped(layer.second)).normed(layer.moved)
        return x.mapped(self.dense).activated(self.shape.activation).normed(self.last)

    def _embedded(self, ids: Sequence[int], kinds: Sequence[int]) -> Rows:
        """Three vectors, added in any order."""
        parts = [self._exact(x) for x in (self.word[list(ids)], self.kind[list(kinds)], self.position[: len(ids)])]
        orders = [parts[k].plus(parts[(k + 1) % 3], parts[(k + 2) % 3]) for k in range(3)]
        return parts[0].of(np.minimum.reduce([x.lo for x in orders]), np.maximum.reduce([x.hi for x in orders]))

    def _exact(self, values: Array) -> Rows:
        return Rows(values, values, self.store, self.stored)
