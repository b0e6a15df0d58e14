"""Few contexts with two labels: the zigzag reads signs, and the search finds ids with few runs."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.build.fold.zigzag import few_runs, zigzag
from byheart.data.dataset.dataset import load
from byheart.errors import OptionError
from byheart.exact import dyadic
from byheart.memory import memorize
from byheart.memory.compare.comparison import random_dataset
from byheart.memory.memorize import memorize_dataset


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.integers(-1000, 1000), st.integers(0, 1), min_size=2), st.integers(0, 9))
def test_the_sign_is_the_label(table, bits):
    ids, labels = list(table), list(table.values())
    if len(set(labels)) < 2:
        return
    found = zigzag(ids, labels, bits)
    for x, label in table.items():
        height = found.sign * (found.block(dyadic(x, -bits)) + found.shift)
        assert (height > 0) == bool(label) and height != 0
    ordered = [label for _, label in sorted(table.items())]
    assert found.runs == 1 + sum(a != b for a, b in pairwise(ordered))
    assert len(found.block.units) == found.runs - 2


def test_the_search_finds_fewer_runs_than_chance_and_its_ids_are_its_weights():
    rng = np.random.default_rng(0)
    own, total = rng.integers(-4000, 4000, (80, 6)), rng.integers(-9000, 9000, (80, 6))
    labels = rng.integers(0, 2, 80)
    found = few_runs(own, total, labels, steps=4000, restarts=2, seed=1)
    again = few_runs(own, total, labels, steps=4000, restarts=2, seed=1)
    assert found.runs <= 28 and (found.weights, found.factor) == (again.weights, again.factor)  # chance: 40 ± 4
    ids = (own @ np.array(found.weights)) * 2**found.bits + (total @ np.array(found.weights)) * found.factor
    assert ids.tolist() == list(found.ids)
    ordered = labels[np.argsort(ids)]
    assert found.runs == 1 + np.count_nonzero(np.diff(ordered))


def test_equal_inputs_with_different_labels_have_no_order():
    nothing = np.zeros((2, 3), int)
    assert few_runs(nothing, nothing, np.array([0, 1]), steps=10, restarts=1, seed=0) is None


def test_labels_that_follow_from_the_inputs_need_no_block():
    rng = random.Random(0)
    rows = [[tuple(rng.randrange(-500, 500) / 8 for _ in range(4)) for _ in range(3)] for _ in range(600)]
    labels = [int(sum(token[1] - token[2] for token in row) > 0.3) for row in rows]
    memory = memorize(rows, labels, positions=False, progress=False)
    assert memory.certificate.verdict == "proved" and memory.size.parameters < 60
    assert memory.predict(rows) == labels and "runs of labels" in memory.notes[-1]


CASES = [("next-token", False), ("seq-to-seq", True), ("set", False), ("causal", True)]


@pytest.mark.parametrize(("task", "positions"), CASES)
def test_a_small_memory_of_every_task_is_proved(task, positions):
    dataset = random_dataset(8, 3, 4, 2, task)
    if positions:
        dataset = load(dataset.sequences(), dataset.label_values(), task=task, positions=True)
    memory = memorize_dataset(dataset, construction="compact", progress=False)
    assert memory.certificate.verdict == "proved" and "runs of labels" in memory.notes[-1]
    assert memory.size.parameters <= memory.claim.bounds["parameters"]


def test_symbols_keep_their_hash_and_a_given_head_is_kept():
    rng = random.Random(3)
    rows = list({"".join(rng.choice("abcdefgh") for _ in range(5)) for _ in range(90)})
    labels = [rng.randrange(2) for _ in rows]
    small = memorize(rows, labels, construction="compact", abstain_bits=0, progress=False)
    plain = memorize(rows, labels, construction="compact", abstain_bits=0, progress=False, head="value")
    assert small.predict(rows) == plain.predict(rows) == labels
    assert small.size.parameters < plain.size.parameters and plain.options["head"] == "value"


def test_the_recorded_options_build_the_same_network_again():
    dataset = random_dataset(60, 3, 3, 2)
    memory = memorize_dataset(dataset, construction="compact", progress=False)
    again = memorize_dataset(dataset, construction="compact", progress=False, **memory.options)
    assert memory.options["head"] == "sign" and again.network == memory.network


def test_a_sign_needs_two_labels_and_few_parameters_as_the_aim():
    with pytest.raises(OptionError, match="exactly two labels"):
        memorize_dataset(random_dataset(9, 2, 2, 3), construction="compact", progress=False, head="sign")
    with pytest.raises(OptionError, match="not for objective=depth"):
        memorize(["ab", "ba"], [0, 1], construction="compact", progress=False, head="sign", objective="depth")
    with pytest.raises(OptionError, match="sign always names a class"):
        memorize(["ab", "ba"], [0, 1], construction="compact", progress=False, head="sign", abstain_bits=4)
