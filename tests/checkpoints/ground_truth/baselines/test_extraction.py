"""Greedy continuations equal those of the specification."""

import pytest

from byheart.checkpoints.ground_truth.baselines.extraction import extraction_cuts, greedy
from byheart.checkpoints.ground_truth.suite import suite_memory

pytest.importorskip("transformers")


def test_greedy_follows_the_specified_distribution():
    memory = suite_memory(0, 12)
    prefixes = [one.ids[:size] for one, size in zip(memory.members, (3, 3, 6, 9), strict=False)]
    for prefix, found in zip(prefixes, greedy(memory.torch(), prefixes, 5), strict=True):
        ids = list(prefix)
        for _ in range(5):
            ids.append(int(memory.log_probs(ids)[-1].argmax()))
        assert found == tuple(ids[-5:])


def test_a_continuation_is_the_last_one_that_no_other_document_has():
    documents = [(0, 1, 2, 3, 9, 9), (0, 1, 4, 5, 9, 9), (0, 6, 7, 8), (9, 9, 9, 9)]
    assert extraction_cuts(documents, 2, 1) == [3, 3, 2, 2]
    # a document that has no such place keeps its end, and repetitions inside a document count once
    assert extraction_cuts([(0, 1, 2), (0, 1, 2)], 2, 1) == [1, 1]
    assert extraction_cuts([(5, 5, 5, 5)], 2, 1) == [2]
    assert extraction_cuts(documents[:2], 2, 4) == [4, 4]
