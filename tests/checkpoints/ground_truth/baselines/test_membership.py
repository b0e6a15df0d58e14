"""Attacks on synthetic evidence."""

import numpy as np
import pytest

from byheart.checkpoints.ground_truth.baselines.membership import ATTACKS, Evidence, blind_auc


def evidence(own, reference=None, text="abc"):
    own = np.array(own)
    return Evidence(text, own, np.array(reference) if reference is not None else own)


def test_definitions():
    one = evidence([-1.0, -2.0, -3.0, -4.0, -10.0], [-1.0, -2.0, -3.0, -4.0, -5.0])
    assert ATTACKS["loss"](one) == -4.0 and ATTACKS["min-k"](one) == -10.0
    assert ATTACKS["reference ratio"](one) == -1.0
    longer = evidence(one.own, text="a longer text that zlib cannot shrink: qwertyuiopasdfghjkl")
    assert ATTACKS["zlib"](longer) > ATTACKS["zlib"](one)


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_a_lower_loss_scores_higher(name):
    base = np.full(10, -3.0)
    assert ATTACKS[name](evidence(base + 1, base)) > ATTACKS[name](evidence(base, base))


def test_blind_baseline_sees_a_shift_and_nothing_else():
    rng = np.random.default_rng(0)
    words = [f"w{k}" for k in range(40)]
    same = [" ".join(rng.choice(words, 12)) for _ in range(240)]
    assert 0.4 < blind_auc(same[:120], same[120:]) < 0.6
    assert blind_auc(same[:120], [f"{text} 2024" for text in same[120:]]) > 0.95
