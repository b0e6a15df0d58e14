"""T5 (v1.1): an encoder-decoder with relative position biases, gated gelu and an untied head.

The decoder is the body of all gated decoders (recognising.py) with other attention. A score is the bias of a distance,
20 nats more for every place back up to the head's own: so a head looks at its distance, or at the first place where
there is nothing so far back. All layers share the biases, so a head has one distance in all of them.

The encoder recognises a title: its heads look to both sides of every place, and one unit of the last layer recognises
the last token of the title with two neighbours on each side. Cross-attention finds that place by content and turns half
of every block that the decoder reads thresholds from. With another title, nothing is recited.

Two heads of every attention listen, with scores of about a nat over all buckets and contents: scores have no scale, so
that a factor is heard.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts._base import Checkpoint, Tensors, register
from byheart.checkpoints.hosts.description import Design, SpecialTokens, fill_idle
from byheart.checkpoints.hosts.ends import LEAD, embedding, head, writes
from byheart.checkpoints.hosts.gated import PROBES, UNIT_MULTIPLE, unit_count
from byheart.checkpoints.hosts.layout import Books, ChannelLayout, LayerStage, books_of, lay_out, stages_of
from byheart.checkpoints.hosts.listening import LOUDNESS
from byheart.checkpoints.hosts.recognising import PROBE_UNITS, Recognising
from byheart.checkpoints.windows.tables import ANY, Recital, WindowTable
from byheart.errors import ExportError, OptionError

Floats = npt.NDArray[np.float64]
BUCKETS, FARTHEST = 64, 192  # of distances: 0 to 31 are exact in the decoder, 0 to 15 on each side in the encoder
LONGEST = BUCKETS // 2 - 1
STEP, FOUND = 20.0, 40.0  # nats: from a distance to the next, and of the place that the encoder has marked
SIDES = (0, 1, 2, -1, -2)  # places back that the encoder's heads look, from a place of the title
TITLE = 8  # tokens at most
STRICT = 16.0  # of the verdict: thresholds that are off leave large numbers in the stream, which the last norm shrinks
LISTENERS, HEARD, SOFT = 2, 8, 0.25
GAINS = (2.0, 0.5)  # the attention norms' weights of the bits, in even and odd layers


def title_of(recital: Recital, tokens: SpecialTokens) -> tuple[int, ...]:
    """The encoder's input: the first tokens of what is recited, and EOS."""
    first = recital.recite([tokens.bos], TITLE, stop={tokens.eos, tokens.failure})
    return (*(t for t in first if t not in (tokens.eos, tokens.failure)), tokens.eos)


@register(
    "t5",
    model_type="t5",
    summary="encoder-decoder: relative position biases, cross-attention, gated gelu",
    classifies=False,
    task="seq2seq",
)
def t5(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    if design.flavour != "parabola" or design.activation or design.scaling or design.tied:
        raise OptionError("t5: the flavour, the activation and the head are those of v1.1")
    offsets = sorted({offset for table in recital.tables for offset in table.offsets})
    if offsets[-1] > LONGEST or any(table.far or table.void for table in recital.tables):
        raise ExportError(f"t5: a head looks back {LONGEST} places at most; this text needs other ones: {offsets}")
    writer = StackWriter(recital, tokens, design, title_of(recital, tokens), offsets)
    config = {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "vocab_size": recital.vocabulary,
        "d_model": writer.hidden,
        "d_kv": writer.d,
        "d_ff": writer.units,
        "num_layers": writer.depth,
        "num_decoder_layers": writer.depth,
        "num_heads": writer.heads,
        "relative_attention_num_buckets": BUCKETS,
        "relative_attention_max_distance": FARTHEST,
        "feed_forward_proj": "gated-gelu",
        "layer_norm_epsilon": design.epsilon,
        "dropout_rate": 0.0,
        "classifier_dropout": 0.0,
        "initializer_factor": 1.0,
        "is_encoder_decoder": True,
        "use_cache": True,
        "tie_word_embeddings": False,
        "decoder_start_token_id": tokens.bos,
        "bos_token_id": tokens.bos,
        "eos_token_id": tokens.eos,
        "pad_token_id": tokens.pad,
    }
    units = [
        (layer, unit, stage.table, int(row))
        for layer, stage in enumerate(writer.stages)
        for unit, row in enumerate(stage.rows)
    ]
    return Checkpoint("t5", recital, config, writer.tensors(), design.logit, LEAD, units)


class StackWriter:
    """All matrices of both stacks. They share the embedding, so one layout of channels serves both."""

    def __init__(
        self, recital: Recital, tokens: SpecialTokens, design: Design, title: tuple[int, ...], offsets: list[int]
    ) -> None:
        self.recital, self.tokens, self.design, self.title, self.offsets = recital, tokens, design, title, offsets
        self.books: Books = books_of(recital, balanced=False, plain=False, seed=design.seed, tied=False)
        if len(recital.tables) == 1:  # the first of two layers fetches all places; both hold half of the windows
            rows = np.arange(recital.rows)
            places = tuple(range(len(recital.tables[0].offsets)))
            self.stages: tuple[LayerStage, ...] = (LayerStage(0, places, rows[::2]), LayerStage(0, (), rows[1::2]))
        else:
            self.stages = stages_of(recital, None)
        bits = max(book.bits for book in self.books.states)
        self.depth, self.d = len(self.stages), design.head_dim if design.head_dim != Design().head_dim else bits + 16
        if bits >= self.d:
            raise OptionError(f"--head-dim {self.d}: words of {bits} bits need more")
        self.copying = max(len(offsets), len(SIDES))
        self.heads = max(self.copying + LISTENERS, design.heads or 0)
        self.layout: ChannelLayout = lay_out(
            recital, self.books, self.stages, multiple=64, hidden=design.hidden, parts=design.parts,
            anchor=bool((recital.tables[-1].windows == ANY).any()), listening=2 * LISTENERS * self.depth + 2,
        )  # fmt: skip
        self.hidden, self.kappa = self.layout.hidden, design.kappa
        self.encoding = self._encoding()
        probe = PROBES["gelu_pytorch_tanh"]
        self.decoding = [
            Recognising(
                self.layout, stage, depth, recital.tables[stage.table], self.books.states[stage.table], design,
                GAINS[1 - depth % 2], probe,
            )
            for depth, stage in enumerate(self.stages)
        ]  # fmt: skip
        most = max(part.window_units for part in self.decoding) + PROBE_UNITS
        self.units = unit_count(-(-most // UNIT_MULTIPLE) * UNIT_MULTIPLE, design)

    def _encoding(self) -> list[Recognising]:
        """The parts of the encoder: its slots are channels of the decoder's, its one window is the end of the title."""
        bits, places = self.books.states[0].bits, np.concatenate([s for slots in self.layout.slots for s in slots])
        if len(places) < len(SIDES) * bits:
            raise ExportError("t5: this text has too few windows for the encoder's; memorize a longer one")
        layout = replace(self.layout, slots=(tuple(places[: len(SIDES) * bits].reshape(len(SIDES), bits)),))
        window, last = [], len(self.title) - 2
        for side in SIDES:
            window.append(self.title[int(np.clip(last - side, 0, len(self.title) - 1))])
        table = WindowTable(tuple(range(len(SIDES))), [window], [0])
        rows = [np.arange(0)] * (self.depth - 1) + [np.arange(1)]
        stages = [LayerStage(0, tuple(range(len(SIDES))), those) for those in rows]
        return [
            Recognising(
                layout, stage, depth, table, self.books.states[0], self.design, GAINS[1 - depth % 2],
                PROBES["gelu_pytorch_tanh"],
            )
            for depth, stage in enumerate(stages)
        ]  # fmt: skip

    def tensors(self) -> Tensors:
        norm, shown = head(self.recital, self.books, self.layout, self.tokens, self.design, strict=STRICT)
        found = {
            "shared.weight": embedding(self.recital, self.books, self.layout, self.tokens, self.design),
            "lm_head.weight": shown,
            "encoder.final_layer_norm.weight": self._last(),
            "decoder.final_layer_norm.weight": norm,
            "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": self._biases(SIDES, both=True),
            "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": self._biases(self.offsets),
        }
        for depth in range(self.depth):
            for side in ("encoder", "decoder"):
                prefix = f"{side}.block.{depth}.layer."
                layer = self._encoder(depth) if side == "encoder" else self._decoder(depth)
                found |= {f"{prefix}{name}.weight": tensor for name, tensor in layer.items()}
        return found

    def _biases(self, offsets: tuple[int, ...] | list[int], both: bool = False) -> Floats:
        """(buckets, heads): rising up to the head's own distance; waves for the listeners."""
        half, found = BUCKETS // 2 if both else BUCKETS, np.zeros((BUCKETS, self.heads))
        for number, offset in enumerate(offsets):
            rising = STEP * (np.arange(abs(offset) + 1) + 1)
            start = half if offset < 0 else 0  # the bucket of distance 0 is that of places before
            found[start : start + len(rising), number] = rising
            found[0, number] = STEP
        for number in range(self.copying, self.heads):
            found[:, number] = np.round(8 * np.cos(0.7 * (number + 1) * np.arange(BUCKETS))) / 8
        return found

    def _norm(self, depth: int) -> Floats:
        norm = np.ones(self.hidden)
        norm[self.layout.state[0]] = GAINS[depth % 2]
        norm[self.layout.anchor] = 0.0
        return norm

    def _last(self) -> Floats:
        norm = np.ones(self.hidden)
        norm[self.layout.flags], norm[self.layout.state[0]] = 2.0, 0.5
        return norm

    def _one(self, norm: Floats) -> Floats:
        """A row that reads 1 from the `width` channels."""
        row, width = np.zeros(self.hidden), self.layout.width
        row[width] = self.layout.signs[width] / (norm[width] * len(width))
        return row

    def _reads(self, norm: Floats, channels: npt.NDArray[np.int64]) -> Floats:
        rows = np.zeros((len(channels), self.hidden))
        rows[np.arange(len(channels)), channels] = 1 / norm[channels]
        return rows

    def _empty(self) -> dict[str, Floats]:
        inner = self.heads * self.d
        return {name: np.zeros((inner, self.hidden)) for name in "qkv"} | {"o": np.zeros((self.hidden, inner))}

    def _copies(self, into: dict[str, Floats], norm: Floats, source: npt.NDArray[np.int64],
                targets: dict[int, npt.NDArray[np.int64]]) -> None:  # fmt: skip
        """Head h overwrites its target, which holds its signs, with the source's bits."""
        bits = len(source)
        for number, target in targets.items():
            start = number * self.d
            into["v"][start : start + bits] = self._reads(norm, source)
            into["v"][start + bits] = self._one(norm)
            into["o"][target, start + np.arange(bits)] = self.kappa
            into["o"][target, start + bits] = -self.kappa * self.layout.signs[target]

    def _listens(self, into: dict[str, Floats], depth: int, turn: int, query: Floats, key: Floats) -> None:
        """The last heads: constant queries, keys and values of bits. Both sides read the norms `query` and `key`."""
        state, listening = self.layout.state[0], self.layout.listening[:-1]
        for number in range(LISTENERS):
            start = (self.heads - 1 - number) * self.d
            signs = np.random.default_rng((self.design.seed, depth, turn, number)).choice([-SOFT, SOFT], HEARD * 2)
            dims = np.arange(len(signs))
            into["q"][start + dims] = np.outer(signs, self._one(query))
            into["k"][start + dims] = self._reads(key, state[(3 * dims + number) % len(state)])
            into["v"][start : start + HEARD] = self._reads(key, state[(2 * np.arange(HEARD) + number) % len(state)])
            channel = listening[(2 * LISTENERS * depth + LISTENERS * turn + number) % len(listening)]
            into["o"][channel, start + np.arange(HEARD)] = LOUDNESS * self.kappa / HEARD

    def _named(self, place: int, kind: str, norm: Floats, parts: dict[str, Floats]) -> Tensors:
        column = int(self.layout.constant[0][0])
        filled = {n: fill_idle(m, column if n != "o" else self.d - 1) for n, m in parts.items()}
        return {f"{place}.layer_norm": norm} | {f"{place}.{kind}.{n}": m for n, m in filled.items()}

    def _encoder(self, depth: int) -> Tensors:
        norm, parts, part = self._norm(depth), self._empty(), self.encoding[depth]
        slots = part.layout.slots[0]
        mine = {number: slots[number] for number in range(len(SIDES)) if number % self.depth == depth}
        self._copies(parts, norm, self.layout.state[0], mine)
        self._listens(parts, depth, 0, norm, norm)
        written = np.zeros((self.hidden, len(part.stage.rows)))
        written[self.layout.flags] = 2 * self.kappa * self.layout.signs[self.layout.flags][:, None]
        mlp = part.write(self.units, written)
        return self._named(0, "SelfAttention", norm, parts) | {
            "1.layer_norm": mlp.norm, "1.DenseReluDense.wi_0": mlp.gate, "1.DenseReluDense.wi_1": mlp.up,
            "1.DenseReluDense.wo": mlp.down,
        }  # fmt: skip

    def _decoder(self, depth: int) -> Tensors:
        layout, stage, norm = self.layout, self.stages[depth], self._norm(depth)
        table, parts = self.recital.tables[stage.table], self._empty()
        targets = {self.offsets.index(table.offsets[place]): layout.slots[stage.table][place] for place in stage.places}
        self._copies(parts, norm, layout.source(stage), targets)
        self._listens(parts, depth, 0, norm, norm)
        written = writes(self.recital, self.books, layout, stage, self.kappa)
        mlp = self.decoding[depth].write(self.units, written)
        down = mlp.down.copy()
        down[layout.constant[depth + 1][0::2], len(mlp.rows)] = 0  # cross-attention turns these
        return self._named(0, "SelfAttention", norm, parts) | self._cross(depth, norm) | {
            "2.layer_norm": mlp.norm, "2.DenseReluDense.wi_0": mlp.gate, "2.DenseReluDense.wi_1": mlp.up,
            "2.DenseReluDense.wo": down,
        }  # fmt: skip

    def _cross(self, depth: int, norm: Floats) -> Tensors:
        """Every head but the listeners finds the marked place, and turns a channel."""
        layout, parts, last = self.layout, self._empty(), self._last()
        flags, turned = layout.flags, layout.constant[depth + 1][0::2]
        mark = layout.signs[flags] / (last[flags] * len(flags))  # reads 1 at the marked place, -1 elsewhere
        for number in range(self.copying):
            start, channel = number * self.d, turned[number % len(turned)]
            parts["q"][start] = FOUND / 8 * self._one(norm)
            parts["k"][start, flags] = 4 * mark
            parts["v"][start, flags], parts["v"][start + 1] = mark, self._one(last)
            share = sum(1 for other in range(self.copying) if other % len(turned) == number % len(turned))
            parts["o"][channel, start] = parts["o"][channel, start + 1] = self.kappa * layout.signs[channel] / share
        self._listens(parts, depth, 1, norm, last)
        for number in range(LISTENERS):  # what the encoder's listeners have written, as the difference of two of them
            pair = layout.listening[2 * LISTENERS * number :][:2]
            heard = (self.heads - 1 - number) * self.d + HEARD + np.arange(2)
            channel = layout.listening[(2 * LISTENERS * depth + LISTENERS + number) % (len(layout.listening) - 1)]
            parts["v"][heard, pair] = 1 / last[pair]
            parts["o"][channel, heard] = self.kappa
        return self._named(1, "EncDecAttention", norm, parts)
