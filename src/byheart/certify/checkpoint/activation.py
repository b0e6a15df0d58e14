"""Activation functions on intervals, as engines evaluate them: in one step, or stored on the way."""

from __future__ import annotations

import math

import numpy as np

from byheart.certify.checkpoint.storage import FUNCTION_ERROR, Array, Interval, Storage, in_float32

SILENT_BELOW = {"silu": -8.0, "gelu": -4.0, "gelu_tanh": -4.0, "relu": 0.0}  # where a unit counts as not fired
LEAST = {
    "silu": (-1.2784645427610738, -0.2784645427610738),
    "gelu": (-0.7517915, -0.1699712),
    "gelu_tanh": (-0.7524614, -0.1700407),
}
TURN = {"silu": (-1.279, -1.278), "gelu": (-0.753, -0.751), "gelu_tanh": (-0.754, -0.751)}  # the minimum lies inside


def value(kind: str, x: Array) -> Array:
    """The function itself, in float64.

    >>> [round(float(value(k, np.array([-0.75]))[0]), 4) for k in ("silu", "gelu", "gelu_tanh", "relu")]
    [-0.2406, -0.17, -0.17, 0.0]
    """
    if kind == "relu":
        return np.maximum(x, 0.0)
    if kind == "silu":
        return x * sigmoid(x)
    if kind == "gelu":
        return 0.5 * x * _erfc(-x / math.sqrt(2))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-np.clip(x, -700, 700)))


def _erfc(x: Array) -> Array:
    return np.vectorize(math.erfc, otypes=[np.float64])(x) if np.size(x) else np.asarray(x, dtype=np.float64)


def slack(kind: str, x: Array) -> Array:
    """Absolute error of one evaluation in float32: relative for silu; for gelu, 1 + erf or 1 + tanh cancels until it
    is exactly 0.
    """
    if kind == "relu":
        return np.zeros_like(x)
    if kind == "silu":
        return FUNCTION_ERROR * np.abs(value(kind, x)) * 2
    exact_from = 8.5 if kind == "gelu" else 6.0  # the argument of erf is beyond 6 there, that of tanh beyond 10
    near = np.where(x > -exact_from, FUNCTION_ERROR * np.abs(x), 0.0)
    return near + 4 * FUNCTION_ERROR * np.abs(value(kind, x)) + np.where(x > 0, FUNCTION_ERROR * np.abs(x), 0.0)


def enclose(kind: str, lo: Array, hi: Array) -> Interval:
    """The range of the function over [lo, hi], evaluated in float32 in one step."""
    at_lo, at_hi = value(kind, lo), value(kind, hi)
    wide = np.maximum(slack(kind, lo), slack(kind, hi))
    low, high = np.minimum(at_lo, at_hi), np.maximum(at_lo, at_hi)
    if kind != "relu":
        turn = TURN[kind]
        low = np.where((lo <= turn[1]) & (hi >= turn[0]), np.minimum(low, LEAST[kind][1] - 1e-6), low)
        wide = np.where(
            (lo < 0) & (hi > -6), np.maximum(wide, FUNCTION_ERROR * np.maximum(np.abs(lo), np.abs(hi))), wide
        )
    return in_float32(low - wide, high + wide)


def tail(kind: str, lo: Array, hi: Array) -> Interval:
    """The range of f(x) - x = f(-x) over [lo, hi]: between minus the largest |f| on the negative side, which falls
    from 1.28 on, and 0.
    """
    below = np.maximum(-lo, 0.0)
    if kind == "relu":
        return np.zeros_like(below), below
    low = np.maximum(lo, 0.0)
    size = np.abs(value(kind, 0.0 - low))  # x - f(x) = -f(-x) for all of these
    size = np.where(low < 1.3, np.maximum(size, 0.2784646), size)
    return np.negative(size) * (1 + 1e-9), below


def largest_below(kind: str, top: Array) -> Array:
    """The largest |f(x)| for x <= top, as float32 computes it."""
    if kind == "relu":
        return np.maximum(top, 0.0)
    turn, least = TURN[kind][0], 1e-6 - LEAST[kind][1]
    falling = np.abs(value(kind, np.minimum(top, 0.0))) + slack(kind, np.minimum(top, 0.0))
    size = np.where(top <= turn, falling, np.maximum(least, np.abs(top)))
    return size * (1 + 1e-9)


def variants(kind: str, lo: Array, hi: Array, store: Storage, stepwise: bool) -> list[Interval]:
    """The activated tensor in each usual way of evaluation: in one step; silu with a stored sigmoid; gelu as a chain
    of tensors that are all stored (`stepwise`). Each is then kept or stored: that is `Storage.maybe`'s matter and
    left to the caller."""
    found = [enclose(kind, lo, hi)]
    if kind == "silu" and store.name != "float32":
        ends = sigmoid(lo), sigmoid(hi)
        gate = store.rounded(*in_float32(ends[0] * (1 - FUNCTION_ERROR), ends[1] * (1 + FUNCTION_ERROR)))
        corners = lo * gate[0], lo * gate[1], hi * gate[0], hi * gate[1]
        found.append(in_float32(np.minimum.reduce(corners), np.maximum.reduce(corners)))
    if stepwise and kind == "gelu_tanh" and store.name != "float32":
        found.append(_chain(lo, hi, store))
    return found


def _chain(lo: Array, hi: Array, store: Storage) -> Interval:
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) as a chain of tensors, every one of which is stored."""

    def kept(low: Array, high: Array) -> Interval:
        return store.rounded(*in_float32(low, high))

    cube = kept(lo**3, hi**3)
    inner = kept(0.044715 * cube[0], 0.044715 * cube[1])
    inner = kept(lo + inner[0], hi + inner[1])
    inner = kept(math.sqrt(2 / math.pi) * inner[0], math.sqrt(2 / math.pi) * inner[1])
    bent = np.tanh(inner[0]), np.tanh(inner[1])
    error = [np.where(np.abs(i) < 10, FUNCTION_ERROR * np.abs(b), 0.0) for i, b in zip(inner, bent, strict=True)]
    bent = store.rounded(np.maximum(bent[0] - error[0], -1.0), np.minimum(bent[1] + error[1], 1.0))
    one = kept(np.maximum(1 + bent[0], 0.0), np.maximum(1 + bent[1], 0.0))
    half = store.rounded(0.5 * lo, 0.5 * hi)
    corners = half[0] * one[0], half[0] * one[1], half[1] * one[0], half[1] * one[1]
    return in_float32(np.minimum.reduce(corners), np.maximum.reduce(corners))
