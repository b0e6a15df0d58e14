"""ONNX with a key-value cache: what engines demand of the file, and recited by ONNX Runtime."""

import math

import pytest

from byheart.checkpoints.engines import recite
from byheart.checkpoints.formats.onnx_decoder import build_onnx_decoder, write_onnx_decoder
from byheart.checkpoints.formats.stock import read_decoder
from byheart.checkpoints.proof.tensors import open_tensors
from byheart.errors import OptionError
from tests.checkpoints.recital_folders import kinds_first, recital_folder

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("architecture", kinds_first())
def test_onnx_runtime_recites(architecture):
    found = recite(recital_folder(architecture), "onnxruntime", limit=40)
    assert found.passed, found.checks
    assert found.margin > 20
    assert {"every prefix", "greedy from the start", "batch of unequal lengths", "without a cache"} <= {
        check.name for check in found.checks
    }


def test_half_precision_recites_to_the_end():
    found = recite(recital_folder(), "onnxruntime", dtype="float16")
    assert found.passed, found.checks


def test_one_file_with_the_names_and_shapes_that_readers_expect(tmp_path):
    path = write_onnx_decoder(recital_folder(), tmp_path / "model.onnx")
    model = onnx.load(path)
    assert model.ir_version == 10
    assert [(i.domain, i.version) for i in model.opset_import] == [("", 20)]
    names = [i.name for i in model.graph.input]
    assert names[:5] == [
        "input_ids", "attention_mask", "position_ids", "past_key_values.0.key", "past_key_values.0.value",
    ]  # fmt: skip
    for end in (*model.graph.input[3:], *model.graph.output[1:]):
        shape = end.type.tensor_type.shape.dim
        assert shape[1].dim_value == 2
        assert shape[3].dim_value == 64, "a last dimension without a number is taken as 0 by some readers"
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


def test_a_tied_head_is_stored_once():
    tied = build_onnx_decoder(read_decoder(recital_folder("gemma"))).ByteSize()
    entries = open_tensors(recital_folder("gemma") / "model.safetensors").entries
    parameters = sum(math.prod(shape) for _, shape, _, _ in entries.values())
    assert tied < 4 * parameters * 1.02


def test_other_types_are_refused(tmp_path):
    with pytest.raises(OptionError, match="bfloat16"):
        write_onnx_decoder(recital_folder(), tmp_path / "model.onnx", dtype="bfloat16")
    assert not list(tmp_path.iterdir())
