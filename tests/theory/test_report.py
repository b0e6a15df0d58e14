"""The list of bounds and the public lower bound."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

import byheart
from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.theory import Architecture, lower_bound
from byheart.theory.problem import Problem
from byheart.theory.report import bounds, upper_bounds
from byheart.theory.table1 import TABLE, compact_estimate, native_estimate

TASKS = list(Task)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    ("N", "n", "d", "C"),
    [(1, 1, 1, 1), (1, 1, 1, 2), (2, 3, 2, 2), (300, 16, 16, 10), (10**6, 8, 4, 2), (10**12, 1024, 768, 50_000)],
)
def test_every_bound_is_complete_and_the_order_is_right(task: Task, N: int, n: int, d: int, C: int) -> None:
    found = bounds(N, n, d, C, task, omega=50, B=1)
    for bound in found:
        assert type(bound.value) is int and bound.value >= 0
        assert bound.formula and bound.name and str(bound.ref)
        if bound.name not in ("E_in and E_out",):
            assert bound.assumptions
    labels_only = [b for b in found if b.scope == "labels"]
    lower = (
        max(b.value for b in labels_only if b.kind == "lower" and b.quantity == "parameters" and b.value > d + 1)
        if N > 100
        else 1
    )
    proved = [b.value for b in labels_only if b.kind == "upper" and b.quantity == "parameters" and b.proved]
    assert all(lower <= value for value in proved)
    json.dumps([bound.as_dict() for bound in found])


def test_public_lower_bound() -> None:
    answer = byheart.lower_bound(task="next-token", N=10**4, n=8, d=4, C=16)
    assert (answer.parameters, answer.total_bits) == (73, 40_000)
    assert answer.strongest("parameters").value > 73
    assert answer.strongest("total_bits").value == 40_000
    assert {"KS25, Theorem 4.2", "KS25, Remark 4.4"} <= {str(b.ref) for b in answer.bounds}
    assert json.loads(json.dumps(answer.as_dict()))["parameters"] == 73
    with pytest.raises(AttributeError):
        answer.parameters = 1  # type: ignore[misc]


@pytest.mark.parametrize("task", TASKS)
def test_tasks_count_their_labels(task: Task) -> None:
    answer = lower_bound(task=task, N=1000, n=8, C=2)
    assert answer.total_bits == (8000 if task.labels_per_token else 1000)
    theorem = "Theorem 4.3" if task.labels_per_token else "Theorem 4.2"
    assert answer.bounds[0].ref.label == theorem and answer.bounds[0].value == answer.parameters
    fewer = lower_bound(task=task, N=1000, n=8, C=2, contexts=500)
    assert fewer.total_bits == 500 and fewer.parameters < answer.parameters


def test_one_class_needs_nothing() -> None:
    answer = lower_bound(task="next-token", N=10**6, C=1)
    assert (answer.parameters, answer.total_bits) == (1, 0)


def test_architecture_gets_a_verdict() -> None:
    answer = lower_bound(task="seq-to-seq", N=10**6, n=16, architecture="8,9,1,1,10,40")
    assert answer.d == 8 and answer.verdict is not None and not answer.verdict.possible
    shatter = next(b for b in answer.bounds if b.quantity == "points")
    assert shatter.kind == "upper" and shatter.value < 10**6
    as_object = lower_bound(task="seq-to-seq", N=10**6, n=16, architecture=Architecture(8, 9, 1, 1, 10, 40))
    assert as_object == answer


def test_madden_appears_with_a_vocabulary() -> None:
    found = {str(b.ref): b.value for b in bounds(N=100, n=10, task="next-token", omega=50)}
    assert found["M24, Lemma 1"] == 4900 and found["M24, Theorem 1"] == 2402
    assert found["M24, Theorem 5"] >= 4900
    assert "M24, Lemma 1" not in {str(b.ref) for b in bounds(N=100, n=10, task="next-token")}


def test_zeros_add_bits() -> None:
    with_zeros = lower_bound(task="next-token", N=1000, C=10, zeros=4000).total_bits
    assert with_zeros == 6926 > lower_bound(task="next-token", N=1000, C=10).total_bits


def test_every_row_of_table_1_applies_somewhere() -> None:
    seen = set()
    for task in TASKS:
        seen |= {b.name for b in upper_bounds(Problem(task, N=100, n=4, d=8, omega=20))}
    assert {row.name for row in TABLE} <= seen
    assert {"ks25", "ks25-sets", "ks25-embedding", "ks25-sparse"} <= seen


@pytest.mark.parametrize(
    ("N", "C", "measured"),
    [(1000, 2, 173), (1000, 16, 444), (10**4, 2, 524), (10**4, 16, 1195), (10**5, 2, 1712), (10**5, 16, 3702)],
)
def test_compact_estimate_is_near_what_was_built(N: int, C: int, measured: int) -> None:
    assert compact_estimate(N, C) == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize(("N", "C", "measured"), [(10**4, 2, 4862), (10**5, 2, 17319), (10**5, 16, 56742)])
def test_native_estimate_is_near_what_was_built(N: int, C: int, measured: int) -> None:
    assert native_estimate(N, C) == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"N": 0}, "N = 0"),
        ({"N": 1.5}, "N = 1.5"),
        ({"N": "many"}, "N = 'many'"),
        ({"N": True}, "N = True"),
        ({"N": 10**19}, r"10\^18"),
        ({"N": 10, "n": -1}, "n = -1"),
        ({"N": 10, "C": 0}, "C = 0"),
        ({"N": 10, "task": "translation"}, "unknown task 'translation'; known: next-token"),
        ({"N": 10, "architecture": "1,2"}, "six integers"),
        ({"N": 10, "d": 3, "architecture": "8,9,1,1,10,40"}, "make them equal"),
        ({"N": 10, "omega": 0}, "omega = 0"),
        ({"N": 10, "zeros": -1}, "zeros = -1"),
        ({"N": 10, "contexts": 11}, "at most 10 labels"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        lower_bound(**arguments)  # type: ignore[arg-type]


def test_bad_separation() -> None:
    for bad in (0, -1, float("nan"), float("inf"), "wide"):
        with pytest.raises(OptionError, match="delta"):
            bounds(N=10, delta=bad)  # type: ignore[arg-type]


def test_no_such_quantity() -> None:
    with pytest.raises(OptionError, match="no lower bound on width"):
        lower_bound(N=10).strongest("width")


@pytest.mark.parametrize("task", [Task.SEQ_TO_SEQ, Task.CAUSAL])
def test_bounds_on_points_count_sequences_not_tokens(task: Task) -> None:
    """A sequence of equal tokens is one point. 12 of them, 60 tokens long, were reported to need 360 parameters."""
    found = {b.ref.paper: b for b in lower_bound(task=task, N=12, n=60, r=1, delta=Fraction(1, 2**1000)).bounds}
    one = {b.ref.paper: b for b in lower_bound(task="next-token", N=12, n=60, r=1, delta=Fraction(1, 2**1000)).bounds}
    assert found["S97"].value == one["S97"].value == 6 and found["SI24"].value == one["SI24"].value <= 7
    fewer = {b.ref.paper: b.value for b in lower_bound(task=task, N=12, n=60, contexts=4).bounds}
    assert fewer["S97"] == 2


def test_such_rows_are_memorized_with_fewer_parameters_than_were_said_to_be_needed() -> None:
    """The network that refuted the bound with nN in it: 12 rows of 60 equal tokens, as close as 2^-1000."""
    rows = [[[value]] * 60 for value in [*(k * 2.0**-1000 for k in range(11)), 1.0]]
    labels = [[k * k % 3 % 2] * 60 for k in range(12)]
    how = {"task": "seq-to-seq", "construction": "compact", "positions": False, "progress": False}
    memory = byheart.memorize(rows, labels, **how)  # type: ignore[arg-type]
    assert memory.certificate.verdict.value == "proved"
    bounds = lower_bound(task="seq-to-seq", N=12, n=60, r=1, delta=Fraction(1, 2**1000)).bounds
    assert all(b.value <= memory.size.parameters for b in bounds if b.scope == "any points")


def test_a_cited_bound_says_so() -> None:
    sontag = next(b for b in lower_bound(N=100).bounds if b.ref.paper == "S97")
    assert not sontag.proved and sontag.cited and sontag.as_dict()["cited"] is True
    assert sontag.sentence == "at least 50 parameters (cited, not proved here)"
    assert all(b.proved and not b.cited for b in lower_bound(N=100).bounds if b.ref.paper != "S97")


@pytest.mark.parametrize(
    ("task", "N", "n", "omega", "contexts"),
    [
        ("next-token", 100, 1, 10, 10),
        ("next-token", 100, 2, 10, 100),
        ("seq-to-seq", 100, 1, 10, 10),
        ("seq-to-seq", 1000, 4, 5, 2500),
        ("causal", 1000, 8, 50, 50 + 7 * 1000),
        ("causal", 1000, 3, 10, 1110),
        ("causal", 7, 5, 7, 35),
        ("causal", 10**18, 10**18, 2, 2**60 - 2 + 10**18 * (10**18 - 59)),
        ("next-token", 1, 1, 2, 1),
    ],
)
def test_no_more_contexts_than_the_vocabulary_has(task: str, N: int, n: int, omega: int, contexts: int) -> None:
    """1,000 documents of 8 tokens out of 50 have 7,050 prefixes at most, not 8,000: Theorem 5 serves them with fewer
    parameters than 8,000 would force."""
    problem = Problem(task, N, n, omega=omega)
    assert problem.distinct_contexts == contexts
    found = {str(b.ref): b.value for b in bounds(N, n, task=task, omega=omega)}
    assert found["M24, Lemma 1"] == contexts * (omega - 1)
