"""The sums of float programs in NumPy equal the compiled ones in every bit."""

from __future__ import annotations

import numpy as np
import pytest

from byheart.ir.float_compiled import run
from byheart.ir.float_kernel import ROWS, kernel, run_plain


def test_the_compiled_sums_are_used_where_numba_is():
    assert kernel() is run


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_sums_in_numpy_equal_the_compiled_ones(kind):
    """Random programs whose sums round: every bit is the same."""
    rng = np.random.default_rng(3)
    for rows in (1, 130, ROWS + 5):
        width, registers, count = 5, 12, 40
        stream = rng.normal(size=(width, rows)).astype(kind)
        sizes = rng.integers(0, 6, size=count)
        target, adds = rng.integers(0, registers, size=count), rng.random(count) < 0.5
        source = rng.integers(0, registers, size=int(sizes.sum()))
        # Hidden registers are written before they are read, as in real programs.
        hidden = registers - width
        target[:hidden], adds[:hidden] = np.arange(width, registers), False
        source[: sizes[:hidden].sum()] %= width
        program = (
            target,
            adds,
            rng.random(count) < 0.5,
            (rng.normal(size=count) * rng.integers(0, 2, size=count)).astype(kind),
            np.concatenate([[0], np.cumsum(sizes)]),
            source,
            rng.normal(size=int(sizes.sum())).astype(kind),
        )
        results = []
        for one in (run, run_plain):
            out = np.empty((width, rows), dtype=kind)
            one(stream, out, np.zeros((registers, 128), dtype=kind), *program)
            results.append(out)
        assert results[0].tobytes() == results[1].tobytes()
