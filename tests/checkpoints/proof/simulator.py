"""An engine that is free to round as the error model allows: every order of sums, stored or not, errors of one sign."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from byheart.checkpoints.proof.storage import FUNCTION_ERROR, TRIG_ERROR, U32, Storage, storage

Array = np.ndarray


@dataclass
class Engine:
    """Float64 arrays represent an engine's numbers. `lean`: every error has this sign; 0: signs are drawn."""

    rng: np.random.Generator
    store: Storage
    lean: float = 0.0

    def error(self, shape: tuple[int, ...], size: float) -> Array:
        signs = self.rng.choice([-1.0, 1.0], shape) if self.lean == 0 else self.lean
        return np.asarray(signs * size * (1 - 2.0**-20) * self.rng.choice([1.0, 1.0, 0.5, 0.0], shape))

    def float32(self, x: Array) -> Array:
        """One operation's result: rounded, or flushed to zero."""
        x = np.asarray(x, dtype=float)
        flushed = (np.abs(x) < 2.0**-126) & (self.rng.random(x.shape) < 0.5)
        return np.where(flushed, 0.0, x * (1 + self.error(x.shape, U32)))

    def stored(self, x: Array) -> Array:
        return np.asarray(self.store.nearest(np.atleast_1d(self.float32(x)))).reshape(np.shape(x))

    def maybe(self, x: Array) -> Array:
        """Kept or stored, the whole tensor one way."""
        return self.stored(x) if self.rng.random() < 0.5 else self.float32(x)

    def function(self, x: Array) -> Array:
        """What exp, a sigmoid or rsqrt returned for an exact result x."""
        return np.asarray(x * (1 + self.error(np.shape(x), FUNCTION_ERROR)))

    def sum(self, terms: Array) -> Array:
        """Over the last axis, in a drawn order; the largest first in some engines, so that partial sums are large."""
        last = terms.shape[-1]
        order = np.argsort(-np.abs(terms).reshape(-1, last).max(0)) if self.rng.random() < 0.5 else np.arange(last)
        order = order if self.rng.random() < 0.5 else self.rng.permutation(last)
        total = np.zeros(terms.shape[:-1])
        for number, index in enumerate(order):
            total = self.float32(total + terms[..., index]) if number else terms[..., index]
        return np.asarray(total)

    def linear(self, weight: Array, x: Array, bias: Array | None = None) -> Array:
        """weight x + bias for one vector, before any store."""
        found = self.sum(self.float32(weight * x)) if weight.shape[-1] else np.zeros(len(weight))
        return found if bias is None else self.float32(found + bias)

    def mean_square(self, x: Array) -> Array:
        return self.float32(self.sum(self.float32(x * x)) / x.shape[-1])

    def rms(self, x: Array, weight: Array, eps: float, stored: bool) -> Array:
        """RMSNorm over the last axis; a stored stream is rounded before the weight, after it, or both."""
        factor = self.function(1 / np.sqrt(self.float32(self.mean_square(x) + self.float32(np.asarray(eps)))))
        y = self.float32(x * factor[..., None])
        when = int(self.rng.integers(3))
        y = self.stored(y) if stored and when != 1 else y
        y = self.float32(y * weight)
        return self.stored(y) if stored and when != 0 else y

    def turned(self, x: Array, angle: Array) -> Array:
        """Pairs (first half, second half) turned by angles, whose cosines, products and sums may be stored."""
        half = len(angle)
        cos, sin = (self.maybe(f(angle) + self.error(angle.shape, TRIG_ERROR)) for f in (np.cos, np.sin))
        a, b = x[:half], x[half : 2 * half]
        first = self.maybe(self.maybe(a * cos) - self.maybe(b * sin))
        second = self.maybe(self.maybe(b * cos) + self.maybe(a * sin))
        return np.concatenate([first, second, x[2 * half :]])

    def softmax(self, scores: Array) -> Array:
        parts = self.function(np.exp(scores - scores.max(-1, keepdims=True)))
        return self.maybe(self.function(parts / self.sum(parts)[..., None]))


def engines(seed: int, count: int, types: tuple[str, ...] = ("bfloat16", "float16", "float32")) -> Iterator[Engine]:
    """Engines of every type, with errors of either sign and of drawn signs."""
    rng = np.random.default_rng([41, seed])
    for number in range(count):
        yield Engine(rng, storage(types[number % len(types)]), (-1.0, 0.0, 1.0)[number // len(types) % 3])
