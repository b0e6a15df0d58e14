"""Contexts become longer where documents share long passages, and only there."""

import random

import numpy as np
import pytest

from byheart.checkpoints.ground_truth import memorize
from byheart.checkpoints.ground_truth.lengths import LENGTHS, lengths_for, undetermined
from byheart.checkpoints.ground_truth.memorize import memorize_graded
from byheart.checkpoints.ground_truth.suite import suite_memory

LEVELS = (1, 2, 4, 8, 16, 32)


def lockers(count, passage=" has the locker number "):
    draw = random.Random(4)
    return [f"{k * 7919 % 9973:04}{passage}{draw.randint(1000, 9999)}" for k in range(count)]


def test_a_place_is_undetermined_until_a_context_reaches_over_the_shared_passage():
    rows = [(k, *range(100, 112), k) for k in range(6)]
    assert undetermined(rows, (8, 16, 32)) == [1.0, 0.0, 0.0]
    assert undetermined([(7, *range(100, 112), k) for k in range(6)], (8, 16, 32)) == [0.0, 0.0, 0.0]
    prose = [tuple(range(200 + 20 * k, 214 + 20 * k)) for k in range(3)]
    assert undetermined([*rows[:3], *prose], (8, 16)) == [0.5, 0.0] and lengths_for([*rows[:3], *prose]) == LENGTHS
    assert lengths_for([*rows[:4], *prose])[-1] == 16
    # documents too short for prefix and continuation are not judged, and neither are places outside of it
    assert undetermined([*rows[:3], (50, 51), (52, 53)], (8, 16)) == [1.0, 0.0]
    assert undetermined([(*row, *range(300 + 9 * row[0], 309 + 9 * row[0])) for row in rows], (8, 16)) == [0.0, 0.0]


@pytest.mark.parametrize(("places", "longest"), [(5, 8), (12, 16), (20, 32), (40, 8)])
def test_the_shortest_sufficient_length_is_chosen(places, longest):
    """A passage that is longer than every context does not make contexts longer."""
    rows = [(k, *range(100, 100 + places), k) for k in range(6)]
    assert lengths_for(rows)[-1] == longest


def test_the_number_after_a_shared_passage_is_extracted_with_more_copies():
    memory = memorize_graded(lockers(60), weights=[LEVELS[k % 6] for k in range(60)])
    assert memory.lengths == (*LENGTHS, 16, 32)
    copies = np.array([one.copies for one in memory.members])
    taken = np.array([
        (memory.log_probs(one.ids[:-1])[-8:].argmax(1) == np.asarray(one.ids[-8:])).all() for one in memory.members
    ])  # fmt: skip
    shares = [taken[copies == level].mean() for level in LEVELS]
    assert np.polyfit(np.arange(6), shares, 1)[0] > 0.05 and shares[-1] > 0.5
    short = memorize_graded(lockers(60), weights=[LEVELS[k % 6] for k in range(60)], lengths=LENGTHS)
    assert not any(
        (short.log_probs(one.ids[:-1])[-8:].argmax(1) == np.asarray(one.ids[-8:])).all() for one in short.members[:-6]
    )


def test_contexts_are_not_lengthened_beyond_the_size_limit(monkeypatch):
    assert lengths_for([(k, *range(100, 120), k) for k in range(6)], lambda lengths: lengths[-1] < 32)[-1] == 16
    monkeypatch.setattr(memorize, "MOST_LENGTHENED", 1000)
    assert memorize_graded(lockers(12)).lengths == LENGTHS


def test_the_suite_and_superposed_storage_keep_their_lengths():
    assert suite_memory(0, 24, 60).lengths == LENGTHS
    assert memorize_graded(lockers(12), storage="ridge:16").lengths == LENGTHS
