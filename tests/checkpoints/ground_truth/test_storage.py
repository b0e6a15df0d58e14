"""Units compute what they store: counted units the rises, superposed units their fit."""

import numpy as np
import pytest

from byheart.checkpoints.ground_truth.ngram import NgramModel, contexts_of
from byheart.checkpoints.ground_truth.storage import GradedStorage, counted_units, idle, outputs
from byheart.checkpoints.ground_truth.suite import suite_memory
from byheart.checkpoints.hosts.codes import code_book
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


@pytest.mark.parametrize(("tokens", "lengths"), [(8, (1, 2, 4, 8)), (40, (1, 2, 4, 8)), (300, (1, 2, 4, 8, 16, 32))])
def test_plain_units_stay_below_the_largest_float16(tokens, lengths):
    """At the opposite of its context, a unit's input is the sum of all its weights."""
    rng = np.random.default_rng(0)
    documents = [tuple(rng.integers(0, tokens, 40)) for _ in range(4)]
    model = NgramModel.count(documents, np.ones((4, len(lengths))), np.zeros(tokens), lengths, (1.0,) * len(lengths))
    units = counted_units(model, code_book(tokens).words.astype(float), gated=False)
    assert 10_000 < np.abs(units.gate).sum(axis=1).max() < 65504


def test_outputs_grow_with_the_length_and_do_not_change_the_function():
    """Ascent moves logits in proportion to the output, so contexts that documents share have the least."""
    assert outputs((1, 2, 3, 5), 16, gated=True) == [256.0, 512.0, 512.0, 1024.0]
    assert outputs((1, 32), 64, gated=False) == [16.0, 64.0]
    memory = suite_memory(1, 12, 20)
    rule, first = memory.units.rule, np.cumsum([0, *(len(level.nodes) for level in memory.ngram.levels)])
    for number, output in enumerate(outputs(memory.lengths, 32, gated=True)):
        mine = (first[number] <= rule) & (rule < first[number + 1])
        assert set(memory.units.output[mine]) == {output}
