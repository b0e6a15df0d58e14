"""Folders appear whole or not at all; the safetensors writer agrees with the safetensors library."""

import json

import numpy as np
import pytest
import safetensors.numpy

from byheart.certify import Verdict
from byheart.checkpoints.engines import read_queries
from byheart.checkpoints.formats.folder import check_target, safetensors_bytes, sharded, write_files
from byheart.checkpoints.formats.stock import read_decoder
from byheart.checkpoints.proof import certify_checkpoint
from byheart.checkpoints.suite.write import fixture_memory
from byheart.errors import ExportError, FileFormatError, OptionError
from tests.checkpoints.recital_folders import SHORT, copy_of


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


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_shards_share_the_tensors_out(count):
    tensors = {f"t{k}": np.full((k + 1, 4), float(k)) for k in range(5)}
    files = sharded(tensors, "float32", {"format": "pt"}, count)
    stored = {
        n: a for f, data in files.items() if f.endswith(".safetensors") for n, a in safetensors.numpy.load(data).items()
    }
    assert {name: array.tolist() for name, array in stored.items()} == {k: v.tolist() for k, v in tensors.items()}
    assert len(files) == (1 if count == 1 else count + 1)
    if count > 1:
        index = json.loads(files["model.safetensors.index.json"])
        assert index["metadata"]["total_size"] == sum(array.nbytes for array in stored.values())
        for name, file in index["weight_map"].items():
            assert name in safetensors.numpy.load(files[file])
    with pytest.raises(OptionError, match="5 tensors"):
        sharded(tensors, "float32", {}, 6)


def test_a_folder_in_shards_is_proved_and_its_index_is_checked(tmp_path):
    memory = fixture_memory(SHORT, "bpe:300")
    memory.to_huggingface(tmp_path / "one", "llama")
    memory.to_huggingface(tmp_path / "three", "llama", shards=3)
    documents = read_queries(tmp_path / "one").documents
    one, three = (certify_checkpoint(tmp_path / name, documents, ("float32",)) for name in ("one", "three"))
    assert three.verdict is Verdict.PROVED and three.types[0].margin == one.types[0].margin
    assert three.fingerprint != one.fingerprint, "the fingerprint is of the files"
    index = tmp_path / "three" / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    names = sorted(content["weight_map"])
    moved = content["weight_map"] | {names[0]: content["weight_map"][names[-1]]}
    for wrong in (
        moved,
        {names[0]: "../one/model.safetensors"},
        {},
        {**content["weight_map"], "more": "gone.safetensors"},
    ):
        copy = copy_of(tmp_path / "three", tmp_path / f"copy{len(list(tmp_path.iterdir()))}")
        (copy / index.name).write_text(json.dumps(content | {"weight_map": wrong}))
        with pytest.raises(FileFormatError):
            read_decoder(copy)
    (tmp_path / "three" / "model.safetensors").write_bytes((tmp_path / "one" / "model.safetensors").read_bytes())
    with pytest.raises(FileFormatError, match="two different models"):
        read_decoder(tmp_path / "three")
