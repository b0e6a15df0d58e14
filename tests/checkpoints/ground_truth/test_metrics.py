"""Metrics against their definitions, written out."""

import numpy as np
import pytest

from byheart.checkpoints.ground_truth.metrics import auc, kl, np_extractable, precision_at, recall_at, top, tpr_at


def test_auc_counts_pairs():
    rng = np.random.default_rng(0)
    members, others = rng.integers(0, 6, 23).astype(float), rng.integers(0, 6, 17).astype(float)
    pairs = [(a > b) + 0.5 * (a == b) for a in members for b in others]
    assert auc(members, others) == pytest.approx(np.mean(pairs))
    assert auc(members, others) + auc(others, members) == pytest.approx(1.0)


def test_tpr_never_exceeds_the_false_positive_rate():
    rng = np.random.default_rng(1)
    members, others = rng.normal(1, 1, 300), rng.normal(0, 1, 250)
    for rate in (0.0, 0.01, 0.1):
        found = tpr_at(members, others, rate)
        thresholds = [t for t in others if (others > t).mean() <= rate]
        assert found == max((members > t).mean() for t in thresholds)


def test_kl_is_zero_for_equal_and_positive_otherwise():
    a, b = np.log([[0.5, 0.25, 0.25]]), np.log([[0.25, 0.5, 0.25]])
    assert kl(a, a)[0] == 0 and kl(a, b)[0] == pytest.approx(0.25 * np.log(2))


def test_recall_and_precision_at_k():
    truth, scores = np.array([5.0, 4.0, 0.0, 0.0]), np.array([1.0, 0.0, 2.0, 0.0])
    assert top(scores, 2).tolist() == [2, 0]
    assert recall_at(scores, truth, 2) == 0.5 and precision_at(scores, truth, 2) == 0.5
    assert recall_at(truth, truth, 2) == 1.0


def test_extractable_by_samples():
    # 69 tries at 1 % have a chance of 0.50016, 68 tries of 0.4951
    assert np_extractable(np.log(0.01), 69, 0.5) and not np_extractable(np.log(0.01), 68, 0.5)
    assert np_extractable(0.0, 1, 1 - 1e-9)
