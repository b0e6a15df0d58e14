"""How the least size grows: least squares with a bootstrapped confidence, for √N, for N and for log n.

>>> fit = fit_growth([100, 400, 900, 1600], [11, 21, 31, 41], "root")
>>> round(fit.slope, 6), round(fit.offset, 6), round(fit.explained, 6)
(1.0, 1.0, 1.0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byheart.errors import OptionError

Array = npt.NDArray[np.float64]
SCALES: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "root": ("√N", np.sqrt),
    "linear": ("N", lambda x: x),
    "logarithm": ("log10 n", np.log10),
}
_RESAMPLES = 2000


@dataclass(frozen=True)
class Fit:
    """size ≈ offset + slope·g(x). `explained`: the share of the variance (R²); slopes: 95 % of the bootstrap."""

    scale: str
    slope: float
    offset: float
    explained: float
    slopes: tuple[float, float]
    draws: tuple[tuple[float, float], ...]  # (offset, slope) of resamples, for a band

    @property
    def label(self) -> str:
        name = SCALES[self.scale][0]
        if abs(self.slope) < 1e-9:
            return f"{self.offset:.3g}, whatever {name[-1]}"
        return f"{self.offset:.2g} + {self.slope:.3g}·{name}, R² = {self.explained:.2f}"

    def at(self, x: Sequence[float]) -> Array:
        return self.offset + self.slope * SCALES[self.scale][1](np.asarray(x, dtype=float))

    def band(self, x: Sequence[float]) -> tuple[Array, Array]:
        """Between these lie 95 % of the resampled fits."""
        g = SCALES[self.scale][1](np.asarray(x, dtype=float))
        lines = np.array([offset + slope * g for offset, slope in self.draws])
        low, high = np.percentile(lines, [2.5, 97.5], axis=0)
        return low, high


def fit_growth(x: Sequence[float], y: Sequence[float], scale: str, seed: int = 0) -> Fit:
    """The least-squares line of y against g(x); needs two different x."""
    if scale not in SCALES:
        raise OptionError(f"unknown scale {scale!r}; known: {', '.join(SCALES)}")
    places, values = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    g = SCALES[scale][1](places)
    if len(np.unique(g)) < 2:
        raise OptionError("a fit needs at least two different x")
    offset, slope = _line(g, values)
    spread = float(((values - values.mean()) ** 2).sum())
    rest = float(((values - offset - slope * g) ** 2).sum())
    draws = _bootstrap(g, values, seed)
    low, high = np.percentile([slope for _, slope in draws], [2.5, 97.5])
    explained = 1.0 if rest < 1e-12 else (1 - rest / spread if spread else 0.0)
    return Fit(scale, slope, offset, explained, (float(low), float(high)), draws)


def _bootstrap(g: Array, values: Array, seed: int) -> tuple[tuple[float, float], ...]:
    draw = np.random.default_rng(seed)
    found: list[tuple[float, float]] = []
    while len(found) < _RESAMPLES:
        pick = draw.integers(len(g), size=len(g))
        if len(np.unique(g[pick])) > 1:
            found.append(_line(g[pick], values[pick]))
    return tuple(found)


def _line(g: Array, values: Array) -> tuple[float, float]:
    centre = g - g.mean()
    slope = float(centre @ values / (centre @ centre))
    return float(values.mean() - slope * g.mean()), slope
