"""Traps: exact folds against a direct simulation, lines digit by digit, and sizes of the parts."""

import random

import pytest

from byheart.build.fold.traps import Traps, _exact_chain, range_bits, zero_or_one

TWO = Traps(6, (0.5, 0.5), (1, 0), 4)
THREE = Traps(12, (0.2, 0.3, 0.5), (2, 0, 1), 10)


@pytest.mark.parametrize("traps", [TWO, THREE])
def test_checks_agree_with_the_blocks_and_their_reading(traps):
    """The labels that the folds give are accepted, and one exchanged label is refused."""
    blocks, reading = traps.folds(1 << 40, "logits")
    top = _exact_chain(traps, 1 << 40).top
    rng = random.Random(traps.levels)
    values = sorted(rng.randrange(top) for _ in range(300))
    labels = []
    for value in values:
        for block in blocks:
            value = block(value)
        labels.append(reading.label(value))
    assert set(labels) == set(range(traps.classes)), "every label has a place"
    assert traps.checks(values, labels, 1 << 40)
    for place in (0, 150, 299):
        other = [*labels[:place], (labels[place] + 1) % traps.classes, *labels[place + 1 :]]
        assert not traps.checks(values, other, 1 << 40)
    assert not traps.checks([-1], [labels[0]], 1 << 40) and not traps.checks([top + 1], [labels[0]], 1 << 40)


def test_what_is_trapped_stays_below_zero():
    """A later fold never lifts a value above zero again."""
    blocks, _ = TWO.folds(1 << 40, "logits")
    top = _exact_chain(TWO, 1 << 40).top
    rng = random.Random(0)
    trapped = 0
    for _ in range(500):
        value, below = rng.randrange(top), False
        for block in blocks:
            value = block(value)
            assert not below or value < 0
            below = value < 0
        trapped += below
    assert 100 < trapped < 400, "about half of all values"


def test_a_line_is_doubled_at_every_step():
    slope, constant = TWO.line(3, 5, (0, 1, 2, 3), 8)
    left = TWO.steps - 1 - 4
    expected_slope, expected_constant = 3, 5
    for up, add in ((1, 8), (1, -8), (-1, 8), (-1, -8)):
        expected_slope, expected_constant = 2 * expected_slope + up, 2 * expected_constant + add
    assert (slope, constant) == (expected_slope << left, expected_constant << left)
    assert TWO.doublings == TWO.steps - 1


def test_a_value_head_maps_the_sign_to_zero_and_one():
    for trapped in (0, 1):
        blocks, _ = zero_or_one(trapped)
        for value in (-9, -1, 0, 1, 7):
            for block in blocks:
                value = block(value)
            assert value in (0, 1)
    assert TWO.parameters == 4 * 6 + 4 and THREE.parameters == 4 * 12 + 3 + 1 + 6


def test_larger_groups_and_more_classes_need_a_wider_range():
    assert range_bits(16, 2) <= range_bits(256, 2) < range_bits(1 << 16, 2)
    assert range_bits(16, 64) >= range_bits(16, 2)
