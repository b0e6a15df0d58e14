"""The sums of a flat float program, for one group of rows after the other: compiled, or in NumPy without numba.

Both do the same operations in the same order, one rounding per product and per sum, so they are equal in every bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from byheart.exact.compiled import has_numba

ROWS = 4096  # per pass over the program, so that NumPy's cost per operation is spread; registers stay small


Kernel: TypeAlias = Callable[..., None]


@cache
def kernel() -> Kernel:
    """Return the compiled sums, or the ones in NumPy where numba is not installed."""
    if not has_numba():
        return run_plain
    from byheart.ir.float_compiled import run

    found: Kernel = run
    return found


def run_plain(
    stream: Any, out: Any, held: Any, target: Any, adds: Any, relu: Any, bias: Any, terms: Any, source: Any, weight: Any
) -> None:
    """Evaluate all sums; `held` are the registers, as for the compiled ones.

    Args:
        stream: The inputs, (width, rows).
        out: The results, written.
        held: The registers, (registers, lanes); only their number counts here.
        target: The register of each sum.
        adds: Whether the sum is added to its register.
        relu: Whether the result is clipped at zero.
        bias: The number that each sum begins or ends with.
        terms: Where each sum's terms begin and end.
        source: The register of each term.
        weight: The factor of each term.
    """
    rows = stream.shape[1]
    lanes = min(rows, ROWS)
    held = np.zeros((len(held), lanes), dtype=held.dtype)
    zero = bias.dtype.type(0)
    for first in range(0, rows, lanes):
        count = min(lanes, rows - first)
        held[: stream.shape[0], :count] = stream[:, first : first + count]
        for i in range(target.shape[0]):
            total = held[target[i]]
            if not adds[i]:
                total[:] = bias[i]
            for t in range(terms[i], terms[i + 1]):
                total += weight[t] * held[source[t]]
            if adds[i] and bias[i] != zero:
                total += bias[i]
            if relu[i]:
                # Not `maximum`, which could turn -0.0 into 0.0; the compiled sums keep it.
                total[total < zero] = zero
        out[:, first : first + count] = held[: out.shape[0], :count]
