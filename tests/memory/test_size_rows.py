"""Sizes beside bounds: nothing that is shown may be contradicted by the number beside it."""

from __future__ import annotations

import random

import pytest

import byheart
from byheart.data.dataset.dataset import load
from byheart.ir.size import uniform_parameters
from byheart.memory.compare.comparison import compare
from byheart.memory.size_rows import abstention_price, close_sentences, lower_sentences, size_rows
from byheart.theory.lower import close_points_parameters


def easy(N: int) -> tuple[list[list[int]], list[int]]:
    """A rule that one threshold computes."""
    return [[k] for k in range(N)], [int(k >= N // 2) for k in range(N)]


def drawn(N: int, C: int) -> tuple[list[list[int]], list[int]]:
    rng = random.Random(4)
    rows = sorted({(rng.randrange(9), rng.randrange(9), rng.randrange(9)) for _ in range(N)})
    return [list(row) for row in rows], [rng.randrange(C) for _ in rows]


def test_easy_labels_are_not_called_impossible():
    memory = byheart.memorize(*easy(3000), positions=False, progress=False)
    assert memory.size.parameters < 20  # worst-case labels of 3,000 rows need more
    assert all(row.lower_bound is None or row.lower_bound <= row.measured for row in size_rows(memory))
    assert any("easier than the worst case" in sentence for sentence in lower_sentences(memory))


def test_decoders_are_measured_by_their_own_bound():
    memory = byheart.memorize(["a b", "a c", "b c"], construction="madden24", progress=False)
    assert all(row.lower_bound is None for row in size_rows(memory))
    (sentence,) = lower_sentences(memory)
    assert "2 contexts over 3 tokens has at least 4 parameters (M24, Lemma 1)" in sentence


def test_memorize_and_compare_name_the_same_number():
    rows, labels = drawn(40, 3)
    memory = byheart.memorize(rows, labels, progress=False)
    found = compare(load(rows, labels), constructions=["compact"])
    assert found.lower[0] in lower_sentences(memory)


@pytest.mark.parametrize(("construction", "known"), [("ks25", True), ("compact", True), ("nilsson65", False)])
def test_the_uniform_count_is_never_smaller(construction, known):
    rows, labels = drawn(30, 2)
    memory = byheart.memorize(rows, labels, construction=construction, progress=False)
    count = uniform_parameters(memory.network)
    assert (count is not None) == known
    assert count is None or count >= memory.size.parameters


def test_points_that_stand_exponentially_close_are_told() -> None:
    """100 numbers between 0 and 1, two of them 2^-300 apart: Siegel's bound is far above √N, and is reported."""
    close = [[[2.0**-300]], [[0.0]], *([[k / 128]] for k in range(1, 99))]
    labels = [k % 2 for k in range(100)]
    dataset = load(close, labels, positions=False)
    (sentence,) = close_sentences(dataset)
    assert "√N is out of reach" in sentence and f"{close_points_parameters(100, 4**299)} parameters" in sentence
    apart = load([[[k / 128]] for k in range(100)], labels, positions=False)
    assert close_sentences(apart) == []


def test_one_class_has_no_labelling_that_is_hard():
    """ "Every chain with fewer than 1 parameters fails on some labelling" is false where there is only one."""
    rows = [f"{k:02}" for k in range(9)]
    memory = byheart.memorize(rows, ["x"] * 9, progress=False)
    assert lower_sentences(memory) == [] and all(row.lower_bound is None for row in size_rows(memory))
    assert not any("fails on" in sentence for sentence in compare(rows, ["x"] * 9, constructions=["compact"]).lower)


def test_labels_per_token_are_not_those_of_rows_of_equal_tokens() -> None:
    """Rows of equal tokens have one label each: a message about contexts where every token has one."""
    rng = random.Random(3)
    rows = [[rng.randrange(40) for _ in range(6)] for _ in range(30)]
    labels = [[rng.randrange(2) for _ in row] for row in rows]
    how = {"task": "seq-to-seq", "conflicts": "first", "progress": False}
    memory = byheart.memorize(rows, labels, construction="ks25", **how)
    (said, *_) = lower_sentences(memory)
    assert f"labelling of {memory.certificate.contexts:,} contexts" in said and "uniform attention" in said
    assert "equal tokens" not in said
    assert compare(memory.dataset, constructions=["ks25"]).lower[0] == said


def test_close_points_are_rows_not_tokens() -> None:
    """20 rows of 50 tokens are 20 points: with a bound for 1,000 the sentence named a number that nothing proves."""
    rows = [[[k * 2.0**-900]] * 49 + [[1.0 - k / 64]] for k in range(20)]
    labels = [[k % 2] * 50 for k in range(20)]
    dataset = load(rows, labels, task="seq-to-seq", positions=False)
    assert close_sentences(dataset) == []


def test_the_price_of_recognising_unknown_rows_is_measured():
    words = ["cat", "act", "dog", "god", "good"]
    memory = byheart.memorize(words, range(5), abstain_bits=16, progress=False)
    price = abstention_price(memory)
    bare = byheart.memorize(words, range(5), abstain_bits=0, progress=False)
    assert price is not None and price.rows == 5
    assert price.extra == memory.size.parameters - bare.size.parameters > 0
    assert abstention_price(bare) is None
