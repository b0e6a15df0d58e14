"""What a construction's formula says about its size, for rows that are not built.

Formulas come from `byheart.theory`; nothing is measured here, so a predicted row is marked as such.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING

from byheart.compile.compare.rows import CompareRow, Floor
from byheart.data.dataset.dataset import Dataset
from byheart.theory import Bound, Problem, lower_bounds, upper_bounds

if TYPE_CHECKING:
    from byheart.build import Recipe


@dataclass(frozen=True)
class Prediction:
    """Sizes by formula; those that the formula does not speak about are None."""

    sizes: dict[str, int]
    theorem: str
    formula: str
    proved: bool


def problem_of(dataset: Dataset) -> Problem:
    """The question that the bounds answer about this data set."""
    found = dataset.separation
    r = isqrt(max(1, -(-found.r_squared.numerator // found.r_squared.denominator))) + 1
    delta = found.delta_squared or 1
    small = min(1.0, float(delta) ** 0.5)
    return Problem(
        dataset.encoder.task,
        N=dataset.N,
        n=dataset.n,
        d=dataset.d,
        C=dataset.C,
        omega=None if dataset.encoder.symbols is None else max(2, len(dataset.encoder.symbols)),
        r=r,
        delta=small if small > 0 else 1,
        contexts=max(1, len(dataset.contexts)),
    )


def listed() -> dict[str, Recipe]:
    """Name -> everything that can be compared, in the order of tables."""
    from byheart.build import recipes  # loads every builder

    return recipes()


def prediction(construction: str, problem: Problem) -> Prediction | None:
    """The formula's numbers, or None where no formula speaks about the construction and task.

    >>> prediction("nilsson65", Problem("next-token", N=100, n=4, d=4)).sizes
    {'parameters': 1783}
    """
    wanted = listed()[construction].formula
    found = [bound for bound in upper_bounds(problem) if bound.name == wanted]
    if not found:
        return None
    lead: Bound = next((bound for bound in found if bound.quantity == "parameters"), found[0])
    return Prediction({b.quantity: b.value for b in found}, str(lead.ref), lead.formula, lead.proved)


def predicted_row(construction: str, problem: Problem, why: str) -> CompareRow:
    """A row that the formula fills, with the reason why nothing was built."""
    found, entry = prediction(construction, problem), listed()[construction]
    if found is None:
        reason = f"{why}; no formula speaks about {construction} for {problem.task}"
        return CompareRow(construction, "predicted", reason, str(entry.ref), entry.summary)
    kind = "its theorem's formula" if found.proved else "its order of growth or an estimate, not a theorem's count"
    return CompareRow(
        construction,
        "predicted",
        f"{why}; by {kind}: {found.formula}",
        str(entry.ref),
        entry.summary,
        **found.sizes,  # type: ignore[arg-type]  # names of sizes
    )


def floors(problem: Problem) -> tuple[Floor, ...]:
    """The lower bounds on memories of labels (not of distributions), strongest first within each quantity."""
    found = [b for b in lower_bounds(problem) if b.kind == "lower" and b.ref.paper != "M24"]
    found = [b for b in found if b.quantity in ("parameters", "total_bits")]
    found.sort(key=lambda b: (b.quantity, -b.value))
    return tuple(Floor(b.name, b.quantity, b.value, str(b.ref), b.assumptions) for b in found)
