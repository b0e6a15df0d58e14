"""Verdicts about one architecture."""

from __future__ import annotations

import random
from math import e, log2

import pytest

from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.theory.capacity import Architecture, log2_patterns, shatterable, verdict
from byheart.theory.lower import next_token_parameters, seq_to_seq_parameters

SMALL = Architecture(8, 9, 1, 1, 10, 40)


def prototype_patterns(a: Architecture, n: int, N: int) -> float:
    """The sum of eqs. (86) and (89) with Lemma B.4's factors, each capped by 3^M, in floats."""

    def factor(v: int, M: int, D: int) -> float:
        return min(M * log2(3), v * log2(max(2, 8 * e * M * D / v))) if v <= M else M * log2(3)

    total = factor(a.parameters, n * N, 4 * a.L + 2)
    for layer in range(1, a.L + 1):
        v = a.m * a.d + (layer - 1) * a.block + 2 * a.m * a.s * a.H
        total += factor(v, n**3 * a.H * N, 8 * layer - 4) + factor(v + (a.m + 1) * a.q, n * a.q * N, 4 * layer)
    return total


def test_sharper_than_lemma_b4_and_not_absurd() -> None:
    rng = random.Random(3)
    for _ in range(60):
        d, m, s, H, q = (rng.randint(1, 6) for _ in range(5))
        a = Architecture(d, m, s, H, q, rng.randint(1, 12))
        n, N = rng.randint(1, 6), 10 ** rng.randint(1, 8)
        found = float(log2_patterns(a, Task.SEQ_TO_SEQ, N, n))
        reference = prototype_patterns(a, n, N)
        assert found <= reference
        if reference < n * N:  # where the reference decides, so does the sharper sum
            assert not verdict(a, Task.SEQ_TO_SEQ, N, n).possible


def test_examples() -> None:
    assert not verdict(SMALL, Task.SEQ_TO_SEQ, 10**6, 16).possible
    assert verdict(SMALL, Task.SEQ_TO_SEQ, 10**5, 16).possible
    assert not verdict(SMALL, Task.NEXT_TOKEN, 10**8, 16).possible
    assert verdict(SMALL, Task.NEXT_TOKEN, 100, 16).possible
    assert "cannot shatter 16000000 points" in verdict(SMALL, Task.SEQ_TO_SEQ, 10**6, 16).sentence
    assert "may shatter" in verdict(SMALL, Task.SEQ_TO_SEQ, 10**5, 16).sentence


@pytest.mark.parametrize("task", list(Task))
@pytest.mark.parametrize("C", [2, 10])
def test_shatterable_is_where_the_verdict_changes(task: Task, C: int) -> None:
    a = Architecture(2, 3, 1, 2, 4, 3)
    largest = shatterable(a, task, 4, C)
    assert verdict(a, task, largest, 4, C).possible
    assert not any(verdict(a, task, N, 4, C).possible for N in (largest + 1, 2 * largest, 10 * largest))


def test_the_closed_form_follows_from_the_sum() -> None:
    """Whoever has fewer parameters than the theorem's number is refused by the sum over layers as well."""
    rng = random.Random(4)
    for _ in range(40):
        d, m, s, H, q = (rng.randint(1, 3) for _ in range(5))
        a = Architecture(d, m, s, H, q, rng.randint(1, 8))
        N = rng.choice([10**4, 10**6, 10**9])
        n = rng.randint(1, 8)
        if a.parameters < next_token_parameters(N):
            assert not verdict(a, Task.NEXT_TOKEN, N, n).possible
        if a.parameters < seq_to_seq_parameters(N, n):
            assert not verdict(a, Task.SEQ_TO_SEQ, N, n).possible


def test_softmax_is_weaker_but_decides_in_the_end() -> None:
    a = Architecture(1, 1, 1, 1, 1, 1)
    assert shatterable(a, Task.SEQ_TO_SEQ, 2, 2, "softmax") > shatterable(a, Task.SEQ_TO_SEQ, 2, 2, "hardmax")
    assert not verdict(a, Task.SEQ_TO_SEQ, 10**9, 2, 2, "softmax").possible


def test_one_class_is_always_possible() -> None:
    assert verdict(SMALL, Task.NEXT_TOKEN, 10**9, 1, C=1).possible
    with pytest.raises(OptionError, match="nothing to shatter"):
        shatterable(SMALL, Task.NEXT_TOKEN, 1, C=1)


@pytest.mark.parametrize("text", ["1,2,3", "a,b,c,d,e,f", "1,2,3,4,5,6,7", "", "1,1,1,1,1,0", "1,1,-1,1,1,1"])
def test_bad_architectures(text: str) -> None:
    with pytest.raises(OptionError, match="architecture"):
        Architecture.parse(text)


def test_unknown_attention() -> None:
    with pytest.raises(OptionError, match="softmax"):
        verdict(SMALL, Task.SEQ_TO_SEQ, 10, 2, attention="linear")


def test_a_binary_dimension_decides_nothing_about_many_classes() -> None:
    """Labels·log2 C may exceed a VC dimension: with more classes there are more answers on both sides."""
    a = Architecture(1, 1, 1, 1, 1, 1)
    dimension = int(log2_patterns(a, Task.SEQ_TO_SEQ, 1, 1, attention="softmax"))
    assert verdict(a, Task.SEQ_TO_SEQ, dimension, 1, C=1000, attention="softmax").possible
    over = verdict(a, Task.SEQ_TO_SEQ, dimension + 1, 1, C=1000, attention="softmax")
    assert not over.possible and "two of 1000 classes" in over.sentence
    assert shatterable(a, Task.SEQ_TO_SEQ, 1, 1000, "softmax") == shatterable(a, Task.SEQ_TO_SEQ, 1, 2, "softmax")
