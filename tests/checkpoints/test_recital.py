"""Recitals as memories: they recite, continue a prompt, and survive a file."""

from __future__ import annotations

import pytest

from byheart.checkpoints.recital import RecitalMemory, memorize_recital
from byheart.errors import DataError, FileFormatError, OptionError

TEXTS = ["the wind is warm", "the rain is cold"]


def test_a_recital_survives_a_file(tmp_path) -> None:
    memory = memorize_recital(TEXTS, tokens="words")
    memory.save(tmp_path / "r")
    again = RecitalMemory.load(tmp_path / "r")
    assert again.to_json() == memory.to_json() and again.certify().verdict == "proved"
    assert again.generate("the rain") == memory.generate("the rain") == " is cold"


def test_what_cannot_be_a_recital(tmp_path) -> None:
    with pytest.raises(DataError, match="no document"):
        memorize_recital([])
    with pytest.raises(OptionError, match="unknown='silence'"):
        memorize_recital(TEXTS, unknown="silence")
    (tmp_path / "r").write_text("{}")
    with pytest.raises(FileFormatError, match="not a recital"):
        RecitalMemory.load(tmp_path / "r")


def test_a_file_with_two_meanings_is_refused(tmp_path) -> None:
    memory = memorize_recital(TEXTS, tokens="words")
    memory.save(tmp_path / "r")
    twice = (tmp_path / "r").read_text().replace('"format":', '"format":"other","format":', 1)
    (tmp_path / "r").write_text(twice)
    with pytest.raises(FileFormatError, match="occurs twice"):
        RecitalMemory.load(tmp_path / "r")
