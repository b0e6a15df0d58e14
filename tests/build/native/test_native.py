"""native from data to certificate: tasks, lengths, float types, options, refusals; and its size on large data."""

from __future__ import annotations

import random

import numpy as np
import pytest

import byheart
from byheart.build.native import front as native_front
from byheart.data.dataset.dataset import load
from byheart.errors import BuildError, OptionError
from byheart.memory import memorize_dataset
from tests.build.native.data import dataset

LENGTHS = (1, 2, 3, 5, 7, 8, 31, 49, 64, 100, 127, 128)  # 49 and other lengths whose 1/n rounds badly


def built(data, **options):
    return memorize_dataset(data, construction="native", progress=False, **options)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n", LENGTHS)
def test_every_length_is_proved(n, dtype):
    memory = built(dataset(40 if n > 1 else 20, 3, n, vocabulary=60), dtype=dtype)
    assert memory.certificate.verdict == "proved", memory.certificate.reason
    assert f"exact in any order: {dtype}" in memory.certificate.proofs


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n", [1, 2, 3, 6, 17, 49, pytest.param(128, marks=pytest.mark.slow)])
@pytest.mark.parametrize("task", ["causal", "set", "seq-to-seq"])
def test_other_tasks_of_every_length(task, n, dtype):
    rng = random.Random(n)
    rows = [[rng.randrange(30) for _ in range(n if task == "seq-to-seq" else rng.randint(1, n))] for _ in range(12)]
    rows = [list(row) for row in dict.fromkeys(map(tuple, map(sorted, rows)))]
    table: dict = {}
    label = lambda key: table.setdefault(key, rng.randrange(4))  # noqa: E731
    if task == "set":
        labels = [label(tuple(row)) for row in rows]
    else:
        stop = (lambda k: k + 1) if task == "causal" else lambda k: n
        labels = [[label((k, tuple(row[: stop(k)]))) for k in range(len(row))] for row in rows]
    memory = built(load(rows, labels, task=task), dtype=dtype)
    assert memory.certificate.verdict == "proved", memory.certificate.reason
    assert memory.predict(rows) == labels


def test_equal_multisets_with_other_last_tokens_stay_apart():
    """Own token plus sum would be 2a + 2b for both (a; a, b, b) and (b; a, a, b); the sum counts double."""
    rows, labels = [["b", "b", "a"], ["a", "a", "b"], ["a", "b", "a"]], [0, 1, 2]
    memory = byheart.memorize(rows, labels, construction="native", positions=False, progress=False)
    assert memory.certificate.verdict == "proved" and memory.predict(rows) == labels


def test_prefixes_in_the_same_proportions_are_refused_without_positions():
    rows, labels = [["a"], ["a", "a"]], [[0], [0, 1]]
    with pytest.raises(BuildError, match="turn positions on"):
        byheart.memorize(rows, labels, task="causal", construction="native", positions=False, progress=False)
    memory = byheart.memorize(rows, labels, task="causal", construction="native", progress=False)
    assert memory.predict(rows) == labels


def test_long_prefixes_without_positions_say_what_to_do():
    row = list(range(60))
    with pytest.raises(BuildError, match="turn positions on"):
        byheart.memorize([row], [row], task="causal", construction="native", positions=False, progress=False)


def test_vectors_with_equal_sums_stay_apart():
    """A linear map would give (0, 3) and (1, 2) the same sum."""
    rows = [[(a / 4, 0.5), (b / 4, 0.5)] for a in range(6) for b in range(6)]
    labels = [(a * b) % 5 for a in range(6) for b in range(6)]
    for dtype in ("float64", "float32"):
        memory = byheart.memorize(rows, labels, construction="native", dtype=dtype, progress=False)
        assert memory.certificate.verdict == "proved" and memory.predict(rows) == labels


def test_vectors_with_too_many_bits_are_refused_with_a_remedy():
    rng = random.Random(0)
    rows = [[(rng.gauss(0, 1), rng.gauss(0, 1))] for _ in range(5)]
    with pytest.raises(BuildError, match="round them"):
        byheart.memorize(rows, [0, 1, 0, 1, 0], construction="native", progress=False)


def test_a_vocabulary_too_large_for_a_table_is_scrambled(monkeypatch):
    monkeypatch.setattr(native_front, "MOST_TABLE_ROWS", 10)
    for dtype in ("float64", "float32"):
        memory = built(dataset(300, 3, n=5, vocabulary=40), dtype=dtype)
        assert memory.certificate.verdict == "proved" and memory.size.embedding_parameters == 0
        assert memory.to_torch(fast=True).metadata["byheart.checked"] == "every row of the data (300)"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_many_symbols_are_scrambled_where_that_is_smaller(dtype, monkeypatch):
    data = dataset(700, 3, n=3, vocabulary=600)
    table = built(data, dtype=dtype)
    monkeypatch.setattr(native_front, "FEW_TABLE_ROWS", 500)
    smaller = built(data, dtype=dtype)
    assert table.size.embedding_parameters > 0 == smaller.size.embedding_parameters
    assert smaller.size.parameters < table.size.parameters / 2
    assert smaller.certificate.verdict == "proved" and smaller.predict(data.sequences()) == data.label_values()
    assert built(data, dtype=dtype, objective="speed").size.embedding_parameters > 0
    assert smaller.to_torch().metadata["byheart.checked"] == "every row of the data (700)"


def test_abstaining_refuses_most_strangers():
    data = dataset(1500, 2, n=4)
    memory = built(data, abstain_bits=6)
    assert memory.certificate.verdict == "proved"
    known = set(map(tuple, data.sequences()))
    rng = np.random.default_rng(9)
    symbols = data.encoder.symbols
    strange = [row for row in rng.choice(symbols, (4000, 4)).tolist() if tuple(row) not in known]
    accepted = np.mean([label is not byheart.UNKNOWN for label in memory.predict(strange)])
    assert abs(accepted - 2**-6) < 5 * (2**-6 / len(strange)) ** 0.5


def test_speed_takes_fewer_blocks_and_size_fewer_parameters():
    data = dataset(6000, 2)
    size, speed = built(data), built(data, objective="speed")
    assert speed.size.depth < size.size.depth and speed.size.parameters > size.size.parameters
    assert speed.certificate.verdict == size.certificate.verdict == "proved"


def test_bad_options_are_refused():
    data = dataset(20, 2, n=2)
    for options in ({"dtype": "float16"}, {"abstain_bits": -1}, {"objective": "beauty"}):
        with pytest.raises(OptionError):
            built(data, **options)


def label_bits_per_parameter(N: int, C: int, seed: int, **options) -> float:
    data = dataset(N, C, n=8, vocabulary=1000, seed=seed)
    memory = built(data, **options)
    assert memory.certificate.verdict == "proved"
    size = memory.size
    return N * (C - 1).bit_length() / (size.parameters - size.embedding_parameters)


def test_ten_thousand_binary_labels_take_few_parameters():
    assert label_bits_per_parameter(10_000, 2, 11) >= 1.9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("N", "C", "options", "least"),
    [
        (100_000, 2, {}, 5.0),
        (100_000, 16, {}, 6.5),
        (100_000, 2, {"dtype": "float32"}, 2.0),
        (1_000_000, 2, {}, 8.5),
    ],
)
def test_large_data_take_few_parameters(N, C, options, least):
    assert label_bits_per_parameter(N, C, 12, **options) >= least


def near_one(rng: random.Random, count: int, n: int, d: int, bits: int):
    """Rows of vectors whose coordinates differ in their last bits alone, with a label for every prefix."""
    rows = sorted(
        {
            tuple(tuple(1 + rng.randrange(1 << bits) * 2.0**-20 for _ in range(d)) for _ in range(n))
            for _ in range(count)
        }
    )
    known: dict = {}
    labels = [
        [known.setdefault((row[k], tuple(sorted(row[: k + 1]))), rng.randrange(2)) for k in range(n)] for row in rows
    ]
    return [list(row) for row in rows], labels


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize(("n", "d", "bits"), [(2, 2, 1), (3, 3, 8), (1, 2, 14)])
def test_vectors_far_from_zero_and_close_together(n, d, bits, positions):
    """Times a weight, 1 + k·2^-20 does not fit a float32: such networks were built, and not proved."""
    rows, labels = near_one(random.Random(n), 40, n, d, bits)
    last = [row[-1] for row in labels]
    memory = byheart.memorize(rows, last, construction="native", dtype="float32", positions=positions, progress=False)
    assert memory.certificate.verdict == "proved", memory.certificate.reason


def test_vectors_that_fill_a_part_of_their_range_fill_the_buckets_evenly():
    """Their numbers leave two bits free, which prefixes without positions did not fold away: a bucket got 64 keys."""
    rows, labels = near_one(random.Random(0), 500, 2, 1, 16)
    memory = byheart.memorize(
        rows, labels, task="causal", construction="native", dtype="float32", positions=False, progress=False
    )
    assert memory.certificate.verdict == "proved" and memory.certificate.guarantee == "kept"


def test_vectors_too_long_for_the_type_say_what_to_do():
    rows, labels = near_one(random.Random(0), 30, 2, 1, 20)
    with pytest.raises(BuildError, match="use dtype float64, round them"):
        byheart.memorize(
            rows, labels, task="causal", construction="native", dtype="float32", positions=False, progress=False
        )
