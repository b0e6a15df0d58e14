"""The rows of a comparison, as values: built and certified, predicted, refused by an assumption, or a baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from byheart.notebook import card

SIZES = ("parameters", "nonzero", "max_bits", "total_bits", "width", "depth", "blocks", "attention_layers")


@dataclass(frozen=True)
class CompareRow:
    """One construction on one data set.

    verdict: proved, refuted or undecided for a built network; predicted where its formula replaces it; assumption
    where what the theorem assumes about the data fails (`rows` are the offending rows of the data); not applicable or
    not built where the construction refuses such data (`reason`); failed; baseline; trained.
    Sizes are None where nothing is known.
    """

    construction: str
    verdict: str
    reason: str
    theorem: str = ""
    summary: str = ""
    parameters: int | None = None
    nonzero: int | None = None
    max_bits: int | None = None
    total_bits: int | None = None
    width: int | None = None
    depth: int | None = None
    blocks: int | None = None
    attention_layers: int | None = None
    embedding_parameters: int | None = None
    guaranteed: dict[str, int] = field(default_factory=dict)
    build_seconds: float | None = None
    certify_seconds: float | None = None
    arithmetic: str = ""
    notes: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    assumption: str = ""
    rows: tuple[int, ...] = ()

    @property
    def built(self) -> bool:
        return self.verdict in ("proved", "refuted", "undecided")

    @property
    def waived(self) -> tuple[str, ...]:
        """Notes about assumptions of the theorem that fail on the data and were not needed."""
        from byheart.build import NOT_ASSUMED

        return tuple(note for note in self.notes if note.startswith(NOT_ASSUMED))

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


@dataclass(frozen=True)
class Floor:
    """The worst-case lower bound for that many rows, with the theorem it comes from and what it assumes."""

    name: str
    quantity: str
    value: int
    theorem: str
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """All rows for one data set, and the bounds underneath."""

    task: str
    positions: bool
    N: int
    n: int
    d: int
    C: int
    contexts: int
    rows: tuple[CompareRow, ...]
    floors: tuple[Floor, ...]
    lower: tuple[str, ...] = ()  # sentences about what is needed, the same as for a single memory

    def row(self, construction: str) -> CompareRow:
        return next(row for row in self.rows if row.construction == construction)

    @property
    def all_proved(self) -> bool:
        """No network that was built failed its certificate."""
        return not any(row.verdict in ("refuted", "undecided", "failed") for row in self.rows)

    def _repr_html_(self) -> str:
        """What a notebook shows: the rows, and the sentences about what is needed."""
        shown = ("construction", "verdict", "parameters", "nonzero", "max_bits", "total_bits", "depth", "width")
        return card(
            f"{self.N:,} rows of {self.n} tokens, {self.C:,} classes: {len(self.rows)} ways",
            [("task", self.task)],
            columns=[name.replace("_", " ") for name in shown],
            rows=[[getattr(row, name) for name in shown] for row in self.rows],
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            **{name: getattr(self, name) for name in ("task", "positions", "N", "n", "d", "C", "contexts")},
            "rows": [row.as_dict() for row in self.rows],
            "bounds": [asdict(floor) for floor in self.floors],
            "lower": list(self.lower),
        }


def csv_table(comparisons: Sequence[Comparison]) -> str:
    """All rows of all comparisons as CSV text."""
    import csv
    import io

    columns = (
        "construction",
        "verdict",
        *SIZES,
        "embedding_parameters",
        "build_seconds",
        "certify_seconds",
        "theorem",
        "reason",
    )
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("task", "N", "n", "d", "C", *columns))
    for comparison in comparisons:
        for row in comparison.rows:
            facts = (comparison.task, comparison.N, comparison.n, comparison.d, comparison.C)
            writer.writerow((*facts, *("" if getattr(row, name) is None else getattr(row, name) for name in columns)))
    return out.getvalue()


def growth_exponents(comparisons: Sequence[Comparison], quantity: str = "parameters") -> dict[str, float]:
    """The slope of log(size) against log(N) for every construction that was built on at least two sizes."""
    found = _built_sizes(comparisons, quantity)
    return {name: slope([(math.log(N), math.log(value)) for N, value in points]) for name, points in found.items()}


def gentle_growth(comparisons: Sequence[Comparison]) -> dict[str, str]:
    """Why a slope below 1/2 does not break the lower bound of order √N: the part of the size that does not grow.

    A size a + b·√N with a large constant a has a slope that rises to 1/2 only as N grows.
    """
    slopes, found = growth_exponents(comparisons), {}
    for name, points in _built_sizes(comparisons, "parameters").items():
        b = slope([(math.sqrt(N), value) for N, value in points])
        a = sum(value - b * math.sqrt(N) for N, value in points) / len(points)
        if slopes[name] < GENTLE and a > 0 and b > 0:
            found[name] = (
                f"about {a:,.0f} + {b:.1f}·√N; the first number is there at any N, so the slope is below 1/2 and rises "
                "to it as N grows"
            )
    return found


GENTLE = 0.48  # a slope that could be taken for less than the square root


def gentle_bits(comparisons: Sequence[Comparison]) -> dict[str, str]:
    """Why total bits with a slope below 1 do not break Remark 4.4, by which N labels need bits in proportion to N.

    The labels' own bits are a share of the whole that grows as N does; at small N the network is mostly something else.
    """
    slopes, found = growth_exponents(comparisons, "total_bits"), {}
    labels = {c.N: row.total_bits for c in comparisons for row in c.rows if row.construction == INFORMATION}
    for name, points in _built_sizes(comparisons, "total_bits").items():
        times = [(N, bits / own) for N, bits in sorted(points) if (own := labels.get(N))]
        if slopes[name] < LINEAR and len(times) > 1 and times[-1][1] < times[0][1]:
            (low, first), (high, last) = times[0], times[-1]
            found[name] = (
                f"bits are {first:,.1f} times those of the labels alone at N = {low:,} and {last:,.1f} times at "
                f"N = {high:,}; those grow like N (KS25, Remark 4.4), so a slope below 1 shows how much of the network "
                "is something else at these sizes, and cannot stay there"
            )
    return found


LINEAR = 0.97  # a slope that could be taken for less than proportional
INFORMATION = "information limit"  # the row with the bits of the labels alone


def _built_sizes(comparisons: Sequence[Comparison], quantity: str) -> dict[str, list[tuple[int, int]]]:
    """(N, size) of every construction that was built on at least two sizes."""
    points: dict[str, list[tuple[int, int]]] = {}
    for comparison in comparisons:
        for row in comparison.rows:
            value = getattr(row, quantity)
            if row.built and value:
                points.setdefault(row.construction, []).append((comparison.N, value))
    return {name: found for name, found in points.items() if len({N for N, _ in found}) > 1}


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the least-squares line.

    >>> slope([(0, 1), (1, 3), (2, 5)])
    2.0
    """
    mean_x, mean_y = (sum(p[k] for p in points) / len(points) for k in (0, 1))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
