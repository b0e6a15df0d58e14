"""Units compute what they store: counted units the rises, superposed units their fit."""

import numpy as np
import pytest

from byheart.checkpoints.ground_truth.ngram import contexts_of
from byheart.checkpoints.ground_truth.storage import GradedStorage, counted_units, idle
from byheart.checkpoints.ground_truth.suite import suite_memory
from byheart.errors import OptionError


def raw_channels(codes, back):
    return np.concatenate([np.ones((len(back), 1)), codes[back].reshape(len(back), -1)], axis=1)


@pytest.mark.parametrize(("gated", "parts"), [(True, 1), (False, 1), (True, 3)])
def test_counted_units_sum_to_the_rises(gated, parts):
    memory = suite_memory(1, 12)
    units = counted_units(memory.ngram, memory.shape.codes, gated=gated, parts=parts, seed=5)
    back = contexts_of(memory.members[3].ids[:-1], 8)
    x = raw_channels(memory.shape.codes, back)
    gate = x @ units.gate.T
    if gated:
        with np.errstate(over="ignore"):
            active = gate / (1 + np.exp(-gate)) * (x @ units.up.T) / units.output
    else:
        active = np.maximum(gate, 0) / units.output
    assert active @ units.down == pytest.approx(memory.ngram.logits(back) - memory.base, abs=1e-4)
    assert len(units.rule) == parts * memory.ngram.rules


def test_idle_units_write_nothing():
    memory = suite_memory(1, 12)
    gone = np.arange(len(memory.units.rule)) % 2 == 0
    found = idle(memory.units, gone)
    assert not found.down[gone].any() and np.array_equal(found.down[~gone], memory.units.down[~gone])
    assert (found.rule[gone] == -1).all() and (np.abs(found.gate).max(axis=1) > 0).all()


def test_parts_have_shares_of_their_context_alone():
    """A twin's split units are those of the whole model, so forgetting compares them bit by bit."""
    memory = suite_memory(1, 12, storage="split:2")
    twin = memory.without(["r4"])
    mine = {row.tobytes() for row in memory.units.gate}
    assert {row.tobytes() for row in twin.units.gate} < mine


@pytest.mark.parametrize("text", ["ridge", "ridge:0", "split:x", "counts:2", "", "ridge:9999999"])
def test_unknown_storages(text):
    with pytest.raises(OptionError, match="storage"):
        GradedStorage.parse(text)
