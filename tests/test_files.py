"""Writing is all or nothing."""

from __future__ import annotations

import os

import pytest

from byheart.errors import FileFormatError
from byheart.files import parse, write_atomically


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "m.byheart"
    write_atomically(path, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileFormatError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["m.byheart"]


def test_writing_into_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileFormatError, match="cannot write"):
        write_atomically(tmp_path / "nowhere" / "m", b"new")


@pytest.mark.parametrize("text", ["NaN", "[1, Infinity]", "1.5", "1e3", '{"a": 1, "a": 2}'])
def test_json_that_two_readers_may_take_for_two_things_is_refused(text):
    with pytest.raises(FileFormatError, match=r"is not an integer|occurs twice"):
        parse(text)
    assert parse('{"a": [1, -2, null]}') == {"a": [1, -2, None]}
