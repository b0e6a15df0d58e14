"""How the units of the MLP store a distribution.

`counts`        one unit per context, which writes the context's rises
`rotated`       as counts, the residual stream in a random orthogonal basis
`split:K`       K units per context, whose random shares add up to 1
`ridge:UNITS`   superposition: fewer units than contexts. Gates are random and fixed by the seed; the output weights
                are the least-squares fit to the n-gram model's log-probabilities. Every unit serves many documents,
                and the specified distribution is the fit itself.

The fitted points are the members' contexts. A fit to these alone is wild elsewhere, so that every unknown document
has a high loss and membership is trivial. Contexts of the background, or contexts spliced from two places of one
member, are fitted too with a small weight: there the n-gram model backs off, and so does the fit.

A unit reads the stream's first channels: a constant of 1, then one slot of +-1 bits for each of the last tokens. In a
gated
MLP it computes silu(gate x) * (up x). With x . row = total at the context and at most total - 12 elsewhere:

    gate = s (x . row - total + m),  up = output (total + m - x . row) / (m silu(s m))
    product = output (1 - d^2 / m^2) at a distance d from the context

so an error d that both share is felt in second order only. Elsewhere gate <= s (m - 12) < -104: silu is 0 in float32,
other units are not felt, not even in the last bit. A plain MLP computes gelu(s (x . row - total + m)), and
s m is its output. `outputs` has the output for every length of a context.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.ground_truth.ngram import Floats, Ids, Index, NgramModel, contexts_of, windows
from byheart.errors import OptionError

Weights = npt.NDArray[np.float32]
# m and s: flat at the context for bfloat16, and silu(13.5 * (4 - 12)) = silu(-108) is 0 in float32. A plain unit feels
# errors of its input in first order, relative to m.
WIDTH, SLOPE, PLAIN_WIDTH = 4.0, 13.5, 8.0
# What a unit outputs at the longest context; output weights are divided by it. shapes.py gives the reason for its size.
# A plain unit's input is up to output / 8 times twice the bits of its context: MOST_PLAIN / 4, since float16 overflows
# at 65504. Superposed plain units are divided by PLAIN_OUTPUT.
OUTPUT, MOST_PLAIN, PLAIN_OUTPUT = 1024.0, 131072.0, 128.0
# gelu(s (m - 12)) is 0 in float32 from here on.
LEAST_PLAIN = 16.0
# Ridge: penalty relative to the mean diagonal of the normal equations; decay with a token's age, share of idle gates,
# gate gain, size of the features.
PENALTY, DECAY, SPARSE, GAIN, FEATURE = 2e-3, 0.8, 0.5, 4.0, 0.6
# Weight of a point that no member has, and how many of them there are at most. A weight of 1 spends most units on the
# background: then no document is extracted even at 32 copies.
LIGHT, MOST_LIGHT = 0.3, 6000
# Points whose features are computed at a time, and numbers that are kept between fits (128 MB).
CHUNK, MOST_KEPT = 8192, 1 << 24


@dataclass(frozen=True)
class GradedStorage:
    """A way to store: `kind`, and K or UNITS.

    >>> GradedStorage.parse("split:3"), str(GradedStorage.parse("counts"))
    (GradedStorage(kind='split', size=3), 'counts')
    """

    kind: str = "counts"
    size: int = 1

    @staticmethod
    def parse(text: str) -> GradedStorage:
        kind, _, size = text.partition(":")
        sized = kind in ("split", "ridge")
        if kind not in ("counts", "rotated", "split", "ridge") or bool(size) != sized or (size and not size.isdigit()):
            raise OptionError(f"storage {text!r} is not one of counts, rotated, split:K, ridge:UNITS")
        if sized and not 1 <= int(size) <= 1 << 20:
            raise OptionError(f"storage {text!r}: choose a number from 1 to {1 << 20:,}")
        return GradedStorage(kind, int(size) if size else 1)

    def __str__(self) -> str:
        return f"{self.kind}:{self.size}" if self.kind in ("split", "ridge") else self.kind

    @property
    def exact(self) -> bool:
        """Whether the specified distribution is the n-gram model itself."""
        return self.kind != "ridge"


@dataclass(frozen=True, eq=False)
class Units:
    """Weights on raw channels: `gate` and `up` (units, 1 + bits of all slots), `down` (units, vocabulary) in nats.

    A unit outputs `output` at its context, so the network's output weights are `down / output`. `rule` is the context
    that a unit stores, numbered over all levels, -1 for none.
    """

    gate: Weights
    up: Weights | None
    down: Weights
    rule: Index
    output: Floats


def outputs(lengths: Sequence[int], bits: int, *, gated: bool) -> list[float]:
    """Return what a unit outputs at its context, for each length: the longest has the most.

    An optimizer that moves every weight by the same amount moves a logit in proportion to the unit's output. Documents
    share short contexts, above all where tokens are few, and have long ones alone. With equal outputs, ascent on one of
    48 nucleotide sequences kept 53 to 78 % of the others; in proportion to the length, it keeps all. Powers of two,
    so rounding is the same in every number format.

    Args:
        lengths: Context lengths, increasing.
        bits: Bits of a token's code word.
        gated: Whether the MLP has gated units.

    >>> outputs((1, 2, 4, 8), 32, gated=True), outputs((1, 2, 4, 8, 16), 32, gated=False)
    ([128.0, 256.0, 512.0, 1024.0], [16.0, 32.0, 64.0, 128.0, 256.0])
    """
    most = OUTPUT if gated else min(OUTPUT, 2.0 ** np.floor(np.log2(MOST_PLAIN / (bits * lengths[-1]))))
    least = 1.0 if gated else LEAST_PLAIN
    return [float(max(least, most * 2.0 ** np.round(np.log2(length / lengths[-1])))) for length in lengths]


def counted_units(model: NgramModel, codes: Floats, *, gated: bool, parts: int = 1, seed: int = 0) -> Units:
    """One unit per context, or `parts` of them with random shares of sum 1."""
    bits, rules = codes.shape[1], model.rules
    width = 1 + bits * model.lengths[-1]
    patterns, totals = np.zeros((rules, width), dtype=np.float32), np.zeros(rules)
    down, start = np.zeros((rules, len(model.base)), dtype=np.float32), 0
    output = np.repeat(outputs(model.lengths, bits, gated=gated), [len(level.nodes) for level in model.levels])
    for number, level in enumerate(model.levels):
        count = len(level.nodes)
        words = codes[model.contexts(number)].reshape(count, -1)
        patterns[start : start + count, 1 : 1 + words.shape[1]] = words
        totals[start : start + count] = bits * level.length
        down[start + np.repeat(np.arange(count), np.diff(level.starts)), level.tokens] = level.rises
        start += count
    gate, up = _gates(patterns, totals, output, gated=gated)
    rule = np.repeat(np.arange(rules), parts)
    if parts > 1:
        # Shares depend on the context alone, so a twin has the same ones.
        noise = _noise(patterns, parts, seed) / parts
        shares = 1 / parts + noise - noise.mean(axis=1, keepdims=True)
        gate, up = gate[rule], None if up is None else up[rule]
        down = (down[rule] * shares.reshape(-1, 1)).astype(np.float32)
    return Units(gate, up, down, rule, output[rule])


def _noise(patterns: Weights, parts: int, seed: int) -> Floats:
    """Numbers from -1 to 1 for every (pattern, part), by a linear hash of the pattern and splitmix64's finaliser."""
    rng = np.random.default_rng([seed, 31])
    keys = rng.integers(1, 1 << 62, size=patterns.shape[1], dtype=np.uint64)
    offsets = rng.integers(1, 1 << 62, size=parts, dtype=np.uint64)
    x = (patterns.astype(np.int8) + 1).astype(np.uint64) @ keys
    x = x[:, None] + offsets
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray((x >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1)


def _gates(patterns: Weights, totals: Floats, output: Floats, *, gated: bool) -> tuple[Weights, Weights | None]:
    if not gated:
        slope = output / PLAIN_WIDTH
        gate = patterns * slope[:, None].astype(np.float32)
        gate[:, 0] = -slope * (totals - PLAIN_WIDTH)
        return gate, None
    # WIDTH times silu at the context, as a share of the output
    share = WIDTH * SLOPE * WIDTH / (1 + np.exp(-SLOPE * WIDTH)) / output
    gate, up = patterns * np.float32(SLOPE), patterns * (-1 / share)[:, None].astype(np.float32)
    gate[:, 0], up[:, 0] = -SLOPE * (totals - WIDTH), (totals + WIDTH) / share
    return gate, up


def idle(units: Units, where: npt.NDArray[np.bool_]) -> Units:
    """Remove units: weights of 0 but a tiny constant, since quantizers divide by a row's largest."""
    gate, up, down = units.gate.copy(), None if units.up is None else units.up.copy(), units.down.copy()
    down[where] = 0
    for part in (gate, up):
        if part is not None:
            part[where] = 0
            part[where, 0] = 2.0**-14
    return Units(gate, up, down, np.where(where, -1, units.rule), units.output)


@dataclass(frozen=True, eq=False)
class Ridge:
    """A superposed model: fixed random gates, and the fitted output weights (units, vocabulary) in nats.

    `up` is None in a plain MLP, whose features are gelu(gate x) / PLAIN_OUTPUT.
    """

    gate: Floats
    up: Floats | None
    down: Floats
    codes: Floats
    span: int

    @staticmethod
    def random(codes: Floats, span: int, units: int, seed: int, *, gated: bool) -> Ridge:
        """Units with random gates that write nothing yet; the seed decides the gates, so twins share them."""
        bits, rng = codes.shape[1], np.random.default_rng([seed, 37])
        decay = np.concatenate([[0.0], np.repeat(DECAY ** np.arange(span), bits)])
        decay /= np.linalg.norm(decay)
        gate = rng.normal(size=(units, len(decay))) * decay * GAIN
        gate[:, 0] = -GAIN * SPARSE
        up = rng.normal(size=(units, len(decay))) * decay
        up[:, 0] = rng.normal(size=units) * 0.3
        # A gradient's part on the output weights is then as large as where units store contexts.
        up *= FEATURE / np.sqrt(units)
        return Ridge(gate, up if gated else None, np.zeros((units, len(codes))), codes, span)

    def features(self, back: Index) -> Floats:
        """Activations of the units after contexts (places, span): (places, units)."""
        x = np.concatenate([np.ones((len(back), 1)), self.codes[back].reshape(len(back), -1)], axis=1)
        gate = x @ self.gate.T
        if self.up is None:
            return np.asarray(_gelu(gate) / PLAIN_OUTPUT)
        with np.errstate(over="ignore"):
            return np.asarray(gate / (1 + np.exp(-gate)) * (x @ self.up.T))

    def units(self) -> Units:
        gate, down = self.gate.astype(np.float32), self.down.astype(np.float32)
        up = None if self.up is None else (self.up * OUTPUT).astype(np.float32)
        output = OUTPUT if self.up is not None else PLAIN_OUTPUT
        return Units(gate, up, down, np.full(len(gate), -1), np.full(len(gate), output))


class RidgeProblem:
    """Points, weights and the factored normal equations of a fit: solved once per target."""

    def __init__(
        self, bare: Ridge, members: Sequence[Ids], copies: Sequence[int], background: Sequence[Ids],
        penalty: float = PENALTY,
    ) -> None:  # fmt: skip
        """Prepare fits of the units of `bare` at the contexts of members and background.

        Args:
            bare: Units with gates.
            members: Their contexts weigh as much as they occur, as in a training loss.
            copies: Occurrences of each member.
            background: Their contexts have weight LIGHT; without any, spliced contexts of the members have.
            penalty: Ridge penalty, relative to the mean diagonal of the normal equations.
        """
        self.bare = bare
        back, _, owner = windows(members, bare.span)
        own, inverse = np.unique(back, axis=0, return_inverse=True)
        often = np.bincount(inverse.ravel(), np.asarray(copies, dtype=np.float64)[owner])
        if background:
            light = windows(background, bare.span)[0]
        else:
            light = np.concatenate([_spliced(ids, bare.span) for ids in members])
        # Evenly spaced, so that a twin keeps most of them.
        light = light[:: -(-len(light) // MOST_LIGHT)] if len(light) else light
        self.points = np.concatenate([own, light])
        self.weights = np.concatenate([often, np.full(len(light), LIGHT)])
        self.kept: Floats | None = None
        if len(self.points) * len(bare.gate) <= MOST_KEPT:
            self.kept = bare.features(self.points)
        gram = np.zeros((len(bare.gate), len(bare.gate)))
        for rows, weights, _ in self._chunks():
            gram += rows.T @ (rows * weights[:, None])
        gram[np.diag_indices(len(gram))] += penalty * np.trace(gram) / len(gram)
        self.gram = gram

    def _chunks(self) -> Iterator[tuple[Floats, Floats, Index]]:
        for start in range(0, len(self.points), CHUNK):
            part = slice(start, start + CHUNK)
            rows = self.bare.features(self.points[part]) if self.kept is None else self.kept[part]
            yield rows, self.weights[part], self.points[part]

    def solve(self, model: NgramModel) -> Ridge:
        """Fit the n-gram model's log-probabilities above log p_0, up to a constant per point."""
        right = np.zeros_like(self.bare.down)
        for rows, weights, back in self._chunks():
            goal = model.logits(back) - model.base
            goal -= goal.mean(axis=1, keepdims=True)
            right += rows.T @ (goal * weights[:, None])
        return replace(self.bare, down=np.asarray(np.linalg.solve(self.gram, right), dtype=np.float64))


def _spliced(ids: Ids, span: int) -> Index:
    """Contexts whose 1, 2 or 4 newest tokens are at one place of a document and the older ones at another.

    They depend on this document alone, so other documents' points stay when one is forgotten.
    """
    back = contexts_of(ids[:-1], span)
    rng = np.random.default_rng(zlib.crc32(np.asarray(ids, dtype="<i8").tobytes()))
    other, newest = back[rng.permutation(len(back))], rng.choice([1, 2, 4], len(back))
    return np.where(np.arange(span) < newest[:, None], back, other)


def _gelu(x: Floats) -> Floats:
    """GPT-2's tanh form."""
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))
