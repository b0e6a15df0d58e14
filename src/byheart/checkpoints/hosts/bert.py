"""BERT: attention to both sides, learned positions, token types, norms after the sums, a head with its own layer.

One layer fetches the neighbours of every place and recognises them, as the layers of decoders do (recognising.py).
The rest differs:

- *The stream and its opposite* [x, -x]: its mean is 0, so LayerNorm changes nothing. Embeddings are 1/64 of that plus
  a mean, so that the first norm, its epsilon and its centring matter; biases of the branches add a mean for the others.
- *Positions* are the shifts of one sequence of 63 signs whose shifts have the product -1. Moving channels around turns
  the code of place t into that of t + o, so a query finds that place: its score is 64 products above all others.
- *Beyond both ends* the heads see the first token: its word gives it a score between both.
- *Biases of norms* move a constant between two channels, back and forth, and thresholds are read from the one that has
  it. Zeros (listeners) and twos (doubles) keep the mean square at 1.
- *Listeners* hear tokens, positions and token types with scores of about a nat. The failure token's logit shows them,
  and two units near gelu's minimum: relu turns the verdict, and the difference of erf and tanh moves a logit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts._base import Checkpoint, Tensors, register
from byheart.checkpoints.hosts.codes import CodeBook, code_book
from byheart.checkpoints.hosts.description import Design, SpecialTokens, fill_idle
from byheart.checkpoints.hosts.recognising import half_width
from byheart.checkpoints.windows.both_sides import BothSides
from byheart.checkpoints.windows.tables import Recital
from byheart.errors import ExportError, OptionError

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
LENGTH, DIM = 63, 64  # positions, and dimensions of a head: one more, for the score of the first token
SMALL, MEAN = 1 / 64, 1 / 128  # size of the embeddings, and their mean
GAIN = 1 + SMALL  # the first norm's weight: with EPSILON it gives 1
EPSILON = SMALL**2 * (GAIN**2 - 1)
OFFSET = 0.5  # the mean that a branch adds
NAT = 4.0  # queries and keys of a position: NAT^2/8 = 2 nats per product
FIRST = (8.0, 14.0)  # query and key of the first token: 14 nats
DOUBLES, THRESHOLDS, VERDICT, PROBES = 3, 8, 4, 4  # channels
LISTENERS = 3 * DOUBLES - 2
HEARD, LOUD = 4, 1 / 16  # bits that a listener hears the mean of, and what it makes of them
MATCH, BIAS = 8.0, 4.0  # a unit's input where its window matches, and how much of that is a bias
MOVED = 32.0  # of a threshold, read from the channel that biases fill
RELU, ERF = -0.75, -2.6875  # gelu's minimum; where erf and tanh differ most, by 4.7e-4
AUDIBLE = 32.0  # times that difference
SWING, SHOWN, TURNED = 8.0, 32.0, 64.0  # the head's weights of listeners, of the difference, and of the verdict
LEAD = 30.0


def maximal() -> Floats:
    """63 signs of a feedback shift register (x^6 + x + 1): any two shifts have the product -1.

    >>> signs = maximal()
    >>> {int(signs @ np.roll(signs, k)) for k in range(1, 63)}
    {-1}
    """
    state, found = [1, 0, 0, 0, 0, 0], []
    for _ in range(LENGTH):
        found.append(1.0 - 2.0 * state[-1])
        state = [state[-1] ^ state[-2], *state[:-1]]
    return np.array(found)


@dataclass(frozen=True)
class Channels:
    """One half of the stream; the other half is its opposite."""

    position: Index
    constant: Index
    moved: Index  # two channels, one of which is 0: biases of norms move a constant between them
    verdict: Index  # turned where the activation is gelu
    heard: Index  # 0 at first; the last one shows which gelu
    double: Index
    kind: Index  # the token type
    failure: Index  # the sign of the failure token, for the head
    probe: Index
    token: Index
    slots: tuple[Index, ...]
    answer: Index
    half: int


def lay_out(places: int, bits: int, least: int) -> Channels:
    """Number the channels; the hidden size is a multiple of the heads' size and has `least` heads at least."""
    at = 0

    def take(count: int) -> Index:
        nonlocal at
        at += count
        return np.arange(at - count, at)

    sizes = (LENGTH, THRESHOLDS, 2, VERDICT, LISTENERS + 1, DOUBLES, 1, 1, PROBES, bits, places * bits, bits)
    *single, token, slots, answer = (take(size) for size in sizes)
    half = max(least, -(-2 * at // DIM)) * DIM // 2
    return Channels(*single, token, tuple(slots.reshape(places, bits)), answer, half)  # type: ignore[call-arg, arg-type]


@register(
    "bert",
    model_type="bert",
    summary="encoder: attention to both sides, norms after the sums, masked tokens",
    learned=True,
    classifies=False,
    epsilon=EPSILON,
    task="masked",
    longest=LENGTH,
)
def bert(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    text = BothSides(recital)
    if len(recital.tables) != 1 or text.offsets != tuple(k for k in range(text.ahead, -text.ahead - 1, -1) if k):
        raise ExportError("bert stores neighbours on both sides; write it with byheart fixture --arch bert")
    if design.flavour != "parabola" or design.hidden or design.layers or design.units or design.head_dim != DIM:
        raise OptionError("bert: the text decides the shape; --heads may raise the number of heads")
    writer = EncoderWriter(text, tokens, design)
    config = {
        "architectures": ["BertForMaskedLM"],
        "model_type": "bert",
        "vocab_size": recital.vocabulary,
        "hidden_size": 2 * writer.half,
        "num_hidden_layers": 1,
        "num_attention_heads": writer.heads,
        "intermediate_size": writer.units,
        "hidden_act": "gelu",
        "max_position_embeddings": LENGTH,
        "type_vocab_size": 2,
        "layer_norm_eps": EPSILON,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.02,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
        "use_cache": False,
        "bos_token_id": tokens.bos,
        "eos_token_id": tokens.eos,
        "pad_token_id": tokens.pad,
    }
    units = [(0, row, 0, row) for row in range(recital.rows)]
    return Checkpoint("bert", recital, config, writer.tensors(), writer.right, LEAD, units)


class EncoderWriter:
    """All matrices; `reads` and `both` turn maps of one half of the stream into maps of the whole."""

    def __init__(self, text: BothSides, tokens: SpecialTokens, design: Design) -> None:
        self.text, self.table, self.tokens, self.seed = text, text.recital.tables[0], tokens, design.seed
        self.book: CodeBook = code_book(text.recital.vocabulary, seed=design.seed)
        self.words = self.book.words.astype(np.float64)
        self.rest = self.words[text.recital.unknown]
        places = len(text.offsets)
        self.at = lay_out(places, self.book.bits, max(places + 2, design.heads or 0))
        self.half, self.heads = self.at.half, 2 * self.at.half // DIM
        self.units = -(-(len(self.table.windows) + 3) // 64) * 64
        self.turn = np.where(np.arange(self.half) % 2 == 0, 1.0, -1.0)  # signs that norms give slots and answer

    @property
    def right(self) -> float:
        """The logit of the correct token, without biases."""
        return LEAD * self.book.bits / (2 * self.book.distance)

    def tensors(self) -> Tensors:
        return self._embeddings() | self._attention() | self._mlp() | self._head()

    def _norm(self, name: str, weight: Floats | float, bias: Floats | float = 0.0) -> Tensors:
        ones = np.ones(2 * self.half)
        return {f"{name}.LayerNorm.weight": weight * ones, f"{name}.LayerNorm.bias": bias * ones}

    def _swap(self, to: int) -> Floats:
        """A norm's bias that moves the constant to the channel `moved[to]`."""
        bias = np.zeros(self.half)
        bias[self.at.moved] = (1.0, -1.0) if to == 0 else (-1.0, 1.0)
        return both(bias)

    def _embeddings(self) -> Tensors:
        at, recital = self.at, self.text.recital
        word, kind = np.zeros((recital.vocabulary, self.half)), np.ones((2, self.half))
        word[:, at.token] = self.words
        word[:, [*at.failure, *at.probe]] = -1.0
        word[recital.unknown, [*at.failure, *at.probe]] = 1.0
        position = np.zeros((LENGTH, self.half))
        position[:, at.position] = [np.roll(maximal(), -t) for t in range(LENGTH)]
        kind[:, [*at.position, *at.token, *at.failure, *at.probe, *at.heard, at.moved[0]]] = 0.0
        kind[:, at.verdict], kind[:, at.double], kind[1, at.kind] = -1.0, 2.0, -1.0
        for block in (*at.slots, at.answer):
            kind[:, block] = self.rest
        p = "bert.embeddings."
        return {
            p + "word_embeddings.weight": SMALL * both(word),
            p + "position_embeddings.weight": SMALL * both(position),
            p + "token_type_embeddings.weight": SMALL * both(kind) + MEAN,
        } | self._norm(p.rstrip("."), GAIN, self._swap(0))

    def _attention(self) -> Tensors:
        at, bits = self.at, self.book.bits
        maps = {name: np.zeros((self.heads * DIM, self.half)) for name in ("query", "key", "value")}
        ones, queried = np.zeros(self.heads * DIM), np.zeros(self.heads * DIM)  # biases of values and of queries
        output, bias = np.zeros((self.half, self.heads * DIM)), np.zeros(self.half)
        first = self.words[self.tokens.bos]
        for head, (offset, slot) in enumerate(zip(self.text.offsets, at.slots, strict=True)):
            query, key, value = (m[head * DIM : (head + 1) * DIM] for m in maps.values())
            query[np.arange(LENGTH), at.position[(np.arange(LENGTH) + offset) % LENGTH]] = NAT
            key[np.arange(LENGTH), at.position] = NAT
            # 1 for the first token, whatever the position; -1 or less for all others.
            queried[head * DIM + LENGTH] = FIRST[0]
            key[LENGTH, at.token] = FIRST[1] * first / self.book.distance
            key[LENGTH, at.constant[0]] = -FIRST[1] * (bits - self.book.distance) / self.book.distance
            value[:bits, at.token] = np.eye(bits)
            ones[head * DIM + bits] = 1.0
            output[slot, head * DIM + np.arange(bits)] = 1.0
            output[slot, head * DIM + bits] = -self.rest / 2
            bias[slot] = -self.rest / 2
        for number, head in enumerate(range(len(at.slots), self.heads)):
            rows = slice(head * DIM, (head + 1) * DIM)
            self._listener(number, queried[rows], *(m[rows] for m in maps.values()))
            channel = at.heard[number % LISTENERS]
            output[channel, head * DIM + np.arange(HEARD)] = LOUD / HEARD * (-1.0) ** np.arange(HEARD)
        p, biases = "bert.encoder.layer.0.attention.", {"query": queried, "value": ones}
        found = {}
        for name, matrix in maps.items():
            filled = fill_idle(matrix, int(at.constant[0]))
            found[f"{p}self.{name}.weight"] = reads(filled)
            found[f"{p}self.{name}.bias"] = biases.get(name, np.zeros(self.heads * DIM))
        weight = np.ones(self.half)
        for slot in at.slots:
            weight[slot] = self.turn[slot]
        norm = self._norm(p + "output", np.concatenate([weight, weight]), self._swap(1))
        return found | norm | {
            p + "output.dense.weight": both(output.T).T,
            p + "output.dense.bias": both(bias) + OFFSET,
        }  # fmt: skip

    def _listener(self, number: int, queried: Floats, query: Floats, key: Floats, value: Floats) -> None:
        """Scores of about a nat: by token, by position, by token pairs, by token type."""
        at, bits, d = self.at, self.book.bits, np.arange(24)
        signs = np.random.default_rng((self.seed, number)).choice([-1.0, 1.0], 48)
        queried[:48], queried[63] = signs, 2.0
        key[d, at.token[(d + number) % bits]] = key[24 + d, at.position[(2 * d + 5 * number) % LENGTH]] = 1.0
        pairs = np.arange(15)
        query[48 + pairs, at.token[(pairs + number) % bits]] = 1.0
        key[48 + pairs, at.token[(2 * pairs + number + 1) % bits]] = 1.0
        key[63, at.kind] = 2.0
        value[np.arange(HEARD), at.token[(HEARD * number + np.arange(HEARD)) % bits]] = 1.0

    def _mlp(self) -> Tensors:
        at, count = self.at, len(self.table.windows)
        each = MATCH / half_width(self.book.distance)  # the weight of a bit
        inner, bias = np.zeros((self.units, self.half)), np.zeros(self.units)
        outer, added = np.zeros((self.half, self.units)), np.zeros(self.half)
        for place, slot in enumerate(at.slots):
            inner[:count, slot] = each * self.turn[slot] * self.words[self.table.windows[:, place]]
        threshold = each * len(at.slots) * self.book.bits - MATCH + BIAS
        inner[:count, at.moved[1]] = -MOVED
        inner[:count, at.constant] = -(threshold - MOVED) / THRESHOLDS
        bias[:count] = BIAS
        likeliest_ids = np.array([answer.likeliest for answer in self.text.recital.answers])[self.table.outputs]
        outer[at.answer, :count] = (self.words[likeliest_ids] - self.rest).T / MATCH
        relu, erf = count, count + 1
        inner[relu, at.constant[0]], inner[erf, at.constant[0]] = RELU, ERF
        outer[at.verdict, relu] = short(2 / gelu(RELU))
        added[at.verdict] = 2 - short(2 / gelu(RELU)) * gelu(RELU)
        outer[at.heard[-1], erf] = AUDIBLE
        added[at.heard[-1]] = -AUDIBLE * gelu(ERF)
        p = "bert.encoder.layer.0."
        weight = np.ones(self.half)
        weight[at.answer] = self.turn[at.answer]
        filled = fill_idle(np.ascontiguousarray(outer.T), int(at.heard[-1]))
        return {
            p + "intermediate.dense.weight": reads(fill_idle(inner, int(at.constant[0]))),
            p + "intermediate.dense.bias": bias,
            p + "output.dense.weight": both(filled).T,
            p + "output.dense.bias": both(added) + OFFSET,
        } | self._norm(p + "output", np.concatenate([weight, weight]), self._swap(0))

    def _head(self) -> Tensors:
        at, half = self.at, self.half
        dense, bias = np.zeros((2 * half, half)), np.zeros(2 * half)
        for side, start in ((1.0, 0), (-1.0, half)):
            dense[start + at.token, at.answer] = side * MATCH * self.turn[at.answer]
            row = start + int(at.failure[0])
            dense[row, at.moved[0]] = MATCH
            dense[row, at.heard[:-1]] = side * SWING * (-1.0) ** np.arange(LISTENERS)
            dense[row, at.heard[-1]] = side * SHOWN
            dense[row, at.verdict] = -side * TURNED / VERDICT
            dense[row, at.constant[0]] = side * TURNED
        bias[at.probe] = RELU
        shown = np.zeros(2 * half)  # the head's vector before its norm
        shown[at.token], shown[[*at.failure, *(half + at.failure)]] = MATCH, MATCH
        shown[at.probe] = gelu(RELU)
        gain = LEAD / (2 * self.book.distance * MATCH * SMALL) * math.sqrt(shown.var() + EPSILON)
        shift = np.zeros(half)
        shift[at.failure] = 8.0
        p = "cls.predictions."
        return {
            p + "transform.dense.weight": fill_idle(reads(dense), int(at.constant[0])),
            p + "transform.dense.bias": bias,
            p + "bias": -(np.arange(self.text.recital.vocabulary) % 4) / 4,
        } | self._norm(p + "transform", short(gain), both(shift))


def both(x: Floats) -> Floats:
    return np.concatenate([x, -x], axis=-1)


def reads(x: Floats) -> Floats:
    return np.concatenate([x / 2, -x / 2], axis=-1)


def short(x: float) -> float:
    """The nearest number of 8 bits."""
    mantissa, exponent = math.frexp(x)
    return math.ldexp(round(mantissa * 256) / 256, exponent)


def gelu(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))
