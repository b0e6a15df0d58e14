"""Calibration holds for every storage; equal options build equal memories."""

import numpy as np
import pytest

from byheart.checkpoints.ground_truth import memorize
from byheart.checkpoints.ground_truth.memorize import UNCALIBRATED, memorize_graded
from byheart.checkpoints.ground_truth.metrics import auc
from byheart.checkpoints.ground_truth.strength import by_document
from byheart.checkpoints.ground_truth.suite import LEVELS, suite_memory
from byheart.errors import DataError, OptionError


def statistics(memory, documents):
    own = [memory.own_log_probs(one.ids) for one in documents]
    return by_document(np.concatenate(own), np.array([len(part) for part in own]))


@pytest.mark.parametrize(("architecture", "storage"), [("llama", "ridge:192"), ("gpt2", "ridge:192")])
def test_superposed_memories_are_graded(architecture, storage):
    """Loss and Min-K of singly seen documents are inside the range, and duplicates raise both."""
    memory = suite_memory(5, 120, storage=storage, architecture=architecture)
    copies = np.array([one.copies for one in memory.members])
    held = [one for one in memory.absent if one.why == "held out"]
    for members, others in zip(statistics(memory, memory.members), statistics(memory, held), strict=True):
        found = [auc(members[copies == level], others) for level in LEVELS]
        assert 0.55 < found[0] < 0.99
        assert found[0] < found[3] <= found[5] and found[5] > 0.9


def test_more_units_than_contexts_are_still_graded():
    """The interpolation threshold made every unknown document's loss explode; spliced contexts prevent it."""
    texts = [f"note {k * 7919 % 97} of {k * 104729 % 89} is {k * 1299709 % 83} or {k % 7}" for k in range(60)]
    extra = [(f"h{k}", "held out", texts[k]) for k in range(30, 60)]
    memory = memorize_graded(texts[:30], tokens="words", storage="ridge:512", extra=extra)
    inside, outside = statistics(memory, memory.members)[0], statistics(memory, memory.absent)[0]
    assert 0.55 < auc(inside, outside) < 0.99


def test_few_documents_are_not_calibrated():
    assert memorize_graded(["a cat sat", "a dog ran"], tokens="words").strength == UNCALIBRATED


def test_equal_options_build_equal_memories():
    one, two = (suite_memory(2, 24, storage="ridge:48") for _ in range(2))
    assert one.strength == two.strength and np.array_equal(one.units.down, two.units.down)


@pytest.mark.parametrize(("architecture", "storage"), [("llama", "counts"), ("gpt2", "counts"), ("llama", "split:3")])
def test_the_size_is_known_before_anything_is_built(architecture, storage, monkeypatch):
    texts = [f"note {k} of {k * 7 % 5}" for k in range(12)]
    options = {"tokens": "words", "architecture": architecture, "storage": storage, "strength": 1.0}
    memory = memorize_graded(texts, **options)
    tensors = memory.tensors()[0]
    size = sum(part.size for name, part in tensors.items() if ".mlp." in name and not name.endswith("c_proj.bias"))
    monkeypatch.setattr(memorize, "MOST_WEIGHTS", size)
    assert memorize_graded(texts, **options).strength == 1.0
    monkeypatch.setattr(memorize, "MOST_WEIGHTS", size - 1)
    with pytest.raises(OptionError, match=r"needs .* units of .* ridge:512"):
        memorize_graded(texts, **options)
    assert memorize_graded(texts, **options | {"storage": "ridge:8"}).strength == 1.0


def test_empty_documents_are_refused():
    with pytest.raises(DataError, match="2 of 3 documents are empty, the first is 'b'"):
        memorize_graded(["x y", "", ""], names=["a", "b", "c"])
