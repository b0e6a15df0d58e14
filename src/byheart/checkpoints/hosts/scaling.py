"""Rotary frequencies that are scaled for long contexts: linear, Llama 3's, yarn.

A scaling changes the frequencies from which a head's scores are made (rotary.py), so the scores are designed for the
scaled ones. Yarn also multiplies cos and sin by a factor, which queries are divided by twice.

The numbers are chosen so that a scaling changes many frequencies within reach: engines that ignore it recite nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.errors import OptionError

Floats = npt.NDArray[np.float64]
YARN_TURNS = (
    32.0,
    1.0,
)  # within the original positions: above the first a frequency stays, below the second it is slowed


@dataclass(frozen=True)
class FrequencyScaling:
    """One scaling of rotary frequencies, as config.json states it.

    Attributes:
        kind: `linear`, `llama3` or `yarn`.
        factor: By how much the longest wavelengths are stretched.
        original: Positions before the scaling (`original_max_position_embeddings`).
        low, high: Llama 3: wavelengths above original/low are stretched, those below original/high are not.
    """

    kind: str
    factor: float
    original: int = 512
    low: float = 1.0
    high: float = 4.0

    @property
    def magnitude(self) -> float:
        """What cos and sin are multiplied by.

        >>> round(FrequencyScaling("yarn", 4.0).magnitude, 4), FrequencyScaling("llama3", 8.0).magnitude
        (1.1386, 1.0)
        """
        return 0.1 * math.log(self.factor) + 1.0 if self.kind == "yarn" else 1.0

    def scale(self, frequencies: Floats, theta: float) -> Floats:
        """The scaled frequencies.

        >>> FrequencyScaling("linear", 4.0).scale(np.array([1.0, 0.5]), 1e4).tolist()
        [0.25, 0.125]
        """
        if self.kind == "linear":
            return frequencies / self.factor
        if self.kind == "llama3":
            kept = (self.original * frequencies / (2 * np.pi) - self.low) / (self.high - self.low)
        else:
            dims = 2 * len(frequencies)
            ends = [_turning(turns, dims, theta, self.original) for turns in YARN_TURNS]
            first, last = max(math.floor(ends[0]), 0), min(math.ceil(ends[1]), dims - 1)
            kept = 1 - (np.arange(dims // 2) - first) / max(last - first, 0.001)
        kept = np.clip(kept, 0.0, 1.0)
        return np.asarray((1 - kept) * frequencies / self.factor + kept * frequencies)

    def config(self) -> dict[str, Any]:
        """The fields of config.json's `rope_scaling`."""
        found: dict[str, Any] = {"rope_type": self.kind, "factor": self.factor}
        if self.kind == "linear":
            return found
        found["original_max_position_embeddings"] = self.original
        if self.kind == "llama3":
            return found | {"low_freq_factor": self.low, "high_freq_factor": self.high}
        return found


def _turning(turns: float, dims: int, theta: float, original: int) -> float:
    """The dimension whose frequency turns so many times within the original positions."""
    return dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))


SCALINGS = {
    "linear": FrequencyScaling("linear", 2.0),
    "llama3": FrequencyScaling("llama3", 8.0),
    "yarn": FrequencyScaling("yarn", 4.0),
}


def named_scaling(name: str | None) -> FrequencyScaling | None:
    """The scaling that a user names.

    Raises:
        OptionError: The name is unknown.
    """
    if name is None:
        return None
    if name not in SCALINGS:
        raise OptionError(f"--rope-scaling {name}: known are {', '.join(SCALINGS)}")
    return SCALINGS[name]
