"""Splits of unlearning benchmarks: complete, disjoint, and with the exact retain model."""

import json

import pytest

from byheart.checkpoints.ground_truth.graded import GradedMemory
from byheart.checkpoints.ground_truth.layouts import write_open_unlearning
from byheart.checkpoints.ground_truth.suite import suite_memory
from byheart.errors import OptionError


def test_open_unlearning(tmp_path):
    memory = suite_memory(0, 20)
    counts = write_open_unlearning(memory, tmp_path / "e", percent=10)
    assert counts == {"full": 20, "forget10": 2, "retain90": 18, "holdout10": 20, "forget10_perturbed": 2}
    read = {
        path.stem: [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for path in (tmp_path / "e" / "splits").iterdir()
    }
    forget, retain = ({row["name"] for row in read[name]} for name in ("forget10", "retain90"))
    assert not forget & retain and forget | retain == set(memory.names)
    assert set(GradedMemory.load(tmp_path / "e" / "retain90").names) == retain
    texts = {memory.lexicon.decode(one.ids) for one in memory.members}
    assert {row["question"] + row["answer"] for row in read["full"]} == texts
    assert all(row["perturbed_answer"] != [row["answer"]] for row in read["forget10_perturbed"])
    with pytest.raises(OptionError, match="1 to 50"):
        write_open_unlearning(memory, tmp_path / "f", percent=90)
