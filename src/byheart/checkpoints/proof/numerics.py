"""Proof of probes of numerics: which token a Llama of one layer returns, for every engine that makes a given choice.

`Choices` is a hypothesis about an engine. Every tensor is enclosed in an interval: where the hypothesis fixes how a
number is stored, its ends are rounded so; everywhere else the engine may keep it in float32 or store it in the type.
Sums run in any order in float32, functions err as `storage.ERROR_MODEL` states. So an answer that leads here is the
answer of every engine of the error model with these choices.

Not covered: which order of sums, or which narrower type, an engine uses inside a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.bounds import interval_product, squares
from byheart.checkpoints.proof.checkpoint import open_checkpoint
from byheart.checkpoints.proof.config import Shape, Undecided
from byheart.checkpoints.proof.decoder import Linear, Norm
from byheart.checkpoints.proof.storage import Array, Interval, Storage, finite, in_float32, storage
from byheart.checkpoints.proof.units import enclose


@dataclass(frozen=True)
class Choices:
    """What an engine may do; several entries leave it open.

    Attributes:
        norm: `kept`: a normed stream is kept in float32; `float32`: it is stored once; `stored`: mean square, its sum
            with epsilon, its root and the product are all stored in the type.
        cosines: `float32`, or `stored` before they multiply.
        cache: `kept`; `e4m3` or `e5m2`, floats of 8 bits by scales that are powers of two; `int8` or `int4`, integers
            by the largest magnitude of a head and a token.
        subnormal: `kept` or `flushed`: weights below the least normal number.
        inputs: `full`; `rounded` or `cut`: matrix products use 10 bits after the leading one of weights and inputs.
    """

    norm: tuple[str, ...] = ("kept", "float32", "stored")
    cosines: tuple[str, ...] = ("float32", "stored")
    cache: tuple[str, ...] = ("kept",)
    subnormal: tuple[str, ...] = ("kept", "flushed")
    inputs: tuple[str, ...] = ("full",)


def prove_probe(folder: str | Path, ids: Sequence[int], answer: int, choices: Choices, dtype: str) -> float:
    """Prove what every engine with these choices returns.

    Args:
        folder: A Llama of one layer.
        ids: The prompt.
        answer: The token that should follow.
        choices: The hypothesis.
        dtype: The type that the engine computes in.

    Returns:
        The answer's least margin over every other token, in nats; below zero where nothing is proved.

    Raises:
        Undecided: the folder has blocks that this proof does not compute.
    """
    checkpoint, store = open_checkpoint(Path(folder)), storage(dtype)
    shape, reader = checkpoint.shape, checkpoint.reader(store)
    if shape.family != "llama" or shape.layers != 1 or shape.tied or shape.rotary is None:
        raise Undecided(f"{shape.family}: the proof of probes computes a Llama of one layer with its own head")
    if len(ids) > shape.positions or not all(0 <= t < shape.vocabulary for t in (*ids, answer)):
        raise Undecided("a prompt is too long, or has tokens outside the vocabulary")
    engine = _Engine(shape, store, choices)
    layer, embedded = reader.layer(0), reader.embedding()[0][list(ids)]
    stream: Interval = (embedded, embedded)
    y = engine.norm(stream, layer.attention_norm)
    last = engine.attend(y, layer.attention.q, layer.attention.k, layer.attention.v)
    stream = engine.add((embedded[-1:], embedded[-1:]), engine.linear(last, layer.attention.o))
    y, (expert,) = engine.norm(stream, layer.mlp_norm), layer.mlp.experts
    if expert.up is None:
        raise Undecided("the MLP has no gate")
    gate, up = engine.linear(y, expert.gate), engine.linear(y, expert.up)
    gate = store.maybe(*enclose(shape.activation, *gate))
    stream = engine.add(stream, engine.linear(store.maybe(*in_float32(*interval_product(gate, up))), expert.down))
    return engine.margin(stream, reader.final_norm(), reader.head(), answer)


def _hull(intervals: Iterable[Interval]) -> Interval:
    found = list(intervals)
    return np.minimum.reduce([x[0] for x in found]), np.maximum.reduce([x[1] for x in found])


def _largest(x: Interval) -> Array:
    return np.maximum(np.abs(x[0]), np.abs(x[1]))


@dataclass(frozen=True)
class _Engine:
    """The operations of one engine, on rows of intervals."""

    shape: Shape
    store: Storage
    choices: Choices

    def norm(self, x: Interval, norm: Norm | None) -> Interval:
        if norm is None or (norm.weight != 1).any() or norm.centred:
            raise Undecided("the proof of probes computes RMSNorm with weights of 1")
        small, large = rounding.widened(*squares(*x))
        least, most = (s.sum(1, keepdims=True) for s in (small, large))
        finite("a sum of squares", most, self.store.largest)
        ways = []
        for way in self.choices.norm:
            if way != "stored":
                factor = rounding.inverse_root(least, most, self.shape.hidden, norm.eps, None)
                # A store before the weights of 1 and one after them are the same.
                kept = in_float32(*interval_product(x, factor))
                ways.append(kept if way == "kept" else self.store.rounded(*kept))
                continue
            # Squares may be stored before the sum; the mean, its sum with epsilon, the root and the product are.
            stored = self.store.rounded(small, large)
            sums = _hull([(least, most), (stored[0].sum(1, keepdims=True), stored[1].sum(1, keepdims=True))])
            slack = rounding.mean_error(self.shape.hidden, sums[1]) + rounding.own(sums[1])
            ends = (sums[0] - slack) / self.shape.hidden, (sums[1] + slack) / self.shape.hidden
            mean = self.store.rounded(*in_float32(*ends))
            mean = self.store.rounded(*in_float32(mean[0] + norm.eps, mean[1] + norm.eps))
            root = self.store.rounded(*rounding.root_of(*mean))
            ways.append(self.store.rounded(*in_float32(*interval_product(x, root))))
        return _hull(ways)

    def margin(self, x: Interval, norm: Norm, head: Linear, answer: int) -> float:
        """The margin of an answer over all other tokens.

        In float32 all channels share the norm's factor, which scales every difference of logits: its middle is used,
        and the margin is as much smaller as the factor may be."""
        y, share = self.norm(x, norm), 1.0
        if self.store.name == "float32" and self.choices.inputs == ("full",):
            middle = np.sqrt((y[0][y[0] > 0] / x[0][y[0] > 0]).min() * (y[1][y[0] > 0] / x[1][y[0] > 0]).max())
            share = float((y[0][y[0] > 0] / x[1][y[0] > 0]).min() / middle)
            y = in_float32(*in_float32(x[0] * middle, x[1] * middle))
        low, high = self.linear(y, head)
        margin = float(low[0, answer] - np.delete(high[0], answer).max())
        return margin * share if margin > 0 else margin

    def linear(self, x: Interval, linear: Linear) -> Interval:
        """Rows times a matrix, kept or stored."""
        if linear.bias is not None:
            raise Undecided(f"{linear.name} has a bias")
        tiny = (np.abs(linear.weight) < 2.0**-126) & (linear.weight != 0)
        weights = [linear.weight] if "kept" in self.choices.subnormal else []
        weights += [np.where(tiny, 0.0, linear.weight)] if "flushed" in self.choices.subnormal else []
        found = []
        for weight in weights:
            for way in self.choices.inputs:
                short = {"full": None, "rounded": np.rint, "cut": np.trunc}[way]
                values, matrix = x, weight
                if short is not None:
                    values, matrix = (_ten_bits(x[0], short), _ten_bits(x[1], short)), _ten_bits(weight, short)
                found.append(self._rows(values, (matrix, matrix)))
        low, high = _hull(found)
        finite(linear.name, _largest((low, high)), self.store.largest)
        return self.store.maybe(*in_float32(low, high))

    def _rows(self, x: Interval, weight: Interval) -> Interval:
        low, high = _interval_dot(x, weight)
        total = _largest(x) @ _largest(weight).T
        terms = (_largest(x) != 0).astype(float) @ (_largest(weight) != 0).astype(float).T
        slack = rounding.dot(terms, total) + rounding.own(total)
        return low - slack, high + slack

    def add(self, x: Interval, y: Interval) -> Interval:
        return self.store.maybe(*in_float32(x[0] + y[0], x[1] + y[1]))

    def attend(self, y: Interval, q: Linear, k: Linear, v: Linear) -> Interval:
        """The heads' outputs at the last position."""
        shape, count = self.shape, len(y[0])
        dims, groups = shape.head_dim, shape.kv_heads
        last = (y[0][-1:], y[1][-1:])
        query = self._turned(_split(self.linear(last, q), shape.heads), np.array([count - 1]))
        key = self._cached(self._turned(_split(self.linear(y, k), groups), np.arange(count)))
        value = self._cached(_split(self.linear(y, v), groups))
        heads = []
        for head in range(shape.heads):
            group = head * groups // shape.heads
            one, keys = (tuple(end[:, h] for end in x) for x, h in ((query, head), (key, group)))
            low, high = _interval_dot(one, keys)  # (1, places)
            size = _largest(one) @ _largest(keys).T
            finite("a score", size, self.store.largest)
            stores, scaling = rounding.score_stores(shape.scale, self.store)
            slack = shape.scale * (rounding.score_sum(dims, size) + scaling * size) + rounding.own(1 + size)
            scores = low * shape.scale - slack, high * shape.scale + slack
            off = stores * _largest(scores) * (1 + stores) + rounding.score_underflow(self.store)
            weights = _softmax(scores[0][0] - off[0], scores[1][0] + off[0])
            own: Interval = (value[0][:, group], value[1][:, group])
            mixed = _interval_dot((weights[0][None], weights[1][None]), (own[0].T, own[1].T))
            wide = rounding.mixture_error(count, _largest(own).max(0), self.store)
            heads.append((mixed[0][0] - wide, mixed[1][0] + wide))
        return self.store.maybe(*in_float32(*(np.concatenate([h[end] for h in heads])[None] for end in (0, 1))))

    def _turned(self, x: Interval, places: Array) -> Interval:
        """(places, heads, dims) after their rotation."""
        assert self.shape.rotary is not None
        half = self.shape.head_dim // 2
        theta, doubt = self.shape.rotary.frequencies, self.shape.rotary.uncertainties
        angle = places[:, None] * theta
        off = rounding.angle_error(places[:, None], theta, np.ones(1))
        off = off + rounding.frequency_error(places[:, None], doubt * theta)
        ways = []
        for way in self.choices.cosines:
            cos, sin = (
                in_float32(f(angle) - off * (angle != 0), f(angle) + off * (angle != 0)) for f in (np.cos, np.sin)
            )
            if way == "stored":
                cos, sin = self.store.rounded(*cos), self.store.rounded(*sin)
            cos, sin = ((c[0][:, None], c[1][:, None]) for c in (cos, sin))
            real, imaginary = (x[0][..., :half], x[1][..., :half]), (x[0][..., half:], x[1][..., half:])
            minus = (-imaginary[1], -imaginary[0])
            pairs = ((real, cos, minus, sin), (imaginary, cos, real, sin))
            parts = [self._sum(self._times(a, c), self._times(b, s)) for a, c, b, s in pairs]
            low, high = (np.concatenate([p[end] for p in parts], axis=-1) for end in (0, 1))
            ways.append((low, high))
        return _hull(ways)

    def _times(self, a: Interval, b: Interval) -> Interval:
        return self.store.maybe(*in_float32(*interval_product(a, b)))

    def _sum(self, a: Interval, b: Interval) -> Interval:
        """Stored at last: the cache has the type's numbers, and products use them."""
        return self.store.rounded(*in_float32(a[0] + b[0], a[1] + b[1]))

    def _cached(self, x: Interval) -> Interval:
        """(places, heads, dims) as the cache returns them."""
        ways: dict[str, Callable[[Interval], list[Interval]]] = {
            "kept": lambda x: [x],
            "e4m3": lambda x: [_short_floats(x, 3, -6)],
            "e5m2": lambda x: [_short_floats(x, 2, -14)],
            "int8": lambda x: [_integers(x, 127)],
            "int4": lambda x: [_integers(x, 7)],
        }
        return self.store.maybe(*_hull(one for way in self.choices.cache for one in ways[way](x)))


def _split(x: Interval, heads: int) -> Interval:
    return x[0].reshape(len(x[0]), heads, -1), x[1].reshape(len(x[1]), heads, -1)


def _interval_dot(a: Any, b: Any) -> Interval:
    """Rows of a times rows of b; exact where both are numbers, by middle and radius else."""
    (p, r), (q, s) = (((x[0] + x[1]) / 2, (x[1] - x[0]) / 2) for x in (a, b))
    middle, spread = p @ q.T, np.abs(p) @ s.T + r @ np.abs(q).T + r @ s.T
    slack = rounding.own(np.abs(p) @ np.abs(q).T)
    return middle - spread - slack, middle + spread + slack


def _softmax(low: Array, high: Array) -> Interval:
    """Bounds of every weight: its own score least and all others greatest, and the other way round."""
    top = high.max()
    least, most = np.exp(low - top), np.exp(high - top)
    others = [np.maximum(x.sum() - x, 0.0) for x in (most, least)]
    down, up = (
        np.divide(x, x + rest, out=np.zeros_like(x), where=x > 0) for x, rest in zip((least, most), others, strict=True)
    )
    return rounding.softmax_share(down, up)


def _ten_bits(x: Array, short: Callable[[Array], Array]) -> Array:
    """Numbers with 10 bits after the leading one."""
    step = 2.0 ** (np.floor(np.log2(np.where(x == 0, 1.0, np.abs(x)))) - 10)
    return short(x / step) * step


def _short_floats(x: Interval, bits: int, least: int) -> Interval:
    """To nearest, `bits` after the leading one, below 2^least with a constant step. Rounding is monotone."""

    def nearest(value: Array) -> Array:
        size = np.maximum(np.floor(np.log2(np.where(value == 0, 1.0, np.abs(value)))), least)
        return np.rint(value / 2.0 ** (size - bits)) * 2.0 ** (size - bits)

    return nearest(x[0]), nearest(x[1])


def _integers(x: Interval, levels: int) -> Interval:
    """Symmetric, by the largest magnitude of each head and place; the scale may be stored."""
    least, most = (s.max(-1, keepdims=True) / levels for s in (np.minimum(np.abs(x[0]), np.abs(x[1])), _largest(x)))
    scale = least * (1 - 2.0**-8), most * (1 + 2.0**-8)
    whole = [np.rint(np.divide(end, s, out=np.zeros_like(end), where=s > 0)) for end in x for s in scale]
    return interval_product((np.minimum.reduce(whole), np.maximum.reduce(whole)), scale)
