"""Every bound that applies to a problem, each with its theorem.

>>> found = bounds(N=10**4, n=8, d=4, C=2, task="next-token")
>>> theorem = next(b for b in found if b.name == "Theorem 4.2")
>>> theorem.kind, theorem.quantity, theorem.value, str(theorem.ref)
('lower', 'parameters', 73, 'KS25, Theorem 4.2')
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial

from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.paper import Ref
from byheart.theory import madden, theorems
from byheart.theory.capacity import Architecture, shatterable
from byheart.theory.lower import (
    any_chain_parameters,
    bits_per_parameter,
    close_points_parameters,
    general_position_parameters,
    input_parameters,
    next_token_parameters,
    quadratic_parameters,
    seq_to_seq_parameters,
    total_bits,
)
from byheart.theory.problem import Bound, Problem, Quantity
from byheart.theory.table1 import rows
from byheart.theory.upper import FORMS, Guarantee

_EVERY = "the network can store every labelling"
CHAIN = "any chain of layers"  # the bound that holds for every construction, whether or not blocks have attention


def bounds(
    N: int,
    n: int = 1,
    d: int | None = None,
    C: int = 2,
    task: Task | str = Task.NEXT_TOKEN,
    *,
    architecture: Architecture | str | None = None,
    omega: int | None = None,
    zeros: int = 0,
    r: Fraction | float | None = None,
    delta: Fraction | float = 1,
    B: int | None = None,
    contexts: int | None = None,
) -> list[Bound]:
    """List lower bounds, then the upper bounds of KS25's constructions and of Table 1.

    Args:
        N: Sequences.
        n: Tokens of a sequence.
        d: Dimension of a token.
        C: Classes.
        task: The task.
        architecture: A shape (d, m, s, H, q, L): adds how many sequences it can shatter.
        omega: The vocabulary: adds Madden et al. and the embedding layer.
        zeros: Further points that must answer zero: adds their bits.
        r: Largest norm of a token.
        delta: Smallest distance of two tokens.
        B: The limit on bits: adds the limited-bits theorem.
        contexts: Different labelled contexts, if fewer than N (nN).

    Returns:
        The bounds, lower ones first.

    >>> next(bound.value for bound in bounds(10_000, n=10, d=3) if bound.name == "Theorem 4.2")
    73
    """
    if isinstance(architecture, str):
        architecture = Architecture.parse(architecture)
    problem = Problem(task, N, n, input_dimension(d, architecture), C, omega, r, delta, B, contexts)
    return [*lower_bounds(problem, architecture, zeros), *upper_bounds(problem)]


def input_dimension(d: int | None, architecture: Architecture | None) -> int:
    """d as given, else the architecture's, else one number per token."""
    if d is not None:
        return d
    return 1 if architecture is None else architecture.d


def lower_bounds(problem: Problem, architecture: Architecture | None = None, zeros: int = 0) -> list[Bound]:
    """List lower bounds for any network, and the limits of an architecture.

    Args:
        problem: The size of the problem.
        architecture: A shape.
        zeros: Further points that must answer zero.

    Returns:
        The bounds, of parameters first.

    >>> from byheart.theory.problem import Problem
    >>> lower_bounds(Problem(task="next-token", N=10_000, n=10, d=3, C=2))[0].value
    73
    """
    found = [_theorem(problem), *_more_parameters(problem), _bits(problem, zeros)]
    found += [*_any_points(problem), *_distributions(problem)]
    if architecture is not None:
        found += _architecture(problem, architecture)
    return found


def upper_bounds(problem: Problem) -> list[Bound]:
    """List the guarantees of KS25's constructions, both forms, and the other rows of Table 1.

    Args:
        problem: The size of the problem.
    """
    found: list[Bound] = []
    for name, ref, make in _constructions(problem):
        for form in FORMS:
            found += _guaranteed(name, ref, form, make(form))
    for row in rows(problem):
        value = row.parameters(problem)
        if value is not None:
            found.append(
                Bound(row.name, "upper", "parameters", value, row.ref, row.formula, row.assumptions, row.proved)
            )
    return found


def _theorem(p: Problem, C: int = 2) -> Bound:
    """Theorem 4.2 or 4.3, for two classes unless stated otherwise."""
    ref = Ref("KS25", "Theorem 4.3" if p.kind.labels_per_token else "Theorem 4.2")
    classes = f"{C} classes" if C > 2 else "two classes, so any more"
    name = ref.label if C == 2 else f"{ref.label}, {C} classes"
    if p.C == 1:
        return Bound(name, "lower", "parameters", 1, ref, "1", ("one class: nothing to distinguish",))
    if p.kind.labels_per_token:
        value = seq_to_seq_parameters(p.N, p.n, C, p.labels)
        formula = f"4(√(1 + T/2) − 1), T = nN·log2({C})/log2(8e·{C - 1}·n³N)"
        mask = ("a causal mask (the proof is the same)",) if p.kind is Task.CAUSAL else ()
        given = ("a Transformer of eq. (4) with hardmax", *mask, f"{_EVERY} of nN distinct tokens", classes)
    else:
        value = next_token_parameters(p.labels, C)
        formula = f"−9 + √(72 + 12T), T = N·log2({C})/log2(32e·{C - 1}·N/3)"
        inputs = f"{_EVERY} of {_equal_tokens(p)}"
        given = ("a Transformer of eq. (4), attention parameters in every block", inputs, classes)
    return Bound(name, "lower", "parameters", value, ref, formula, given, own_constants=True)


def _equal_tokens(p: Problem) -> str:
    """The inputs that the proofs of Theorem 4.2 and its relatives are about, as the task has them."""
    return "N sets of one element" if p.kind is Task.SET else "N sequences of equal tokens"


def _more_parameters(p: Problem) -> Iterator[Bound]:
    """The same argument with all classes, and for networks whose blocks have no attention parameters."""
    if p.C > 2:
        yield _theorem(p, p.C)
    if p.C > 1 and not p.kind.labels_per_token:
        yield Bound(
            "Theorem 4.2, without logarithms",
            "lower",
            "parameters",
            quadratic_parameters(p.labels),
            Ref("KS25", "Theorem 4.2"),
            "(√(1 + N/2) − 1)/2, from Goldberg and Jerrum's 4W(t + 2)",
            ("a Transformer of eq. (4)", f"{_EVERY} of {_equal_tokens(p)}", "two classes, so any more"),
            own_constants=True,
        )
    if p.kind.labels_per_token:
        given = ("attention, where there is any, is uniform", f"{_EVERY} of nN distinct tokens")
    else:
        given = ("attention of any kind", f"{_EVERY} of {_equal_tokens(p)}")
    yield Bound(
        CHAIN,
        "lower",
        "parameters",
        any_chain_parameters(p.labels, p.C),
        Ref("KS25", "Lemma B.4"),
        "smallest W with A·log2 C ≤ W(W+6)/4 · log2(4eA·max(W, 2(C−1))), A labels",
        ("affine, ReLU, residual and attention layers in any order, a bias in every hidden unit", *given),
        own_constants=True,
    )
    yield Bound(
        "E_in and E_out",
        "lower",
        "parameters",
        input_parameters(p.d),
        Ref("KS25", "Remark 4.3"),
        "d + 1",
        ("tokens enter as vectors of dimension d, not through an embedding table",),
    )


def _bits(p: Problem, zeros: int) -> Bound:
    per_token = p.kind.labels_per_token
    formula = f"{'nN' if per_token else 'N'}·log2 C" + (f" + log2 binom(V, V − {zeros})" if zeros else "")
    assumptions = ["all parameters have the same number of bits, sign and binary point included", _EVERY]
    if zeros:
        assumptions.append(f"{zeros} further points, any of which could have been labelled, must answer 0")
    ref = Ref("KS25", "Remark 4.6" if per_token else "Remark 4.4")
    return Bound("bits", "lower", "total_bits", total_bits(p.labels, p.C, zeros), ref, formula, tuple(assumptions))


def _any_points(p: Problem) -> Iterator[Bound]:
    """Return the effect of separation: without it, √N is out of reach.

    Both are about points, and a sequence of equal tokens is one point: N of them have N labels to choose, not nN, even
    where every token has a label. For nN points there is no such bound, because tokens of a row are not free to move.
    """
    if p.C > 1:
        yield Bound(
            "points however close together",
            "lower",
            "parameters",
            general_position_parameters(p.points),
            Ref("S97", "Theorem 1"),
            "(N − 1)/2",
            (
                f"one shape of network for every labelling of every {_equal_tokens(p)}, in general position, at any δ",
                "ReLU, sigmoid or threshold units",
            ),
            proved=False,
            cited=True,
            scope="any points",
        )
        yield Bound(
            "points this close together",
            "lower",
            "parameters",
            close_points_parameters(p.points, p.r_squared / p.delta_squared),
            Ref("SI24", "Theorem 1"),
            "p(log2⌊V/2⌋ − W/2) ≤ W(log2 V + W/2 + log2(W/2 + 1) + log2 8e), p = ⌊N/2⌋, V = ⌊2r/δ⌋ + 1",
            (
                f"one shape of network for every labelling of every {_equal_tokens(p)}, of norm at most r and at "
                "least δ apart",
                "ReLU units with a bias each; attention of any kind",
            ),
            scope="any points",
        )


def _distributions(p: Problem) -> Iterator[Bound]:
    """Madden et al.: only where the answer is a distribution over a known vocabulary.

    ω tokens make ω^t contexts of length t and no more, so prefixes of many documents are fewer than their tokens.
    """
    if p.omega is None or p.omega < 2 or p.kind is Task.SET:
        return
    smooth = "a C¹ function of the parameters"
    yield Bound(
        "distributions",
        "lower",
        "parameters",
        madden.distribution_parameters(p.distinct_contexts, p.omega),
        Ref("M24", "Lemma 1"),
        "contexts·(ω − 1)",
        (smooth, "any next-token distribution over ω tokens after each of the contexts, not just a label"),
        scope="distributions",
    )
    yield Bound(
        "distributions of documents",
        "lower",
        "parameters",
        madden.document_parameters(p.distinct_contexts, p.omega),
        Ref("M24", "Theorem 1"),
        "more than (contexts − 1)(ω − 1)²/(2ω − 1)",
        (smooth, "definable by exp and analytic functions", "the empirical distributions of any set of documents"),
        scope="distributions",
    )


def _architecture(p: Problem, a: Architecture) -> Iterator[Bound]:
    if a.d != p.d:
        raise OptionError(f"the architecture reads {a.d} numbers per token, the data has d = {p.d}; make them equal")
    if p.C > 1:
        kinds = ("hardmax", "softmax") if p.kind.labels_per_token else ("any attention",)
        labels = {"hardmax": "Theorem 4.3", "softmax": "Open Problem", "any attention": "Theorem 4.2"}
        for kind in kinds:
            value = shatterable(a, p.kind, p.n, p.C, "softmax" if kind == "softmax" else "hardmax")
            source = "Anthony and Bartlett 1999, Theorem 8.14" if kind == "softmax" else "the sum over its layers"
            ref = Ref("KS25", labels[kind])
            yield Bound(f"architecture {a}, {kind}", "upper", "points", value, ref, source, (_EVERY,))
    yield Bound(
        f"architecture {a}",
        "lower",
        "max_bits",
        bits_per_parameter(p.labels, p.C, a.parameters),
        Ref("KS25", "Remark 4.6" if p.kind.labels_per_token else "Remark 4.4"),
        f"⌈labels·log2 C / W⌉, W = {a.parameters}",
        (_EVERY, "all parameters have the same number of bits"),
    )


_Make = Callable[[str], Guarantee]


def _constructions(p: Problem) -> Iterator[tuple[str, Ref, _Make]]:
    """KS25's constructions for the task: name, theorem, guarantee by form."""
    s = theorems.worst_case(p.N, p.n, p.d, p.C, r_squared=p.r_squared, delta_squared=p.delta_squared, contexts=p.labels)
    if p.kind in (Task.NEXT_TOKEN, Task.SEQ_TO_SEQ):
        last = p.kind is Task.NEXT_TOKEN
        ref = Ref("KS25", "Theorem B.1" if last else "Corollary 4.1")
        yield "ks25", ref, partial(theorems.transformer, s)
        yield "ks25, balanced groups", Ref("KS25", "footnote 2"), partial(theorems.transformer, s, balanced=True)
        yield "ks25-sparse", Ref("KS25", "Remark 4.5"), partial(theorems.sparse, s)
        if p.B is not None:
            yield f"ks25-limited, B = {p.B}", Ref("KS25", "Theorem F.1"), partial(theorems.limited_bits, s, p.B)
    if p.kind is Task.SET:
        yield "ks25-sets", Ref("KS25", "Theorem D.1"), partial(theorems.deep_set, s)
    if p.omega is not None and p.kind in (Task.NEXT_TOKEN, Task.SEQ_TO_SEQ):
        yield "ks25-embedding", Ref("KS25", "Theorem E.1"), partial(theorems.with_embedding, s, p.omega)


_FORMULAS: dict[Quantity, dict[str, str]] = {
    "width": {"plain": "the theorem's width", "residual": "14 hidden units (12 for sets), a stream of 10"},
    "depth": {
        "plain": "per memory 2 + (3m+2) + (3KM+2K+2), m = ⌈√(N log2 N)⌉, K = ⌈N/m⌉, M = max(ρ, c); + attention",
        "residual": "per memory 1 + m + KM + 3 blocks (sets: K more), m = ⌈√(N log2 N)⌉, K = ⌈N/m⌉, M = max(ρ, c, 3)",
    },
    "parameters": {
        "plain": "width·(width + 1) per layer + input map + attention + output map",
        "residual": "20q + q + 10 per block of q hidden units + input map + attention + output map",
    },
    "max_bits": {
        "plain": "the largest of KM + max(ρ, 2) and the projection's log2(3drV²√π/δ)",
        "residual": "the largest of KM + max(ρ, 2) and the projection's log2(3drV²√π/δ)",
    },
    "total_bits": {"plain": "parameters · max_bits", "residual": "parameters · max_bits"},
}


def _guaranteed(name: str, ref: Ref, form: str, guarantee: Guarantee) -> Iterator[Bound]:
    given = ("tokens are (r, δ)-separated", "equal contexts have equal labels", f"{form} form")
    label = name if form == "plain" else f"{name}, {form}"
    for quantity, formula in _FORMULAS.items():
        yield Bound(label, "upper", quantity, getattr(guarantee, quantity), ref, formula[form], given)
