"""Lines through measured sizes: what is explained, and how sure the slope is."""

from __future__ import annotations

import numpy as np
import pytest

from byheart.errors import OptionError
from byheart.lab.results import fit_growth


def test_a_line_is_found_and_explains_everything():
    fit = fit_growth([1, 4, 9, 16], [5, 7, 9, 11], "root")
    assert (fit.slope, fit.offset, fit.explained) == (pytest.approx(2), pytest.approx(3), 1.0)
    assert fit.slopes == (pytest.approx(2), pytest.approx(2))
    assert fit.at([25]).tolist() == pytest.approx([13])


def test_scatter_is_not_explained_and_widens_the_band():
    """R² is the squared correlation; 95 % of the resampled lines lie in the band, some two standard errors wide."""
    draw = np.random.default_rng(0)
    x = np.arange(1, 41, dtype=float)
    y = 3 + 2 * x + draw.normal(0, 20, len(x))
    fit = fit_growth(x.tolist(), y.tolist(), "linear")
    assert fit.explained == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2)
    error = 20 / (np.std(x) * len(x) ** 0.5)
    low, high = fit.slopes
    assert 3 * error < high - low < 5 * error and low < 2 < high
    below, above = fit.band([20.5])
    middle = 20 / len(x) ** 0.5
    assert 3 * middle < above[0] - below[0] < 5 * middle


def test_what_cannot_be_fitted_is_refused():
    with pytest.raises(OptionError, match="two different x"):
        fit_growth([3, 3], [1, 2], "root")
    with pytest.raises(OptionError, match="unknown scale"):
        fit_growth([1, 2], [1, 2], "cubic")
