"""Greedy continuations equal those of the specification."""

import pytest

from byheart.checkpoints.ground_truth.baselines.extraction import greedy
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
