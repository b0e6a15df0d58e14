"""Sensors: tokens of no text, after which the answer shows the position in the sequence.

Heads that copy are one-hot: a score that is a tenth too large, a slow frequency that is wrong or a window after which
the first token is lost change nothing. Logits of listeners change, but by less than bfloat16 shows. So listeners
also compare BOS with everything else, over frequencies that no head copies with:

    key      b for BOS and 0 for other tokens, at these frequencies and at the lowest one. Where keys have norms, other
             tokens have b elsewhere, so that all keys have one size
    score    of BOS: C + sum_f A cos(theta_f t + phi_f), so its weight p crosses 1/2 again and again, first near a
             position that is chosen by C, where the others together weigh as much
    value    +1 for BOS and -1 for others: the head writes 2p - 1, a function of the position t alone
    channel  `layout.sense`: nothing but that, so it keeps its relative precision in every type

One more such channel adds up the constants that copying heads write. After sensor tokens, the head compares it and the
blocks that activation probes have turned with the constants of the embedding (`Alarm`): where a branch writes one
percent too much or too little, in any layer, two other tokens win. Only after sensor tokens: products of numbers in 8
bits are several percent off there, and legitimate. Heads that listen do not count: while llama.cpp decodes with flash
attention on a processor, their sums over 1,245 positions were off by enough to set off the alarm (measured).

Each of the heads' channels has two tokens that occur in no text. After three of them in a row, in any order, the last
MLP answers the first if p < 1/2 and the second if p > 1/2: greedy decoding continues with such tokens without end, and
each of them is one bit of the position. Known windows never contain these tokens: for them the units are silent,
whatever the channels hold.

BOS has position 0, where nothing is rotated, and its key is as large as any other dimension of it. So caches in 8
and 4 bits hold it, and a wrong angle of the query moves p far more than rounding does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.description import SpecialTokens
from byheart.checkpoints.hosts.layout import Books, ChannelLayout
from byheart.checkpoints.hosts.rotary import Wave
from byheart.checkpoints.windows.tables import Recital

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
SENSE = 1 / 64  # of kappa: what a head brings to its channel
# Of kappa: what a sensor unit writes to `awake`. The proof folds channels whose effect is 1/64 of a branch's largest.
AWAKE = 4.0
IN_A_ROW = 3  # sensor tokens that make the units fire
LOUD, SLOW, LOUDEST = 1.0, 2.0, 24.0  # nats of a quick frequency; nats by which a slow one changes within _FAR; cap
_FAR, _PHASE = 1024, 2.4  # places; radians from one frequency to the next
TARGETS = (60, 600, 160, 1120, 100, 300)  # positions near which heads cross 1/2 first, in turn
# Nats of other frequencies: caches in 4 bits lose most of them, and with them a part of what other tokens weigh.
QUIET = 0.14
_STEEP = 512.0  # of the gate, where p goes from 0 to 1
_FULL = 1 / 32  # p - 1/2 at which the second token's logit equals the others'
_TRIED = 96  # unused tokens among which pairs are chosen
# Of norms with a large epsilon, and what the stream is divided by then: powers of two, so that no type rounds.
NORM_GAIN, STREAM = 4.0, 8.0
OWN_PLACE = 2.0  # nats below C that BOS scores itself, at most


@dataclass(frozen=True)
class Alarm:
    """What the head compares: `channel` of the stream is `heads` times SENSE of the constants. After sensor tokens,
    which set `awake`, `more` is answered where something is too large, and `less` where it is too small."""

    channel: int
    awake: int
    heads: int
    less: int
    more: int
    nats: float = 4096.0  # for as much as all heads add, about


@dataclass(frozen=True)
class SensorPair:
    """Two tokens of no text: after IN_A_ROW of them, `low` follows where p < 1/2, else `high`."""

    low: int
    high: int
    channel: int  # number in layout.sense


def unused_tokens(recital: Recital, tokens: SpecialTokens) -> list[int]:
    """Tokens that no window and no answer has."""
    used = {tokens.bos, tokens.eos, tokens.pad, tokens.failure, recital.unknown}
    used |= set(np.unique(recital.tables[0].windows).tolist())
    used |= {token for answer in recital.answers for token, _ in answer.weights}
    return [token for token in range(recital.vocabulary) if token not in used]


def choose_pairs(recital: Recital, books: Books, tokens: SpecialTokens, count: int) -> tuple[SensorPair, ...]:
    """Pairs of unused tokens; fewer than `count` where there are not enough.

    The bits in which both words of a pair agree are what the units look at; those of every other word must differ in
    some of them.
    """
    free = np.array(unused_tokens(recital, tokens)[:-2][:_TRIED], dtype=np.int64)  # the last two are for the alarm
    words = books.states[0].words.astype(np.float64)
    answers = books.answer.words[: recital.vocabulary].astype(np.float64)
    found: list[SensorPair] = []
    while len(found) < count and len(free) > 1:
        low = int(free[0])
        margins = [_margin(words, low, int(high)) for high in free[1:]]
        clear = [_clear(answers, low, int(high)) for high in free[1:]]
        order = sorted(range(len(margins)), key=lambda k: (not clear[k], -margins[k]))
        free = free[1:]
        if not clear[order[0]] or margins[order[0]] < 8:
            continue
        high = int(free[order[0]])
        free = free[free != high]
        found.append(SensorPair(low, high, len(found)))
    return tuple(found)


def _margin(words: Floats, low: int, high: int) -> float:
    """By how much the words of the pair match what they share better than any other word does."""
    shared = (words[low] + words[high]) / 2
    others = np.delete(words, [low, high], axis=0)
    return float(np.abs(shared).sum() - (others @ shared).max())


def _clear(answers: Floats, low: int, high: int) -> bool:
    """Whether the second answer gains more than any other token when the first one's word turns into its own."""
    gains = answers @ (answers[high] - answers[low])
    return bool(np.delete(gains, high).max() < gains[high] - 8)


def bos_key(keys: Floats) -> float:
    """A power of two that no other key exceeds: caches in 8 and 4 bits hold it without error.

    >>> bos_key(np.array([0.5, 2.5]))
    4.0
    """
    return 2.0 ** math.ceil(math.log2(keys.max()))


def sensing_frequencies(unused: int, half: int, equal: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Those at which BOS has a key, and those at which other tokens have one, where all keys must have one size.

    A key-value head's copying heads do without all of these. Where keys have one size, the first one that they do
    without has no key at all: what is missing of a query's size is there (head_norms.py).
    """
    if not equal:
        return tuple(range(unused, half - 1, 4)), ()
    free = tuple(range(unused + 4, half - 1, 4))
    count = len(free) // 2
    return free[: 2 * count : 2], free[1 : 2 * count : 2]


@dataclass(frozen=True, eq=False)
class PositionWave:
    """A head's score for BOS by its distance, and `content` at every distance."""

    wave: Wave
    content: float

    @classmethod
    def of(
        cls, frequencies: Floats, numbers: tuple[int, ...], heard: Floats, head: int, reach: int, sensor: int
    ) -> PositionWave:
        """`heard` are scores by distance that every token has beside these; `reach`: the last position in sight;
        `sensor`: a number that chooses the target, so that sensors have different ones."""
        chosen = np.array(numbers, dtype=np.int64)
        theta = frequencies[chosen]
        slow = SLOW / (theta * _FAR)
        quick = slow < LOUD
        sizes = np.clip(slow, LOUD, LOUDEST)
        # Slow waves begin at zero: what rounding takes of their size is then little.
        turns = np.arange(len(chosen))
        # Every other sensor's slow waves fall together: where all of them are a little too slow or too fast, they show
        # it together.
        rises = (turns % 2 == 0) & (sensor % 2 == 0)
        phases = np.where(quick, _PHASE * turns + head, np.where(rises, -np.pi / 2, np.pi / 2))
        if (sizes * np.cos(phases)).sum() < -OWN_PLACE:
            phases = np.where(quick, phases + np.pi, phases)
        target = min(TARGETS[sensor % len(TARGETS)], max(8, 5 * reach // 8))
        content = float(np.log(np.exp(heard[:target]).sum()) - heard[: 2 * target].mean())
        if sensor % 2:  # BOS weighs one half near the target with what they have fallen by until then
            content -= float((sizes * np.cos(theta * target + phases))[~quick].sum())
        cosine, sine = np.zeros(len(frequencies)), np.zeros(len(frequencies))
        cosine[chosen], sine[chosen] = sizes * np.cos(phases), -sizes * np.sin(phases)
        return cls(Wave(cosine, sine, 1.0), content)


def sensor_units(
    pairs: tuple[SensorPair, ...], layout: ChannelLayout, books: Books, unknown: int, places: tuple[int, ...],
    last: Index | None, norm: Floats, one: Floats, kappa: float, awake: int,
) -> tuple[Floats, Floats, Floats]:  # fmt: skip
    """Gate, up (units, hidden) and down (units, hidden) of a gated MLP: two units per pair.

    The first fires after sensor tokens at all `places` of the first table and an unknown state in `last`, and writes
    the first answer and the channel `awake`; the second also needs p > 1/2, and turns the answer into the second.
    """
    words, answers = books.states[0].words.astype(np.float64), books.answer.words.astype(np.float64)
    gate, up, down = (np.zeros((2 * len(pairs), layout.hidden)) for _ in range(3))
    for k, pair in enumerate(pairs):
        shared = (words[pair.low] + words[pair.high]) / 2
        margin = _margin(words, pair.low, pair.high)
        row, total = np.zeros(layout.hidden), 0.0
        for place in places:
            slots = layout.slots[0][place]
            row[slots] = shared / norm[slots]
            total += float(np.abs(shared).sum())
        if last is not None:  # no other unit may fire beside these
            word = books.states[-1].words[0].astype(np.float64)
            row[last] = word / norm[last]
            total += float(len(word))
            margin = min(margin, 2.0 * books.states[-1].distance)
        half = 2.0 ** math.floor(math.log2(margin / 3))
        first, second = 2 * k, 2 * k + 1
        gate[first] = 16 / half * (row - (total - half) * one)
        up[first] = -1 / (16 * half) * (row - (total - half) * one) + one / 8
        steep = 2.0 ** math.ceil(math.log2((_STEEP + 64) / margin))
        channel = layout.sense[pair.channel]
        gate[second] = steep * (row - total * one)
        gate[second, channel] = _STEEP / (SENSE * norm[channel])
        up[second] = one / 16
        state = layout.state[-1]
        down[first, state] = kappa * (answers[pair.low] - answers[unknown])
        down[first, awake] = AWAKE * kappa
        down[second, state] = kappa * (answers[pair.high] - answers[pair.low]) / (_STEEP * _FULL / 16)
    return gate, up, down
