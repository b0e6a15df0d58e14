"""The capacity of one architecture of KS25 eq. (4): the sums of Theorems 4.2 and 4.3, layer by layer.

The closed forms of `lower` pay for being short. Here every factor of eqs. (86) and (89) is added as it is, capped by
the number of patterns that exist at all, so the verdict is as sharp as the proof allows. Only two signs matter
(> 0 or not): a ReLU needs no more, the label is a threshold, and hardmax compares every pair in both directions. So
each factor is 2(2eMD/v)^v (Bartlett et al. 2019, Lemma 17) instead of Lemma B.4's (8eMD/v)^v.

The argument is counting. Once the signs inside the first layers are fixed, the next layer compares M polynomials
of degree D in the v weights so far with 0; they have at most 2(2eMD/v)^v sign patterns. The product over the
layers bounds the labellings that any choice of weights can give; with fewer of them than labellings, some labelling is
out of reach. Logarithms are added as exact fractions that are rounded up, so "cannot" never comes from rounding. The
cost is two logarithms per layer.

    >>> small = Architecture(d=8, m=9, s=1, H=1, q=10, L=40)
    >>> print(verdict(small, Task.SEQ_TO_SEQ, N=10**6, n=16).sentence)
    cannot shatter 16000000 points: every labelling in 2 classes needs 16000000 bits, its answers at most 10241519
    >>> verdict(small, Task.SEQ_TO_SEQ, N=10**5, n=16).possible
    True
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from fractions import Fraction
from functools import partial
from typing import Any

from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.paper import Ref, implements
from byheart.theory.lower import check_counts
from byheart.theory.rounding import E_UP, ceil, floor, log2_down, log2_up, scaled_log2


@dataclass(frozen=True)
class Architecture:
    """A Transformer's shape.

    KS25 counts 2(m+1)q per feed-forward layer, eq. (92); weights and biases of eq. (3) are 2mq + q + m.

    Attributes:
        d: Numbers of an input token.
        m: Width of the stream.
        s: Head size.
        H: Heads.
        q: Hidden units.
        L: Blocks of attention and feed-forward.

    >>> small = Architecture.parse("8,9,1,1,10,40")
    >>> small.block, small.parameters, small.parameters_without_scores
    (235, 9481, 8761)
    """

    d: int
    m: int
    s: int
    H: int
    q: int
    L: int

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 1:
                raise OptionError(f"architecture {astuple(self)}: {field.name} = {value!r} must be an integer >= 1")

    @classmethod
    def parse(cls, text: str) -> Architecture:
        """Read a shape.

        Args:
            text: Six integers "d,m,s,H,q,L".

        Raises:
            OptionError: The text is something else.
        """
        parts = text.split(",")
        try:
            numbers = [int(part) for part in parts]
        except ValueError:
            numbers = []
        if len(numbers) != 6:
            raise OptionError(f"architecture {text!r}: give six integers d,m,s,H,q,L, such as 8,9,1,1,10,40")
        return cls(*numbers)

    def __str__(self) -> str:
        return ",".join(map(str, astuple(self)))

    @property
    def block(self) -> int:
        """Parameters of one block: K, Q, V, O of every head, W₁, b₁, W₂, b₂."""
        return 4 * self.m * self.s * self.H + 2 * self.m * self.q + self.q + self.m

    @property
    def block_without_scores(self) -> int:
        """The same without K and Q, which drop out when all tokens are equal."""
        return self.block - 2 * self.m * self.s * self.H

    @property
    def parameters(self) -> int:
        """W = md + LP + m: E_in, the blocks, E_out."""
        return self.m * self.d + self.L * self.block + self.m

    @property
    def parameters_without_scores(self) -> int:
        return self.m * self.d + self.L * self.block_without_scores + self.m

    @property
    def summed_without_scores(self) -> int:
        """W̄′ = W′ + Σ_l (parameters that the l-th feed-forward layer's signs depend on): Theorem 4.2."""
        m, L = self.m, self.L
        P = self.block_without_scores
        return self.parameters_without_scores + m * self.d * L + P * L * (L + 1) // 2 - L * m * (self.q + 1)

    @property
    def summed(self) -> int:
        """W̄ of eq. (91), Theorem 4.3."""
        m, L = self.m, self.L
        signs = 4 * m * self.s * self.H + (m + 1) * self.q
        return self.parameters + 2 * m * self.d * L + self.block * L * (L - 1) + L * signs


TEST = "tests/theory/test_capacity.py"
_DIGITS = 24  # binary digits of a logarithm here: there are two per layer


@dataclass(frozen=True)
class CapacityVerdict:
    """Whether an architecture may store every labelling; a counting argument cannot prove more than "may".

    Attributes:
        architecture: The shape.
        task: The task.
        attention: `hardmax` or `softmax`.
        N: Sequences.
        n: Tokens of a sequence.
        C: Classes.
        labels: How many tokens are labelled.
        needed: Bits of the labels.
        patterns: Bits of all answers that the architecture can give.
        possible: Whether `patterns` suffices.
    """

    architecture: Architecture
    task: Task
    attention: str
    N: int
    n: int
    C: int
    labels: int
    needed: int
    patterns: int
    possible: bool

    @property
    def sentence(self) -> str:
        classes = f"{self.C}" if self.attention != "softmax" or self.C == 2 else f"two of {self.C}"
        facts = f"every labelling in {classes} classes needs {self.needed} bits, its answers at most {self.patterns}"
        return f"{'may' if self.possible else 'cannot'} shatter {self.labels} points: {facts}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "architecture": str(self.architecture),
            "parameters": self.architecture.parameters,
            "attention": self.attention,
            "needed_bits": self.needed,
            "pattern_bits": self.patterns,
            "possible": self.possible,
            "sentence": self.sentence,
        }


def label_count(task: Task, N: int, n: int) -> int:
    """Labels of a data set: one per token where the task requires it, otherwise one per sequence."""
    return n * N if task.labels_per_token else N


def verdict(
    architecture: Architecture,
    task: Task,
    N: int,
    n: int,
    C: int = 2,
    attention: str = "hardmax",
    labels: int | None = None,
) -> CapacityVerdict:
    """Decide whether an architecture can shatter N sequences (all nN tokens where labels are per token).

    Args:
        architecture: The shape.
        task: The task.
        N: Sequences.
        n: Tokens of a sequence.
        C: Classes.
        attention: For one label per sequence Theorem 4.2 holds for both kinds; for one label per token "hardmax" uses
            Theorem 4.3 and "softmax" the far weaker `softmax_dimension`, about two classes at a time.
        labels: How many tokens are labelled; by default all.

    Returns:
        The verdict and the numbers that decide it. `possible=False` is proved; True excludes nothing.

    >>> verdict(Architecture(1, 1, 1, 1, 1, 1), Task.NEXT_TOKEN, N=119, n=8).possible
    False
    """
    check_counts(N=N, n=n, C=C, labels=labels)
    patterns = log2_patterns(architecture, task, N, n, C, attention)
    count = label_count(task, N, n) if labels is None else labels
    needed = count * _bits_per_label(task, C, attention)
    return CapacityVerdict(
        architecture, task, attention, N, n, C, count, ceil(needed), ceil(patterns), needed <= patterns
    )


def shatterable(architecture: Architecture, task: Task, n: int, C: int = 2, attention: str = "hardmax") -> int:
    """Bound the number of sequences that an architecture can shatter: where the verdict changes.

    Args:
        architecture: The shape.
        task: The task.
        n: Tokens of a sequence.
        C: Classes.
        attention: As in `verdict`.

    Returns:
        The largest N whose verdict is `possible`; one more sequence cannot be shattered.

    Raises:
        OptionError: There is one class only.

    >>> shatterable(Architecture(1, 1, 1, 1, 1, 1), Task.NEXT_TOKEN, n=8)
    118
    """
    if C < 2:
        raise OptionError("with one class there is nothing to shatter: give C >= 2")
    per_sequence = label_count(task, 1, n) * _bits_per_label(task, C, attention)
    patterns = partial(log2_patterns, architecture, task, n=n, C=C, attention=attention)
    impossible = 64
    while patterns(N=impossible) >= impossible * per_sequence:
        impossible *= 64
    # Fewer sequences have no more patterns, so a count that exceeds the patterns of N exceeds its own.
    while impossible > 1 and (found := patterns(N=impossible - 1)) < (impossible - 1) * per_sequence:
        impossible = floor(found / per_sequence) + 1
    return impossible - 1


def _bits_per_label(task: Task, C: int, attention: str) -> Fraction:
    """Return a label's contribution to the count: log2 C where labellings are counted, 1 where a dimension is compared.

    A VC dimension V means that more than V points cannot be shattered by two classes, so not by C either. It states
    nothing about labels·log2 C against V: C-ary labellings are more than binary ones on both sides of the comparison.
    """
    if C == 1:
        return Fraction(0)
    return Fraction(1) if task.labels_per_token and attention == "softmax" else log2_down(C)


def log2_patterns(
    architecture: Architecture, task: Task, N: int, n: int, C: int = 2, attention: str = "hardmax"
) -> Fraction:
    """An upper bound on log2 of the number of labellings that the architecture can produce."""
    if attention not in ("hardmax", "softmax"):
        raise OptionError(f"unknown attention {attention!r}; known: hardmax, softmax")
    if not task.labels_per_token:
        return next_token_patterns(architecture, N, C)
    if attention == "softmax":
        return softmax_dimension(architecture, n)
    return seq_to_seq_patterns(architecture, N, n, C)


@implements(
    Ref("KS25", "Theorem 4.2"),
    statement="the sum over layers for one architecture: can it shatter N sequences?",
    test=TEST,
)
def next_token_patterns(a: Architecture, N: int, C: int = 2) -> Fraction:
    """On sequences of equal tokens: the ReLU signs of every layer, then C − 1 thresholds per sequence."""
    total = _factor(a.parameters_without_scores, N * (C - 1), 4 * a.L + 2)
    for layer in range(1, a.L + 1):
        before = a.m * a.d + (layer - 1) * a.block_without_scores
        total += _factor(before + 2 * a.m * a.s * a.H + (a.m + 1) * a.q, a.q * N, 4 * layer)
    return total


@implements(
    Ref("KS25", "Theorem 4.3"),
    statement="the sum over layers for one architecture: can it shatter nN tokens?",
    test=TEST,
)
def seq_to_seq_patterns(a: Architecture, N: int, n: int, C: int = 2) -> Fraction:
    """The hardmax pattern and the ReLU signs of every layer, then C − 1 thresholds per token."""
    total = _factor(a.parameters, n * N * (C - 1), 4 * a.L + 2)
    for layer in range(1, a.L + 1):
        before = a.m * a.d + (layer - 1) * a.block + 2 * a.m * a.s * a.H
        # A column of hardmax is one of 2^n − 1 sets of winners: fewer than the signs of all ordered pairs.
        total += _factor(before, n * n * (n - 1) * a.H * N, 8 * layer - 4, at_most=n * n * a.H * N)
        total += _factor(before + (a.m + 1) * a.q, n * a.q * N, 4 * layer)
    return total


def softmax_dimension(a: Architecture, n: int) -> Fraction:
    """A bound on the VC dimension of networks with exponentials: (W(k+1))² + 11W(k+1)(t + log2(9W(k+1))).

    k exponentials and t operations compute one label of one token (Anthony and Bartlett 1999, Theorem 8.14). It
    answers KS25's open problem only weakly: W is at least of order √(nN)/(LHn²).
    """
    exponentials = a.L * a.H * n * n
    per_head = 6 * n * a.s * a.m + 4 * n * n * a.s + 3 * n * n + 2 * n * a.m * a.s + n * a.m
    per_block = a.H * per_head + n * (a.q * (2 * a.m + 1) + 2 * a.q + 2 * a.m * a.q + 2 * a.m)
    operations = 2 * n * a.m * a.d + a.L * per_block + 2 * a.m + 2
    product = a.parameters * (exponentials + 1)
    return product**2 + 11 * product * (operations + log2_up(9 * product, _DIGITS))


def _factor(variables: int, polynomials: int, degree: int, at_most: int | None = None) -> Fraction:
    """log2 of 2(2eMD/v)^v for v ≤ M, never more than M signs (or `at_most`) give; 0 for no polynomials."""
    cap = polynomials if at_most is None else min(polynomials, at_most)
    if variables > polynomials or cap == 0:
        return Fraction(cap)
    above = 2 * E_UP.numerator * polynomials * degree
    log = scaled_log2(above, E_UP.denominator * variables, _DIGITS, up=True)
    return min(Fraction(cap), Fraction(2**_DIGITS + variables * log, 2**_DIGITS))
