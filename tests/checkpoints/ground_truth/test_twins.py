"""Exact unlearning: the edited folder equals the twin, and the comparison refutes anything else."""

import json

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.ground_truth.graded import GradedMemory
from byheart.checkpoints.ground_truth.suite import suite_memory
from byheart.checkpoints.ground_truth.twins import compare_units, forget_exactly, rebuild
from byheart.errors import FileFormatError, OptionError

pytest.importorskip("transformers")


@pytest.mark.parametrize(
    ("architecture", "storage"),
    [
        ("llama", "counts"),
        pytest.param("gpt2", "counts", marks=pytest.mark.slow),
        pytest.param("llama", "split:2", marks=pytest.mark.slow),
        ("llama", "ridge:48"),
    ],
)
def test_forgetting_equals_the_twin(architecture, storage, tmp_path):
    suite_memory(1, 18, architecture=architecture, storage=storage).write(tmp_path / "g", measured=False)
    done = forget_exactly(tmp_path / "g", ["r5"], tmp_path / "less")
    assert done.verdict is Verdict.PROVED and done.nats <= 1e-5 and done.influence[0] > 0
    assert "r5" not in GradedMemory.load(tmp_path / "less").names
    if storage == "counts":
        assert 0 < done.removed < done.removed + done.rewritten < 2000
        lines = (tmp_path / "less" / "units.jsonl").read_text("utf-8").splitlines()
        numbers = [json.loads(line)["unit"] for line in lines]
        assert len(numbers) == GradedMemory.load(tmp_path / "less").ngram.rules and numbers == sorted(numbers)


def test_sabotage_is_refuted(tmp_path):
    suite_memory(1, 12).write(tmp_path / "g", measured=False)
    forget_exactly(tmp_path / "g", ["r5"], tmp_path / "less")
    assert compare_units(tmp_path / "g", tmp_path / "less-twin")[0] is Verdict.REFUTED
    path = tmp_path / "less" / "model.safetensors"
    data = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    for name in ("model.layers.0.mlp.down_proj.weight", "lm_head.weight", "model.layers.0.mlp.gate_proj.weight"):
        spoiled = bytearray(data)
        begin, end = (start + k for k in header[name]["data_offsets"])
        values = np.frombuffer(spoiled, "<f4", (end - begin) // 4, begin)
        values.setflags(write=True)
        values[np.flatnonzero(np.abs(values) > 1e-3 * np.abs(values).max())[0]] *= np.float32(1.001)
        path.write_bytes(spoiled)
        assert compare_units(tmp_path / "less", tmp_path / "less-twin")[0] is Verdict.REFUTED
        path.write_bytes(data)
    assert compare_units(tmp_path / "less", tmp_path / "less-twin")[0] is Verdict.PROVED


def test_changed_tensors_are_not_edited(tmp_path):
    suite_memory(1, 12).write(tmp_path / "g", measured=False)
    path = tmp_path / "g" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0@")
    with pytest.raises(FileFormatError, match="changed since"):
        forget_exactly(tmp_path / "g", ["r5"], tmp_path / "less")


def test_rebuild_and_its_refusals():
    memory = suite_memory(1, 12)
    assert rebuild(memory, without=["r1", 2]).names == tuple(f"r{k}" for k in range(12) if k not in (1, 2))
    with pytest.raises(OptionError, match="nothing would be left"):
        memory.without(memory.names)
    with pytest.raises(OptionError):
        memory.without(["nobody"])
