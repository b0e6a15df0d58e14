"""The sums of a flat float program, compiled."""

from __future__ import annotations

from typing import Any

from byheart.exact.compiled import compiled


@compiled
def run(
    stream: Any, out: Any, held: Any, target: Any, adds: Any, relu: Any, bias: Any, terms: Any, source: Any, weight: Any
) -> None:  # pragma: no cover - compiled
    """Evaluate all sums, as `float_kernel.run_plain`."""
    lanes, rows = held.shape[1], stream.shape[1]
    zero = bias.dtype.type(0)
    for first in range(0, rows, lanes):
        count = min(lanes, rows - first)
        for k in range(stream.shape[0]):
            held[k, :count] = stream[k, first : first + count]
        for i in range(target.shape[0]):
            total = held[target[i]]
            if not adds[i]:
                total[:] = bias[i]
            for t in range(terms[i], terms[i + 1]):
                read, factor = held[source[t]], weight[t]
                for j in range(lanes):
                    total[j] += factor * read[j]
            if adds[i] and bias[i] != zero:
                for j in range(lanes):
                    total[j] += bias[i]
            if relu[i]:
                for j in range(lanes):
                    total[j] = max(total[j], zero)
        for k in range(out.shape[0]):
            out[k, first : first + count] = held[k, :count]
