"""The problem of a bound (sequences, tokens, classes), and the bounds.

A bound is a value: a number with the theorem it comes from, its formula and its assumptions.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.notebook import card
from byheart.paper import Ref
from byheart.theory.capacity import label_count

Kind = Literal["lower", "upper"]
Scope = Literal["labels", "distributions", "any points"]
Quantity = Literal["parameters", "total_bits", "width", "depth", "max_bits", "points"]


@dataclass(frozen=True)
class Bound:
    """A quantity is at least (lower) or at most (upper) a value.

    Attributes:
        name: Its name.
        kind: `lower` or `upper`.
        quantity: The quantity; `points` counts sequences that an architecture can shatter.
        value: The number.
        ref: The theorem.
        formula: How the number is computed.
        assumptions: About the data.
        proved: False for orders of growth with constant 1, reconstructions of constants that a paper does not print,
            and estimates, and where a theorem is `cited` alone.
        scope: Whether the bound is about labels of separated points (all of ours), about distributions, or about one
            shape of network for every set of points, wherever they lie; the last two may be larger than a memory of
            the given rows needs.
        cited: The proof is in the paper, not here.
        own_constants: The paper proves the order of growth; the constants are byheart's, by the same proof.
    """

    name: str
    kind: Kind
    quantity: Quantity
    value: int
    ref: Ref
    formula: str
    assumptions: tuple[str, ...] = ()
    proved: bool = True
    scope: Scope = "labels"
    cited: bool = False
    own_constants: bool = False

    @property
    def remark(self) -> str:
        """Why the number is not one of ours that are proved; empty where it is."""
        return "" if self.proved else "cited, not proved here" if self.cited else "not proved"

    @property
    def sentence(self) -> str:
        """The bound in words.

        >>> Bound("bits", "lower", "total_bits", 1000, Ref("KS25", "Remark 4.4"), "N·log2 C").sentence
        'at least 1,000 total bits'
        """
        least = "at least" if self.kind == "lower" else "at most"
        return f"{least} {self.value:,} {self.quantity.replace('_', ' ')}{f' ({self.remark})' if self.remark else ''}"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        facts = [
            ("from", f"{self.name} ({self.ref})"),
            ("formula", self.formula),
            ("assumes", "; ".join(self.assumptions)),
            ("about", "" if self.scope == "labels" else self.scope),
        ]
        return card(self.sentence, facts)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.name,
            "kind": self.kind,
            "quantity": self.quantity,
            "value": self.value,
            "theorem": str(self.ref),
            "formula": self.formula,
            "assumptions": list(self.assumptions),
            "proved": self.proved,
            "cited": self.cited,
            "scope": self.scope,
            "own_constants": self.own_constants,
        }


# Counts beyond it are typing errors.
LARGEST = 10**18


@dataclass(frozen=True)
class Problem:
    """A size of problem.

    Attributes:
        task: The task.
        N: Sequences (sets).
        n: Tokens of a sequence (elements of a set at most).
        d: Dimension of a token.
        C: Classes.
        omega: Vocabulary, if tokens are symbols.
        r: Largest norm of a token, by default that of symbols numbered 1, 2, … (it only enters logarithms).
        delta: Smallest distance of two tokens.
        B: KS25's limit on bits, if requested.
        contexts: How many different contexts have labels, if fewer than N (nN where every token has one).

    >>> Problem(task="seq-to-seq", N=100, n=8).labels
    800
    """

    task: Task | str
    N: int
    n: int = 1
    d: int = 1
    C: int = 2
    omega: int | None = None
    r: Fraction | float | None = None
    delta: Fraction | float = 1
    B: int | None = None
    contexts: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "task", check_task(self.task))
        for name in ("N", "n", "d", "C", "omega", "B", "contexts"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, count(name, value))
        for name in ("r", "delta"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, positive(name, value))
        most = label_count(self.kind, self.N, self.n)
        if self.contexts is not None and self.contexts > most:
            raise OptionError(f"contexts = {self.contexts}, but {self.task} has at most {most} labels here")

    @property
    def kind(self) -> Task:
        return Task(self.task)

    @property
    def labels(self) -> int:
        """Labels to be stored: one per context, N or nN of them unless stated otherwise."""
        return label_count(self.kind, self.N, self.n) if self.contexts is None else self.contexts

    @property
    def points(self) -> int:
        """Sequences of equal tokens that may each have a separate label: N, whatever the length, because the
        tokens of such a sequence are one point.

        >>> Problem(task="seq-to-seq", N=100, n=8).points
        100
        """
        return min(self.N, self.labels)

    @property
    def distinct_contexts(self) -> int:
        """The labels, but no more than ω symbols have contexts: ω^n rows of n tokens, ω^t prefixes of length t.

        >>> Problem(task="causal", N=1000, n=3, omega=10).distinct_contexts        # 10 + 100 + 1000 prefixes
        1110
        """
        if self.omega is None or self.omega < 2:
            return self.labels
        short = next(t for t in range(65) if self.omega ** (t + 1) >= self.N)  # up to t tokens, fewer than N rows exist
        if self.kind is Task.CAUSAL:
            few = min(short, self.n)
            exist = sum(self.omega**t for t in range(1, few + 1)) + self.N * (self.n - few)
        else:
            each = self.n if self.kind is Task.SEQ_TO_SEQ else 1
            exist = each * (self.N if self.n > short else self.omega**self.n)
        return int(min(self.labels, exist))

    @property
    def r_squared(self) -> Fraction:
        largest = Fraction(self.omega or self.n * self.N) if self.r is None else Fraction(self.r)
        return largest**2

    @property
    def delta_squared(self) -> Fraction:
        return Fraction(self.delta) ** 2


def check_task(task: Task | str) -> Task:
    """The task, or an OptionError that lists the tasks."""
    try:
        return Task(task)
    except ValueError:
        raise OptionError(f"unknown task {task!r}; known: {', '.join(Task)}") from None


def count(name: str, value: object) -> int:
    """`value` as a positive integer; NumPy integers are welcome, floats are not."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # its TypeError is the answer for everything else
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise OptionError(f"{name} = {value!r}: give an integer of at least 1")
    if number > LARGEST:
        raise OptionError(f"{name} = {value!r} is more than 10^18; such a count means nothing here")
    return number


def positive(name: str, value: object) -> Fraction:
    """`value` as an exact positive fraction; floats are taken at their exact value."""
    try:
        number = Fraction(value)  # type: ignore[call-overload]  # its errors are the answer for everything else
    except (TypeError, ValueError, OverflowError):
        number = Fraction(0)
    if number <= 0:
        raise OptionError(f"{name} = {value!r}: give a positive finite number")
    return Fraction(number)
