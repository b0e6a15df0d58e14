"""Writing is all or nothing."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from byheart.errors import FileFormatError
from byheart.files import building, check_target, parse, write_atomically


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


def test_a_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "m").write_bytes(b"old")
    link, dangling = tmp_path / "link", tmp_path / "dangling"
    link.symlink_to(tmp_path / "elsewhere" / "m")
    dangling.symlink_to(tmp_path / "elsewhere" / "new")
    for path in (link, dangling):
        check_target(path)
        write_atomically(path, b"new")
        assert path.is_symlink() and path.read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path / "elsewhere")) == ["m", "new"]
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(FileFormatError, match="cannot write"):
        write_atomically(loop, b"new")


def test_special_files_are_refused_and_stay(tmp_path):
    """A draft renamed onto /dev/null would delete it."""
    fifo, local, device = tmp_path / "fifo", tmp_path / "socket", tmp_path / "device"
    os.mkfifo(fifo)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(local))
        device.symlink_to(os.devnull)
        for path, kind in ((fifo, "a FIFO"), (local, "a socket"), (device, "a device")):
            before = os.stat(path).st_mode
            for write in (check_target, lambda target: write_atomically(target, b"new")):
                with pytest.raises(FileFormatError, match=f"it is {kind}, not a file"):
                    write(path)
            assert os.stat(path).st_mode == before
    assert sorted(os.listdir(tmp_path)) == ["device", "fifo", "socket"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "model"
    with building(target) as draft:
        (draft / "config.json").write_text("{}")
        assert not target.exists()
    assert os.listdir(tmp_path) == ["model"] and os.listdir(target) == ["config.json"]
    mask = os.umask(0)
    os.umask(mask)
    assert target.stat().st_mode & 0o777 == 0o777 & ~mask
    for failure in (ValueError, KeyboardInterrupt, SystemExit):
        with pytest.raises(failure), building(tmp_path / "other") as draft:
            (draft / "config.json").write_text("{}")
            raise failure
    assert os.listdir(tmp_path) == ["model"]
    with pytest.raises(FileFormatError, match="cannot write"), building(target) as draft:
        (draft / "new").write_text("")
    assert os.listdir(tmp_path) == ["model"] and os.listdir(target) == ["config.json"]


def test_a_linked_folder_is_followed(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    with building(tmp_path / "link") as draft:
        (draft / "config.json").write_text("{}")
    assert (tmp_path / "link").is_symlink() and os.listdir(tmp_path / "empty") == ["config.json"]


def test_a_dash_is_no_file_name():
    """Commands that write files would make one of this name, where another command writes to standard output."""
    with pytest.raises(FileFormatError, match="name a file"):
        check_target(Path("-"))
