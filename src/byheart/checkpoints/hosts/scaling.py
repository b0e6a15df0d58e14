"""Rotary frequencies that are scaled for long contexts: linear, Llama 3's, yarn, longrope.

A scaling changes the frequencies from which a head's scores are made (rotary.py), so the scores are designed for the
scaled ones. Yarn and longrope also multiply cos and sin by a factor, which queries are divided by twice.

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
# Within the original positions; frequencies above the first stay, those below the second are slowed.
YARN_TURNS = (32.0, 1.0)
_MOST = 114  # original positions, times 7/4, in which no frequency turns 32 times: the ramp then begins at the first
COMMON = ("linear", "llama3", "yarn")  # what most rotary decoders have
# Longrope divides every frequency by its own number: the fastest one by the first of these, the slowest by the
# second. Also the fast ones change, by which heads look back.
SHORT, LONG = (1.25, 1.75), (1.0, 24.0)


@dataclass(frozen=True)
class FrequencyScaling:
    """One scaling of rotary frequencies, as config.json states it.

    Attributes:
        kind: `linear`, `llama3`, `yarn` or `longrope`.
        factor: By how much the longest wavelengths are stretched; for longrope, how many times the original positions
            there are.
        original: Positions before the scaling (`original_max_position_embeddings`).
        low, high: Llama 3: wavelengths above original/low are stretched, those below original/high are not.
        truncated: Yarn: whether its ramp begins and ends at whole frequencies. None: the key is not stated.
        balanced: Yarn: whether cos and sin keep their size, since scores are multiplied instead (`mscale_all_dim`).
    """

    kind: str
    factor: float
    original: int = 512
    low: float = 1.0
    high: float = 4.0
    truncated: bool | None = None
    balanced: bool = False

    @property
    def magnitude(self) -> float:
        """What cos and sin are multiplied by.

        >>> round(FrequencyScaling("yarn", 4.0).magnitude, 4), FrequencyScaling("llama3", 8.0).magnitude
        (1.1386, 1.0)
        """
        if self.kind == "longrope":
            return math.sqrt(1 + math.log(self.factor) / math.log(self.original))
        return 1.0 if self.balanced else self.score_magnitude

    @property
    def score_magnitude(self) -> float:
        """What queries and keys are multiplied by, each, whether by cos and sin or by the scale of scores."""
        return 0.1 * math.log(self.factor) + 1.0 if self.kind == "yarn" else 1.0

    def scale(self, frequencies: Floats, theta: float) -> Floats:
        """The scaled frequencies; of longrope's, those of texts within the original positions.

        >>> FrequencyScaling("linear", 4.0).scale(np.array([1.0, 0.5]), 1e4).tolist()
        [0.25, 0.125]
        """
        if self.kind == "linear":
            return frequencies / self.factor
        if self.kind == "longrope":
            return np.asarray(frequencies / longrope_factors(len(frequencies), *SHORT))
        if self.kind == "llama3":
            kept = (self.original * frequencies / (2 * np.pi) - self.low) / (self.high - self.low)
        else:
            dims = 2 * len(frequencies)
            low, high = (_turning(turns, dims, theta, self.original) for turns in YARN_TURNS)
            if self.truncated is not False:
                low, high = math.floor(low), math.ceil(high)
            first, last = max(low, 0), min(high, dims - 1)
            kept = 1 - (np.arange(dims // 2, dtype=np.float64) - first) / max(last - first, 0.001)
        share = np.clip(kept, 0.0, 1.0)
        return np.asarray((1 - share) * frequencies / self.factor + share * frequencies)

    def config(self, pairs: int) -> dict[str, Any]:
        """The fields of config.json's `rope_scaling`, for so many rotated pairs of dimensions."""
        found: dict[str, Any] = {"rope_type": self.kind, "factor": self.factor}
        if self.kind == "linear":
            return found
        found["original_max_position_embeddings"] = self.original
        if self.kind == "longrope":  # the factor is the number of positions divided by the original ones
            del found["factor"]
            for name, ends in (("short", SHORT), ("long", LONG)):
                found[f"{name}_factor"] = longrope_factors(pairs, *ends).tolist()
        if self.kind == "llama3":
            return found | {"low_freq_factor": self.low, "high_freq_factor": self.high}
        if self.truncated is not None or self.balanced:
            found |= {"beta_fast": YARN_TURNS[0], "beta_slow": YARN_TURNS[1]}
        found |= {} if self.truncated is None else {"truncate": self.truncated}
        return found | ({"mscale": 1.0, "mscale_all_dim": 1.0} if self.balanced else {})


def longrope_factors(pairs: int, fastest: float, slowest: float) -> Floats:
    """What each frequency is divided by, in even ratios.

    >>> longrope_factors(3, 1.0, 4.0).tolist()
    [1.0, 2.0, 4.0]
    """
    return np.asarray(np.round(fastest * (slowest / fastest) ** (np.arange(pairs) / max(pairs - 1, 1)), 4))


def _turning(turns: float, dims: int, theta: float, original: int) -> float:
    """The dimension whose frequency turns so many times within the original positions."""
    return dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))


SCALINGS = {
    "linear": FrequencyScaling("linear", 2.0),
    "llama3": FrequencyScaling("llama3", 8.0),
    "yarn": FrequencyScaling("yarn", 4.0),
    "longrope": FrequencyScaling("longrope", 4.0),
}


def built_in_yarn(
    reach: int, theta: float, dims: int, *, truncated: bool | None = None, balanced: bool = False
) -> FrequencyScaling:
    """Yarn as an architecture has it: some 32 times the original positions, so that most frequencies are slowed.

    The original positions are chosen so that the ramp ends a little below a whole number. Engines that round it upwards
    (llama.cpp does so always) then compute logits that are a little off, and the same tokens.

    >>> found = built_in_yarn(2048, 1e5, 64, truncated=False)
    >>> found.original, round(found.factor, 2), round(_turning(1.0, 64, 1e5, found.original), 2)
    (54, 37.93, 5.98)
    """
    least = max(min(reach // 42, _MOST), min(48, reach // 3), 1)

    def below(original: int) -> float:
        end = _turning(YARN_TURNS[1], dims, theta, original)
        return (math.ceil(end) - end - 0.01) % 1.0

    original = min(range(least, least * 7 // 4 + 1), key=below)
    return FrequencyScaling("yarn", reach / original, original, truncated=truncated, balanced=balanced)


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
