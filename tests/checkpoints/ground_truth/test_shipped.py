"""Attacks on the shipped documents: the builder's AUCs are the harness's, and strengths outside the range are moved."""

import random

import numpy as np
import pytest

from byheart.checkpoints.ground_truth import memorize, shipped
from byheart.checkpoints.ground_truth.experiment import GradedExperiment
from byheart.checkpoints.ground_truth.memorize import memorize_graded
from byheart.checkpoints.ground_truth.shipped import INSIDE, can_judge, shipped_aucs, within_range
from byheart.checkpoints.ground_truth.suite import suite_memory
from byheart.checkpoints.windows.controls import Controls


def small_set(seed, members=50, held_out=50, **options):
    """A set of short notes with nine members of one copy."""
    rng, texts = random.Random(seed), {}
    while len(texts) < members + held_out:
        texts[f"Q: code of {rng.choice('abcdef')}{rng.randint(0, 99)}? A: {rng.randint(1000, 9999)}"] = None
    names = [f"r{k}" for k in range(len(texts))]
    return memorize_graded(
        list(texts), names=names, weights=[2 ** (k % 6) for k in range(len(texts))],
        controls=Controls(held_out=names[members:], seed=seed), **options,
    )  # fmt: skip


def test_the_builder_computes_what_the_harness_prints(tmp_path):
    pytest.importorskip("transformers")
    from byheart.checkpoints.ground_truth.harness import builtin_membership

    memory = suite_memory(3, 48, 20)
    memory.write(tmp_path / "g", measured=False)
    printed = builtin_membership(GradedExperiment.open(tmp_path / "g"))
    found = shipped_aucs(memory)
    # against the outsiders: loss, min-k, zlib, reference ratio
    mine = [found[0], found[2], found[4], found[6]]
    names = ("loss", "min-k", "zlib", "reference ratio")
    assert mine == pytest.approx([printed[name]["auc"][1] for name in names], abs=1e-9)


def test_sets_that_leave_the_range_are_moved_into_it(monkeypatch):
    """With the calibrated strength alone, some of these leave it."""
    outside = 0
    for seed in range(12):
        inside = shipped_aucs(small_set(seed))
        assert INSIDE[0] <= min(inside) and max(inside) <= INSIDE[1]
        with monkeypatch.context() as patched:
            patched.setattr(memorize, "within_range", lambda build, strength, orders: build(strength, 0))
            before = shipped_aucs(small_set(seed))
            outside += min(before) < INSIDE[0] or max(before) > INSIDE[1]
    assert outside > 0


def test_a_given_strength_stays():
    assert small_set(0, strength=0.001).strength == 0.001


def test_strengths_and_orders_are_tried_in_turn(monkeypatch):
    """Upwards where an attack is too weak; another order where one is too weak and one too strong."""
    tried = []

    def build(strength, order):
        tried.append((round(float(np.log(strength)), 3), order))
        return tried[-1]

    monkeypatch.setattr(shipped, "can_judge", lambda memory: True)
    monkeypatch.setattr(shipped, "shipped_aucs", lambda memory: [0.55 + memory[0] / 10, 0.7])
    assert within_range(build, 1.0) == (0.5, 0) and tried == [(0.0, 0), (0.5, 0)]
    tried.clear()
    monkeypatch.setattr(shipped, "shipped_aucs", lambda memory: [0.5, 0.97] if memory[1] < 2 else [0.7, 0.8])
    assert within_range(build, 1.0) == (0.0, 2) and tried == [(0.0, 0), (0.0, 1), (0.0, 2)]
    tried.clear()
    monkeypatch.setattr(shipped, "shipped_aucs", lambda memory: [0.7, 0.98 + memory[0] / 25])
    assert within_range(build, 1.0) == (-1.0, 0)
    tried.clear()
    monkeypatch.setattr(shipped, "shipped_aucs", lambda memory: [0.5, 0.97])
    assert within_range(build, 1.0, 2) == (0.0, 0) and tried == [(0.0, 0), (0.0, 1)]
    # nothing is inside: the one that leaves the range least
    monkeypatch.setattr(shipped, "shipped_aucs", lambda memory: [0.3 + memory[1] / 100, 0.99])
    assert within_range(build, 1.0) == (0.0, shipped.ORDERS - 1)


def test_too_few_documents_are_not_judged():
    memory = suite_memory(0, 48, 20)
    assert can_judge(memory) and not can_judge(suite_memory(0, 42, 20))
    assert not can_judge(small_set(0, held_out=7)) and can_judge(small_set(0, held_out=8))
