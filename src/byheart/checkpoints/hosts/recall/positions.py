"""Rotary frequencies with their scaling, and which two dimensions of a head turn together.

A dimension that is not rotated counts as half of a pair of frequency 0, so that heads with a rotary share (GPT-NeoX) and
heads without rotation (GPT-2) use the same design.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.errors import OptionError

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

LLAMA_3_1: Mapping[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def yarn(factor: float, original: int) -> dict[str, Any]:
    """Return the fields of a YaRN scaling from `original` positions."""
    return {"rope_type": "yarn", "factor": float(factor), "original_max_position_embeddings": original}


@dataclass(frozen=True, eq=False)
class HeadRotation:
    """How a head's dimensions turn: pair j is (real[j], imaginary[j]) and turns by frequencies[j] per position.

    `gain` multiplies cosines and sines (YaRN); `rotated` is the number of pairs that turn, the first ones.
    """

    head_dim: int
    frequencies: Floats
    real: Index
    imaginary: Index
    rotated: int
    gain: float = 1.0


def head_rotation(
    head_dim: int, theta: float | None, scaling: Mapping[str, Any] | None = None, share: float = 1.0
) -> HeadRotation:
    """Return the rotation of a head.

    Args:
        head_dim: dimensions of the head.
        theta: base of the frequencies; None where nothing is rotated.
        scaling: fields of `rope_parameters` such as LLAMA_3_1; None for plain frequencies.
        share: the part of the dimensions that is rotated.

    Raises:
        OptionError: a scaling that is not known.

    >>> head_rotation(8, 1e4).frequencies.round(4).tolist()
    [1.0, 0.1, 0.01, 0.001]
    >>> head_rotation(8, 1e4, share=0.5).frequencies.tolist()
    [1.0, 0.01, 0.0, 0.0]
    """
    dims = 0 if theta is None else int(head_dim * share)
    half, rest = dims // 2, np.arange(dims, head_dim)
    plain = np.zeros(0) if theta is None else np.asarray(theta ** (-2.0 * np.arange(half) / dims))
    turned, gain = scaled(plain, theta or 1.0, dims, scaling)
    return HeadRotation(
        head_dim,
        np.concatenate([turned, np.zeros(len(rest) // 2)]),
        np.concatenate([np.arange(half), rest[0::2]]).astype(np.int64),
        np.concatenate([np.arange(half) + half, rest[1::2]]).astype(np.int64),
        half,
        gain,
    )


def scaled(base: Floats, theta: float, dims: int, scaling: Mapping[str, Any] | None) -> tuple[Floats, float]:
    """Return frequencies after a scaling as Transformers computes it, and the factor of cosines and sines."""
    if scaling is None:
        return base, 1.0
    kind, factor = scaling.get("rope_type"), float(scaling.get("factor", 1.0))
    if kind == "linear":
        return base / factor, 1.0
    if kind == "llama3":
        old = scaling["original_max_position_embeddings"]
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        wave = 2 * math.pi / base
        smooth = (old / wave - low) / (high - low)
        mixed = (1 - smooth) * base / factor + smooth * base
        return np.where(wave < old / high, base, np.where(wave > old / low, base / factor, mixed)), 1.0
    if kind == "yarn":
        old = scaling["original_max_position_embeddings"]

        def dimension(turns: float) -> float:
            return dims * math.log(old / (turns * 2 * math.pi)) / (2 * math.log(theta))

        low, high = max(math.floor(dimension(32)), 0), min(math.ceil(dimension(1)), dims - 1)
        ramp = np.clip((np.arange(len(base)) - low) / max(high - low, 0.001), 0, 1)
        gain = 0.1 * math.log(factor) + 1 if factor > 1 else 1.0
        return base / factor * ramp + base * (1 - ramp), gain
    raise OptionError(f"recall: rope scaling {kind!r} is not one of linear, llama3, yarn")
