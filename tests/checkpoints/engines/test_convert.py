"""Checkpoint folders as GGUF and ONNX: written after their engine recited them, or not at all."""

import json

import pytest
from click.testing import CliRunner

from byheart.checkpoints.engines import convert
from byheart.checkpoints.engines.convert import convert_folder
from byheart.checkpoints.engines.recite import Check, Recitation
from byheart.cli import commands
from byheart.errors import ExportError, OptionError
from tests.checkpoints.recital_folders import recital_folder

pytest.importorskip("onnxruntime")


def test_onnx_is_recited_and_written(tmp_path):
    done = convert_folder(recital_folder(), "onnx", tmp_path / "model.onnx")
    assert done.recitation.passed
    assert done.file.stat().st_size > 1_000_000


def test_what_is_not_recited_is_not_written(tmp_path, monkeypatch):
    wrong = Recitation("", "onnxruntime", "1", "float32", {}, (Check("every prefix", 9, 8, -1.0, "position 3"),), 0.1)
    monkeypatch.setattr(convert, "recite", lambda *a, **b: wrong)
    with pytest.raises(ExportError, match=r"every prefix: position 3; nothing was written"):
        convert_folder(recital_folder(), "onnx", tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_unknown_targets_and_types(tmp_path):
    with pytest.raises(OptionError, match="'torch'"):
        convert_folder(recital_folder(), "torch", tmp_path / "x")
    with pytest.raises(OptionError, match="Q9"):
        convert_folder(recital_folder(), "gguf", tmp_path / "x", dtype="Q9")


def test_the_command(tmp_path):
    pytest.importorskip("xllamacpp", reason="llama.cpp is not installed: pip install xllamacpp")
    words = ["export", str(recital_folder()), "--to", "gguf", "-o", str(tmp_path / "x.gguf"), "--json"]
    result = CliRunner().invoke(commands, words, standalone_mode=False)
    assert result.return_value == 0, result.output
    printed = json.loads(result.output)
    assert printed["dtype"] == "F16"
    assert printed["recitation"]["recited"] is True
    assert (tmp_path / "x.gguf").read_bytes()[:4] == b"GGUF"


def test_a_coarse_type_that_nobody_recited_is_named(tmp_path, monkeypatch):
    pytest.importorskip("gguf")
    from byheart.checkpoints.engines import _base

    monkeypatch.setattr(_base.Engine, "version", property(lambda self: None))
    assert "not recited: llama.cpp" in convert_folder(recital_folder(), "gguf", tmp_path / "a", dtype="F16").checked
    assert "--flavour quantized" in convert_folder(recital_folder(), "gguf", tmp_path / "b", dtype="Q4_0").checked
