"""The error model: what an engine may do to a number, and how the proof encloses it.

A checkpoint is run by engines that differ in kernels, fusions and the order of sums. The proof holds for each engine
that keeps to these rules, which `ERROR_MODEL` prints:

- *Tensors.* Every tensor of the file is converted to the type once, to nearest.
- *Sums.* Products and sums inside one operation are accumulated in float32, in any order and any grouping, with or
  without fused multiply-add: the error is at most gamma_n = n u / (1 - n u), u = 2^-24, times the sum of absolute
  values, n the number of terms that are not zero; where one of two addends is small, adding errs by at most that
  addend.
- *Stores.* A tensor between two operations is kept in float32 or rounded to the type, to nearest. An engine rounds
  all normed streams, or none of them; both kinds are proved. Every other place may do either, and different places
  may do different things: `Storage.maybe` encloses both; but an engine that keeps normed streams in float32 keeps
  values and the tensors inside an MLP too, and gate and up are treated alike. Rounding is monotone, so the ends of an
  interval are rounded, and a narrow interval around a representable number snaps to it.
- *Functions.* exp, sigmoid, rsqrt, tanh, erf: relative error of at most 2^-20 in float32; tanh is +-1 from 10 on, erf
  from 6 on; cos and sin: absolute error of at most 2^-22 at the angle that float32 holds; inverse frequencies:
  relative error of at most 2^-22.

The checker itself computes in float64; its own rounding is swallowed by the terms for float32, which are 2^29 times
larger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.slack import term
from byheart.errors import OptionError

U32 = 2.0**-24
FUNCTION_ERROR = 2.0**-20  # relative, of exp, sigmoid, rsqrt, tanh, erf
TRIG_ERROR = 2.0**-22  # absolute, of cos and sin at a float32 angle
FREQUENCY_ERROR = 2.0**-22  # relative, of an inverse frequency
UNDERFLOW = 2.0**-126  # absolute, of a product in float32 that is flushed to zero
OWN = 2.0**-48  # relative: what the checker's own float64 operations may lose where no float32 term covers them

ERROR_MODEL = (
    "every tensor of the file is converted to the type once, to nearest",
    "sums inside one operation: float32, any order, error at most n u / (1 - n u) times the sum of absolute values,"
    " u = 2^-24",
    "normed streams: an engine rounds all of them to the type (before the norm's weight, after it, or both), or keeps"
    " all of them in float32",
    "other tensors between operations: kept in float32 or rounded to the type, to nearest, each place either way;"
    " inside an MLP and among values of attention only where normed streams are rounded, gate and up alike",
    "exp, sigmoid, rsqrt, tanh, erf: relative error at most 2^-20 in float32, tanh is +-1 from 10 on, erf from 6 on;"
    " silu and gelu in one step, or stored after sigmoid and after the product; GPT-2's gelu_new also as a chain of"
    " tensors that are all stored",
    "a router's softmax and the division by the sum of the chosen weights: float32; the weights are then kept or"
    " rounded",
    "rotary positions: inverse frequencies within 2^-22, plus ln(theta) 2^-25 unless a power of two dimensions rotate;"
    " angles rounded to float32, cos and sin within 2^-22 and possibly stored",
    "attention with sinks: scores minus the largest of them and of the sink may be stored",
    "latent attention: keys and values expanded from latents; or queries multiplied by the keys' projection, stored,"
    " and latents mixed, stored, and projected",
    "sigmoid routers: scores in float32, then kept or rounded, with and without the correction; sums of two; weights",
    "Gemma's embeddings times the root of the hidden size: in float32, then kept or stored; or root and product both"
    " rounded to the type",
    "every sum, score, square and stored value is shown to be finite in its type, also where nothing reads it",
    "padded batches, where the result of a type states them: rows of padding are finite in every layer, whatever they"
    " attend to; recurrent layers clear them",
    "quantized weights: decoded before the product, in any type; every scale and every decoded weight is representable"
    " in float32, bfloat16 and float16",
    "not covered: other rounding modes, sums in a narrower type, quantized activations, sums of codes that are scaled"
    " afterwards, overflow traps",
)

Array: TypeAlias = Any  # numpy arrays; numpy's own types lose track of themselves in arithmetic
Interval = tuple[Array, Array]


def _to_float32(x: Array) -> Array:
    return np.asarray(x).astype(np.float32).astype(np.float64)


def _to_float16(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(x).astype(np.float16).astype(np.float64)


def _to_bfloat16(x: Array) -> Array:
    """To nearest, ties to even. From float64 directly, because rounding twice may be wrong.

    >>> _to_bfloat16(np.array([1.0, 1 + 2**-8, 1 + 2**-8 + 2**-40, 0.3])).tolist()
    [1.0, 1.0, 1.0078125, 0.30078125]
    """
    bits = np.ascontiguousarray(x, dtype=np.float64).view(np.int64)
    half = np.int64(1) << 44  # float64 has 45 bits more than bfloat16
    rounded = (bits + (half - 1) + ((bits >> 45) & 1)) & ~((np.int64(1) << 45) - 1)
    result = rounded.view(np.float64)
    small = np.abs(result) < 2.0**-125
    if small.any():  # below the normal range the spacing stays
        result = np.where(small, np.rint(np.asarray(x) * 2.0**133) * 2.0**-133, result)
    large = np.abs(result) > 3.3895313892515355e38
    return np.where(large, np.copysign(np.inf, result), result) if large.any() else result


@dataclass(frozen=True)
class Storage:
    """A number type in which an engine may keep tensors between operations.

    >>> lo, hi = storage("bfloat16").maybe(np.array([0.9999]), np.array([1.0001]))
    >>> 0.9998 < float(lo[0]) < 0.9999 and float(hi[0]) < 1.00011    # kept, or rounded to exactly 1
    True
    >>> [float(x[0]) for x in storage("bfloat16").rounded(np.array([0.9999]), np.array([1.0001]))]
    [1.0, 1.0]
    """

    name: str
    unit: float  # largest relative error of a store
    tiny: float  # largest absolute error of a store below the normal range
    largest: float  # largest finite number
    nearest: Callable[[Array], Array]

    def rounded(self, lo: Array, hi: Array) -> Interval:
        """Certainly stored in the type."""
        return self.nearest(lo), self.nearest(hi)

    def maybe(self, lo: Array, hi: Array) -> Interval:
        """Kept in float32, or stored in the type."""
        lo, hi = in_float32(lo, hi)
        low, high = self.nearest(lo), self.nearest(hi)
        return np.minimum(lo, low), np.maximum(hi, high)


def in_float32(lo: Array, hi: Array) -> Interval:
    """One rounding in float32: the ends move by one unit, zero stays (flushing to zero is allowed)."""
    slack = term("rounding in float32", 2 * U32)
    lo, hi = lo - slack * np.abs(lo), hi + slack * np.abs(hi)
    # Below the normal range a result is flushed to zero, or rounded to a multiple of 2^-149.
    small, step = term("underflow in float32", UNDERFLOW), term("underflow in float32", 2.0**-149)
    lo = np.where((lo > 0) & (lo < small), 0.0, np.where((lo < 0) & (lo > -small), lo - step, lo))
    return lo, np.where((hi < 0) & (hi > -small), 0.0, np.where((hi > 0) & (hi < small), hi + step, hi))


FLOAT32_LARGEST = (2 - 2.0**-23) * 2.0**127


def finite(place: str, size: Array, largest: float = FLOAT32_LARGEST) -> None:
    """Refuse magnitudes that may leave the range of a type, also where nothing reads them: inf * 0 is NaN.

    `size` bounds the exact values; 2^-6 of the range is kept for the roundings before the store (2^-8 in bfloat16).

    >>> finite("a score", np.array([100.0]), 65504.0)
    >>> finite("a score", np.array([65000.0]), 65504.0)
    Traceback (most recent call last):
    byheart.checkpoints.proof.config.Undecided: a score may reach 65000, beyond the range up to 65504
    """
    worst = float(np.max(size, initial=0.0))
    if not worst <= largest * (1 - 2.0**-6):
        raise Undecided(f"{place} may reach {worst:.5g}, beyond the range up to {largest:.5g}")


STORAGES = {
    "float32": Storage("float32", 2.0**-24, 2.0**-150, FLOAT32_LARGEST, _to_float32),
    "bfloat16": Storage("bfloat16", 2.0**-8, 2.0**-134, 255 * 2.0**120, _to_bfloat16),
    "float16": Storage("float16", 2.0**-11, 2.0**-25, 65504.0, _to_float16),
}


def storage(name: str) -> Storage:
    if name not in STORAGES:
        raise OptionError(f"unknown type {name!r}; known: {', '.join(STORAGES)}")
    return STORAGES[name]


def gamma(terms: Array | float) -> Array:
    """n u / (1 - n u) for sums of n products in float32, in any order; one more for the last rounding."""
    n = (np.asarray(terms, dtype=np.float64) + 1) * U32
    return n / (1 - np.minimum(n, 0.5))
