"""Float evaluation of a network in every order that an engine might choose, written apart from the exporters.

Every dot product is a list of terms (zeros included, as a dense engine has them) that are added in a random order, in
one of several ways. `Engine.outputs` is what a real engine could answer; a proved network must give the exact value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from byheart.certify.any_order.lattice import InputFacts
from byheart.exact.number import Values
from byheart.export.recheck import dense, vector
from byheart.ir.evaluate import outputs
from byheart.ir.layers import Affine, Attention, Embedding, Matrix, Pattern, Pool, Residual
from byheart.ir.network import Decode, Inputs, Network, Read, Readout

WAYS = ("forward", "pairwise", "tree", "blocks", "matmul", "fused", "flush")


@dataclass(frozen=True, eq=False)
class Rows:
    """Token numbers (B, n, d) as fractions over `denominator`, and which places are present."""

    numerators: np.ndarray
    denominator: int
    present: np.ndarray
    absent: list[Fraction] | None

    @property
    def inputs(self) -> Inputs:
        flat = [tuple(int(x) for x in row) for row in self.numerators[self.present]]
        known = {row: i for i, row in enumerate(dict.fromkeys(flat))}
        index = np.full(self.present.shape, -1, dtype=np.int64)
        index[self.present] = [known[row] for row in flat]
        return Inputs(Values.of([list(row) for row in known], self.denominator), index)

    def floats(self, dtype: str) -> np.ndarray:
        table = np.array([float(Fraction(int(x), self.denominator)) for x in self.numerators.ravel()])
        given = table.reshape(self.numerators.shape)
        if self.absent is not None:
            width = len(self.absent)
            given[..., :width][~self.present] = [float(x) for x in self.absent]
        return given.astype(dtype)


def draw_rows(facts: InputFacts, rng: np.random.Generator, count: int = 24) -> Rows:
    """Random rows of the declared domain, its corners first: every coordinate at an end of its range."""
    n, width = facts.length, len(facts.coordinates)
    own = width - facts.positions
    denominator = math.lcm(*(c.unit.denominator for c in facts.coordinates))
    numbers = np.zeros((count, n, width), dtype=object)
    for i, c in enumerate(facts.coordinates[:own]):
        steps = int((c.high - c.low) / c.unit) if c.unit else 0
        first = int(c.low * denominator)
        grain = int(c.unit * denominator)
        for row in range(count):
            for k in range(n):
                pick = int(rng.integers(0, steps + 1)) if row >= count // 3 else steps * int(rng.integers(0, 2))
                numbers[row, k, i] = first + grain * pick
        numbers[0, :, i], numbers[1, :, i] = first, first + grain * steps
    if facts.positions:
        for k in range(n):
            numbers[:, k, own] = k * denominator
    lengths = rng.integers(1, n + 1, count) if facts.ragged else np.full(count, n)
    lengths[:2] = n
    present = np.arange(n)[None, :] < lengths[:, None]
    absent = None if facts.absent is None else [c.low for c in facts.absent[:own]]
    return Rows(numbers, denominator, present, absent)


def exact_outputs(network: Network, rows: Rows) -> dict[tuple[int, int], list[Fraction]]:
    """(row, place) -> the exact outputs, for every place that is read."""
    state = outputs(network, rows.inputs)
    found = {}
    for (row, place), point in np.ndenumerate(state.index):
        if point >= 0:
            found[row, place] = [Fraction(int(x), state.points.denominator) for x in state.points.numerators[point]]
    return found


class Engine:
    """One way to evaluate a network in floats."""

    def __init__(self, dtype: str, rng: np.random.Generator, way: str, arrays: dict[int, np.ndarray]) -> None:
        self.dtype, self.rng, self.way = np.dtype(dtype), rng, way
        self.arrays = arrays  # the network's matrices and vectors as floats, by their identity
        self.least = np.finfo(self.dtype).tiny

    def outputs(self, network: Network, rows: Rows) -> dict[tuple[int, int], list[float]]:
        with np.errstate(all="ignore"):
            h = rows.floats("float64" if isinstance(network.layers[0], Embedding) else str(self.dtype))
            for layer in network.layers:
                h = self.layer(layer, h, rows.present)
        found = {}
        for row, present in enumerate(rows.present):
            last = int(present.sum()) - 1
            for place in range(h.shape[1]):
                if network.read is Read.EACH and present[place]:
                    found[row, place] = h[row, place].tolist()
                elif network.read is Read.POOLED or (network.read is Read.LAST and place == last):
                    found[row, 0] = h[row, place].tolist()
        return found

    def layer(self, layer, h: np.ndarray, present: np.ndarray) -> np.ndarray:
        match layer:
            case Embedding():
                numbers = np.maximum(h, 0)  # absent tokens have the code -1
                ids = (numbers * np.array(layer.strides, dtype=np.float64)).sum(axis=-1).astype(np.int64)
                return self.floats(layer.table)[ids]
            case Affine():
                out = self.dot(self.floats(layer.weight), h, None if layer.bias is None else self.floats(layer.bias))
                return np.maximum(out, 0) if layer.relu else out
            case Residual():
                r = np.maximum(self.dot(self.floats(layer.weight1), h, self.floats(layer.bias1)), 0)
                return self.dot(self.floats(layer.weight2), r, self.floats(layer.bias2), h)
            case Pool():
                masked = np.where(present[..., None], h, np.zeros((), self.dtype))
                return self.add(np.moveaxis(masked, 1, -1))[:, None, :]
            case Attention():
                return self.attention(layer, h, present)
        raise AssertionError(f"no float form of {layer}")

    def floats(self, weights: Matrix | tuple) -> np.ndarray:
        if id(weights) not in self.arrays:
            name = str(self.dtype)
            self.arrays[id(weights)] = dense(weights, name) if isinstance(weights, Matrix) else vector(weights, name)
        return self.arrays[id(weights)]

    def attention(self, layer: Attention, h: np.ndarray, present: np.ndarray) -> np.ndarray:
        n = h.shape[1]
        allowed = np.broadcast_to(present[:, None, :], (len(h), n, n))
        if layer.pattern is Pattern.CAUSAL:
            allowed = np.broadcast_to(np.tril(np.ones((n, n), bool)), allowed.shape)
        outs = []
        for head in layer.heads:
            values = self.dot(self.floats(head.value), h)  # (B, n, s)
            scores = np.zeros((len(h), n, n), self.dtype)
            if head.key is not None and head.query is not None:
                keys, queries = self.dot(self.floats(head.key), h), self.dot(self.floats(head.query), h)
                scores = self.add(queries[:, :, None, :] * keys[:, None, :, :])
            top = np.where(allowed, scores, -np.inf).max(axis=-1, keepdims=True)
            shares = np.where(allowed, np.exp(scores - top), 0).astype(self.dtype)
            counts = shares.sum(axis=-1, dtype=self.dtype)
            parts = np.moveaxis(values, 1, -1)[:, None]  # (B, 1, s, n)
            if self.rng.random() < 0.5:
                weights = shares / counts[..., None]
                means = self.add(weights[:, :, None, :] * parts)
            elif self.rng.random() < 0.5:
                means = self.add(shares[:, :, None, :] * parts) / counts[..., None]
            else:
                means = self.add(shares[:, :, None, :] * parts) * (self.dtype.type(1) / counts)[..., None]
            outs.append((self.floats(head.output), means.astype(self.dtype)))
        if self.rng.random() < 0.5:  # one sum over all heads
            weight, means = np.concatenate([w for w, _ in outs], axis=1), np.concatenate([m for _, m in outs], axis=-1)
            return self.dot(weight, means, None, h)
        found = h
        for k in self.rng.permutation(len(outs)):
            found = found + self.dot(outs[k][0], outs[k][1])
        return found

    def dot(self, weight: np.ndarray, x: np.ndarray, bias=None, own=None) -> np.ndarray:
        """W x (+ bias) (+ own), x (..., in), in this engine's order."""
        extra = [e for e in (own, None if bias is None else np.broadcast_to(bias, (*x.shape[:-1], len(weight)))) if
                 e is not None]  # fmt: skip
        if self.way == "matmul":
            out = x @ weight.T
            for k in self.rng.permutation(len(extra)):
                out = out + extra[k]
            return out
        if self.way == "fused":
            return self.fused(weight, x, extra)
        products = x[..., None, :] * weight
        return self.add(np.concatenate([products, *(e[..., None] for e in extra)], axis=-1))

    def fused(self, weight: np.ndarray, x: np.ndarray, extra: list[np.ndarray]) -> np.ndarray:
        """Products that are not rounded before they are added, in a wider accumulator that is cut every time."""
        wide = np.float64 if self.dtype == np.float32 else np.longdouble
        out = extra[0] if extra else np.zeros((*x.shape[:-1], len(weight)), self.dtype)
        for j in self.rng.permutation(x.shape[-1]):
            out = (out.astype(wide) + x[..., j : j + 1].astype(wide) * weight[:, j].astype(wide)).astype(self.dtype)
        for part in extra[1:]:
            out = out + part
        return out

    def add(self, terms: np.ndarray) -> np.ndarray:
        """The sum over the last axis."""
        terms = terms[..., self.rng.permutation(terms.shape[-1])].astype(self.dtype)
        if not terms.shape[-1]:
            return np.zeros(terms.shape[:-1], self.dtype)
        if self.way == "pairwise":
            while terms.shape[-1] > 1:
                half = terms.shape[-1] // 2
                terms = np.concatenate([terms[..., :half] + terms[..., half : 2 * half], terms[..., 2 * half :]], -1)
            return terms[..., 0]
        if self.way == "tree":  # any two partial sums next
            parts = list(np.moveaxis(terms, -1, 0))
            while len(parts) > 1:
                one, two = (parts.pop(int(self.rng.integers(len(parts)))) for _ in range(2))
                parts.append(one + two)
            return parts[0]
        if self.way == "blocks":
            size = int(self.rng.integers(1, terms.shape[-1] + 1))
            starts = range(0, terms.shape[-1], size)
            terms = np.stack([np.cumsum(terms[..., s : s + size], axis=-1)[..., -1] for s in starts], axis=-1)
        if self.way == "flush":
            total = np.zeros(terms.shape[:-1], self.dtype)
            for k in range(terms.shape[-1]):
                total = self.flushed(total + self.flushed(terms[..., k]))
            return total
        return np.cumsum(terms, axis=-1, dtype=self.dtype)[..., -1]

    def flushed(self, x: np.ndarray) -> np.ndarray:
        return np.where(np.abs(x) < self.least, np.zeros((), self.dtype), x)


def read_class(readout: Readout, value: float, kind: np.dtype) -> int:
    """The class that an engine names, -1 for none: subtraction and comparisons in floats."""
    y = kind.type(value) - kind.type(readout.offset)
    inside = y >= 0 and y < kind.type(readout.classes) and y == np.floor(y)
    return int(y) if inside else -1


def exact_class(readout: Readout, value: Fraction) -> int:
    y = value - readout.offset
    return int(y) if y.denominator == 1 and 0 <= y < readout.classes else -1


def differences(network: Network, facts: InputFacts, dtype: str, seed: int, count: int = 24) -> str:
    """The first answer of any engine that is not the exact one, in words; empty if there is none."""
    rng = np.random.default_rng(seed)
    rows = draw_rows(facts, rng, count)
    exact = exact_outputs(network, rows)
    arrays: dict[int, np.ndarray] = {}
    for way in WAYS:
        found = Engine(dtype, rng, way, arrays).outputs(network, rows)
        if found.keys() != exact.keys():
            return f"{way}: answers at {len(found)} places, not {len(exact)}"
        for place, numbers in found.items():
            wanted = exact[place]
            if not all(np.isfinite(x) and Fraction(x) == y for x, y in zip(numbers, wanted, strict=True)):
                return f"{way}: {numbers} instead of {[str(x) for x in wanted]} at {place}"
            if network.readout.decode is Decode.VALUE:
                named = read_class(network.readout, numbers[0], np.dtype(dtype))
                if named != exact_class(network.readout, wanted[0]):
                    return f"{way}: class {named} for {wanted[0]} at {place}"
    return ""
