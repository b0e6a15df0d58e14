"""Lower and upper bounds as numbers, each with the theorem it comes from.

>>> answer = lower_bound(task="next-token", N=10**4, n=8, d=4, C=16)
>>> answer.parameters, answer.total_bits
(73, 40000)
>>> answer.strongest("parameters").name
'Theorem 4.2, 16 classes'
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.notebook import card
from byheart.theory.capacity import Architecture, CapacityVerdict, shatterable, verdict
from byheart.theory.madden import hard_documents
from byheart.theory.problem import Bound, Problem, Quantity
from byheart.theory.report import bounds, input_dimension, lower_bounds, upper_bounds

__all__ = [
    "Architecture",
    "Bound",
    "CapacityVerdict",
    "LowerBound",
    "Problem",
    "bounds",
    "hard_documents",
    "lower_bound",
    "lower_bounds",
    "shatterable",
    "upper_bounds",
    "verdict",
]


@dataclass(frozen=True)
class LowerBound:
    """Lower bounds for any memory of a size of problem.

    Attributes:
        task: The task.
        N: Sequences.
        n: Tokens of a sequence.
        d: Dimension of a token.
        C: Classes.
        parameters: KS25 Theorem 4.2 (one label per sequence or set) or 4.3 (one label per token), which require two
            classes only; `strongest("parameters")` also uses the other classes.
        total_bits: log2 of the number of labellings.
        bounds: Every bound with its theorem.
        verdict: Whether a given architecture can shatter such data.
    """

    task: Task
    N: int
    n: int
    d: int
    C: int
    parameters: int
    total_bits: int
    bounds: tuple[Bound, ...]
    verdict: CapacityVerdict | None = None

    def strongest(self, quantity: Quantity) -> Bound:
        """Return the largest lower bound for labels of separated points (not for distributions).

        Args:
            quantity: `parameters` or `total_bits`.

        Raises:
            OptionError: No bound on the quantity is known.
        """
        found = [b for b in self.bounds if b.kind == "lower" and b.quantity == quantity and b.scope == "labels"]
        if not found:
            raise OptionError(f"no lower bound on {quantity}; known: parameters, total_bits")
        return max(found, key=lambda bound: bound.value)

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: every bound with its theorem."""
        decided = None if self.verdict is None else self.verdict.sentence
        return card(
            f"Lower bounds for {self.N:,} rows of {self.n} tokens with {self.C:,} classes",
            [("task", self.task.value), ("verdict", decided)],
            columns=("bound", "from", "formula", "about"),
            rows=[(b.sentence, f"{b.name} ({b.ref})", b.formula, b.scope) for b in self.bounds],
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "task": str(self.task),
            "N": self.N,
            "n": self.n,
            "d": self.d,
            "C": self.C,
            "parameters": self.parameters,
            "total_bits": self.total_bits,
            "bounds": [bound.as_dict() for bound in self.bounds],
            "verdict": None if self.verdict is None else self.verdict.as_dict(),
        }


def lower_bound(
    *,
    task: Task | str = Task.NEXT_TOKEN,
    N: int,
    n: int = 1,
    d: int | None = None,
    C: int = 2,
    omega: int | None = None,
    zeros: int = 0,
    contexts: int | None = None,
    architecture: Architecture | str | None = None,
    r: Fraction | float | None = None,
    delta: Fraction | float = 1,
) -> LowerBound:
    """Return the least parameters and bits for N sequences of n tokens with C classes, with their theorems.

    Args:
        task: `next-token`, `seq-to-seq`, `set` or `causal`.
        N: The number of sequences.
        n: Tokens per sequence.
        d: The dimension of a token; None: symbols.
        C: The number of classes.
        omega: Adds the bounds of Madden et al. on distributions over ω tokens.
        zeros: Further points that must be answered with zero; adds their bits.
        contexts: The number of different contexts with labels, if it is below N (or nN, one per token).
        architecture: (d, m, s, H, q, L): adds the verdict whether it can store every labelling.
        r: The largest norm of a token; with `delta` it limits how close together points may lie.
        delta: The smallest distance of two tokens.

    Returns:
        A `LowerBound` with one bound per theorem.

    Raises:
        OptionError: If the numbers contradict each other.

    >>> lower_bound(task="seq-to-seq", N=1000, n=8, d=4, C=2).total_bits
    8000
    """
    if isinstance(architecture, str):
        architecture = Architecture.parse(architecture)
    problem = Problem(task, N, n, input_dimension(d, architecture), C, omega, r, delta, contexts=contexts)
    found = tuple(lower_bounds(problem, architecture, zeros))
    decided = None
    if architecture is not None:
        decided = verdict(architecture, problem.kind, problem.N, problem.n, problem.C, labels=problem.labels)
    return LowerBound(
        problem.kind,
        problem.N,
        problem.n,
        problem.d,
        problem.C,
        next(bound.value for bound in found if bound.quantity == "parameters"),
        next(bound.value for bound in found if bound.quantity == "total_bits"),
        found,
        decided,
    )
