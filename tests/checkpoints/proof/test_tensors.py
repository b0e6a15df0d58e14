"""Files of tensors that only Python would read, or that two readers read differently, are refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.proof import tokenize
from byheart.checkpoints.proof.check import certify_checkpoint
from byheart.checkpoints.proof.tensors import INDEX, open_folder, open_tensors
from byheart.errors import FileFormatError
from tests.checkpoints.proof.folders import TEXT, copy, edit_tensor

DATA = np.arange(8, dtype="<f4").tobytes()
ENTRIES: dict[str, Any] = {
    "a": {"dtype": "F32", "shape": [1, 4], "data_offsets": [0, 16]},
    "b": {"dtype": "F32", "shape": [4], "data_offsets": [16, 32]},
}
PLAIN = json.dumps(ENTRIES)
REFUSED = {
    "a byte order mark": b"\xef\xbb\xbf" + PLAIN.encode(),
    "UTF-16": PLAIN.encode("utf-16"),
    "a lone surrogate": PLAIN.replace("{", '{"__metadata__": {"x": "\\ud800"}, ', 1).encode(),
    "zero bytes at the end": PLAIN.encode() + b"\0\0",
    "a truth value as a size": PLAIN.replace("[1, 4]", "[true, 4]").encode(),
    "a truth value as a place": PLAIN.replace("[0, 16]", "[false, 16]").encode(),
    "minus zero": PLAIN.replace("[0, 16]", "[-0, 16]").encode(),
    "a constant": PLAIN.replace('"shape": [4]', '"shape": [4], "x": NaN').encode(),
    "a float as a place": PLAIN.replace("[0, 16]", "[0.0, 16]").encode(),
    "a key twice": (PLAIN[:-1] + ', "b": ' + json.dumps(ENTRIES["b"]) + "}").encode(),
    "overlapping places": PLAIN.replace("[16, 32]", "[0, 16]").encode(),
    "another type of the same width": PLAIN.replace('"F32", "shape": [4]', '"I32", "shape": [4]').encode(),
    "a type in small letters": PLAIN.replace('"F32", "shape": [4]', '"f32", "shape": [4]').encode(),
    "three places": PLAIN.replace("[16, 32]", "[16, 32, 32]").encode(),
}


def file_of(path: Path, header: bytes, data: bytes = DATA) -> Path:
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path


def opens(path: Path) -> bool:
    """Whether the library of safetensors opens a file."""
    library = pytest.importorskip("safetensors")
    try:
        with library.safe_open(path, "np") as file:
            return all(file.get_tensor(name) is not None for name in file.keys())  # noqa: SIM118
    except library.SafetensorError:
        return False


@pytest.mark.parametrize("name", REFUSED)
def test_headers_that_not_every_reader_takes_are_refused(name: str, tmp_path: Path) -> None:
    path = file_of(tmp_path / "x.safetensors", REFUSED[name])
    with pytest.raises(FileFormatError):
        open_tensors(path)
    # The library itself takes the last one of two equal keys, and integers.
    assert opens(path) == (name in ("a key twice", "another type of the same width"))


def test_headers_that_every_reader_takes_are_read(tmp_path: Path) -> None:
    for number, header in enumerate((PLAIN, " " + PLAIN, PLAIN + "\n ", PLAIN.replace('"a"', '"\\u0061"'))):
        path = file_of(tmp_path / f"{number}.safetensors", header.encode())
        assert opens(path) and open_tensors(path).read("b").tolist() == [4.0, 5.0, 6.0, 7.0]


def test_bytes_that_belong_to_no_tensor_are_refused(tmp_path: Path) -> None:
    for number, data in enumerate((DATA + b"\0", DATA[:-1])):
        path = file_of(tmp_path / f"{number}.safetensors", PLAIN.encode(), data)
        assert not opens(path)
        with pytest.raises(FileFormatError):
            open_tensors(path)


def test_a_name_in_two_shards_is_refused(tmp_path: Path) -> None:
    owner = {"a": "1.safetensors", "b": "2.safetensors"}
    (tmp_path / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": owner}))
    for number, names in ((1, "a"), (2, "b")):
        entries = {n: ENTRIES[n] | {"data_offsets": [0, 16]} for n in names}
        file_of(tmp_path / f"{number}.safetensors", json.dumps(entries).encode(), DATA[:16])
    found = open_folder(tmp_path)
    assert found is not None and sorted(found.entries) == ["a", "b"]
    file_of(tmp_path / "2.safetensors", PLAIN.encode())
    with pytest.raises(FileFormatError, match="differ in 'a'"):
        open_folder(tmp_path)


@pytest.mark.parametrize("bits", [0x7FC1, 0xFF81, 0x7F80], ids=["quiet", "signalling", "infinite"])
def test_numbers_that_are_not_finite_are_refused(bits: int, llama: Path, tmp_path: Path) -> None:
    folder = copy(llama, tmp_path / "copy")
    path, name = folder / "model.safetensors", "model.norm.weight"
    start = open_tensors(path).entries[name][2]
    raw = bytearray(path.read_bytes())
    raw[start : start + 2] = struct.pack("<H", bits)
    path.write_bytes(bytes(raw))
    with pytest.raises(FileFormatError, match="not finite"):
        open_tensors(path).read(name)


def test_zeros_with_a_sign_change_nothing(llama: Path, tmp_path: Path) -> None:
    documents = tokenize(llama, [TEXT])
    folder = edit_tensor(
        copy(llama, tmp_path / "copy"), "model.layers.0.mlp.down_proj.weight", lambda w: np.where(w == 0, -0.0, w)
    )
    found, honest = (certify_checkpoint(x, documents, ("float32",), reach=100) for x in (folder, llama))
    assert found.verdict is Verdict.PROVED and found.margin == honest.margin
