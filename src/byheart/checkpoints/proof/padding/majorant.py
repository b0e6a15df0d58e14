"""Bounds of what an MLP's units add up to, over all mixtures of symbols: the worst ones are single symbols."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.bounds import interval_product, magnitude
from byheart.checkpoints.proof.config import Shape
from byheart.checkpoints.proof.decoder import Expert, Linear
from byheart.checkpoints.proof.padding.scaled import ScaledVector
from byheart.checkpoints.proof.storage import Array, Interval, Storage
from byheart.checkpoints.proof.units import enclose

LOOSE = 1 + 2.0**-4  # relative: roundings of a product and of its activation
CELLS = 16  # of a pre-activation, in which its product is bounded


@dataclass(frozen=True)
class Majorant:
    """Bounds of |act(g) up| by M(g), convex and increasing in the pre-activation g of each unit.

    up = alpha g + w with w in omega, |w| <= |omega|. For g >= 0, |act(g)| <= g. For g < 0, |act(g)| <= |g| e^g for all
    activations, so |act(g) up| <= (16 |alpha| / e^2 + 2 |omega| / e) e^(g/2). With B for the bracket,

        M(g) = B e^(min(g, 0) / 2) + B max(g, 0) / 2 + alpha max(g, 0)^2 + omega max(g, 0) + floor

    bounds act(g) up from above with alpha and omega replaced by what is positive of them, and -act(g) up (`negative`)
    with what is positive of -alpha and -omega.
    """

    gate: ScaledVector
    alpha: Array
    omega: Interval
    tail: Array
    floor: Array
    limit: Array  # of every product, whatever g is
    kind: str
    up: Interval | None  # of every unit's other factor
    clamp: float | None
    negative: bool  # bounds what is below zero instead
    store: Storage

    @classmethod
    def of(
        cls, expert: Expert, gate: ScaledVector, up: ScaledVector | None, mapped: Callable[[Linear], ScaledVector],
        shape: Shape, store: Storage,
    ) -> Majorant:  # fmt: skip
        """Of the units of an expert, whose gate and up are known; `mapped` gives any other linear map of the input."""
        count, clamp = len(expert.gate.weight), shape.clamp
        alpha, omega, second = np.zeros(count), (np.ones(count), np.ones(count)), None
        if up is not None and clamp is not None:
            second = np.clip(up.hull[0], -clamp, clamp) + 1, np.clip(up.hull[1], -clamp, clamp) + 1
            omega = second
        elif up is not None and expert.up is not None:
            second = up.hull
            norm = np.maximum((expert.gate.weight**2).sum(1), 1e-300)
            alpha = (expert.gate.weight * expert.up.weight).sum(1) / norm
            bias = np.zeros(count) if expert.up.bias is None else expert.up.bias
            bias = bias if expert.gate.bias is None else bias - alpha * expert.gate.bias
            rest = mapped(Linear(expert.up.name, expert.up.weight - alpha[:, None] * expert.gate.weight, bias)).hull
            wide = up.off + np.abs(alpha) * gate.off
            omega = rest[0] - wide, rest[1] + wide
        size = np.ones(count) if second is None else magnitude(*second)
        quiet = shape.activation == "relu"
        tail = (16 / np.e**2 * np.abs(alpha) + 2 / np.e * magnitude(*omega)) * (not quiet)
        floor = rounding.padding_floor(size, store, shape.stepwise) * (not quiet)
        top = gate.hull[1] if clamp is None else np.minimum(gate.hull[1], clamp)
        limit = np.maximum(top, 0.0 if quiet else 0.2785) * size * LOOSE + floor
        return cls(gate, alpha, omega, tail, floor, limit, shape.activation, second, clamp, False, store)

    def __call__(self, g: Array) -> Array:
        above, below = np.maximum(g, 0.0), np.minimum(g, 0.0)
        alpha, omega = (-self.alpha, -self.omega[0]) if self.negative else (self.alpha, self.omega[1])
        found = self.tail * (np.exp(below / 2) + above / 2)
        found = found + (np.maximum(alpha, 0.0) * above + np.maximum(omega, 0.0)) * above
        return found * LOOSE + self.floor

    def products(self) -> Interval:
        """The range of act(g) up of every unit; up = alpha g + w is followed along g."""
        least, most = self.clamped(self.gate.hull)
        low, high = np.full(len(least), np.inf), np.full(len(least), -np.inf)
        for cell in range(CELLS):
            g = least + (most - least) * (cell / CELLS), least + (most - least) * ((cell + 1) / CELLS)
            ends = enclose(self.kind, *g)
            if self.up is not None:
                up = self.up
                if self.clamp is None:
                    near = interval_product((self.alpha, self.alpha), g)
                    up = np.maximum(up[0], near[0] + self.omega[0]), np.minimum(up[1], near[1] + self.omega[1])
                ends = interval_product(ends, up)
            low, high = np.minimum(low, ends[0]), np.maximum(high, ends[1])
        slack = rounding.padding_stores(4, magnitude(low, high), self.store) + self.floor
        return np.maximum(low - slack, -self.limit), np.minimum(high + slack, self.limit)

    def clamped(self, gate: Interval) -> Interval:
        return gate if self.clamp is None else (np.minimum(gate[0], self.clamp), np.minimum(gate[1], self.clamp))

    def box(self) -> Array:
        """The largest product of every unit; a cap would not be convex, so it is used here alone."""
        return np.minimum(self(self.gate.hull[1]), self.limit)

    def summed(self, weight: Array) -> Array:
        """Bounds of sum |weight| M(g) over the units, for every row of `weight` (rows, units), over all mixtures and
        factors: the worst symbols at an end of the factor."""
        used = np.flatnonzero(weight.any(0))
        if not len(used):
            return np.zeros(len(weight))
        w, found, boxed = weight[:, used], np.zeros(len(weight)), weight @ self.box()
        for factor in dict.fromkeys(self.gate.factor):
            tables = list(self._tables(factor, used))
            top = self._ends(factor, used) + sum(t.max(0) for t in tables)
            best = w @ self._at(top, used)
            for table in tables:  # one symbol is chosen, all others are the best for every unit
                rest = top - table.max(0)
                best = np.minimum(best, (self._at(rest + table, used) @ w.T).max(0))
            best = np.minimum(best, self._by_windows(top, tables, used, w))
            found = np.maximum(found, best)
        return np.minimum(found, boxed)

    def _ends(self, factor: float, used: Array) -> Array:
        high = self.gate.plain.hi[used]
        if self.gate.drift is not None:
            high = high + np.abs(self.gate.drift[used])
        return factor * high + (self.gate.shift + self.gate.off)[used]

    def _tables(self, factor: float, used: Array) -> Iterator[Array]:
        for part in self.gate.plain.parts:
            whole = np.zeros((len(part.hi), self.gate.plain.size))
            whole[:, part.channels] = factor * part.hi
            if whole[:, used].any():
                yield whole[:, used]

    def _at(self, g: Array, used: Array) -> Array:
        omega = self.omega[0][used], self.omega[1][used]
        some = replace(self, alpha=self.alpha[used], omega=omega, tail=self.tail[used], floor=self.floor[used])
        return some(g)

    def _by_windows(self, top: Array, tables: list[Array], used: Array, weight: Array) -> Array:
        """A unit that needs the best symbol of some parts is quiet where one of them is another symbol. Units with the
        same needs fire together only if all these symbols are the same."""
        highest = self._at(top, used)
        needs = np.zeros((len(used), len(tables)), dtype=bool)
        symbols, quiet = np.zeros(needs.shape, dtype=int), np.zeros(len(used))
        for k, table in enumerate(tables):
            order = np.sort(table, axis=0)[-2:]
            missed = self._at(top - (order[-1] - order[0]), used)
            symbols[:, k] = table.argmax(0)
            needs[:, k] = missed <= 2.0**-6 * highest
            quiet = np.where(needs[:, k], np.maximum(quiet, missed), quiet)
        quiet = np.where(needs.any(1), quiet, highest)
        total = weight @ quiet
        loud = highest - quiet
        for mask in np.unique(needs[needs.any(1)], axis=0):
            units = np.flatnonzero((needs == mask).all(1))
            _, which = np.unique(symbols[np.ix_(units, np.flatnonzero(mask))], axis=0, return_inverse=True)
            which = which.reshape(-1)
            groups = np.zeros((which.max() + 1, len(weight)))
            np.add.at(groups, which, (weight[:, units] * loud[units]).T)
            total = total + groups.max(0)
        return total
