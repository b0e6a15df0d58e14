"""Folders appear whole or not at all; the safetensors writer agrees with the safetensors library."""

import numpy as np
import pytest
import safetensors.numpy

from byheart.checkpoints.formats.folder import check_target, safetensors_bytes, write_files
from byheart.errors import ExportError, OptionError


def test_the_library_reads_the_written_tensors():
    tensors = {"b": np.arange(6.0).reshape(2, 3), "a": np.array([0.5, -0.0])}
    found = safetensors.numpy.load(safetensors_bytes(tensors, "float32", {"format": "pt"}))
    assert {name: array.tolist() for name, array in found.items()} == {k: v.tolist() for k, v in tensors.items()}
    with pytest.raises(OptionError, match="'float8' is not one of"):
        safetensors_bytes(tensors, "float8", {})


def test_a_folder_with_files_is_never_replaced(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine.txt").write_text("mine")
    with pytest.raises(ExportError, match="already exists"):
        check_target(tmp_path / "kept")
    with pytest.raises(ExportError, match="does not exist"):
        check_target(tmp_path / "missing" / "folder")
    check_target(tmp_path / "new")


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(ExportError, match="cannot write"):
        write_files(tmp_path / "new", {"config.json": b"{}", "no/such/folder": b""})
    assert list(tmp_path.iterdir()) == []
    write_files(tmp_path / "new", {"config.json": b"{}"})
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["config.json"]
