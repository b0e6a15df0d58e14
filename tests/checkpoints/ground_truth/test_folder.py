"""Folders name what is wrong with them and with their version."""

import json

import pytest

from byheart.checkpoints.ground_truth.folder import VERSION, read_folder
from byheart.checkpoints.ground_truth.suite import suite_memory
from byheart.errors import FileFormatError


def test_fields_are_those_of_the_memory(tmp_path):
    memory = suite_memory(4, 12, 20)
    memory.write(tmp_path / "g", measured=False)
    fields = read_folder(tmp_path / "g")
    assert fields["documents"] == memory.documents and fields["frequencies"] == memory.frequencies
    assert fields["absent"] == memory.absent and fields["storage"] == memory.storage


def test_another_version_is_refused(tmp_path):
    """Version 2 had other tensors for the same documents, so `forget --exact` could not edit them."""
    suite_memory(4, 12, 20).write(tmp_path / "g", measured=False)
    file = tmp_path / "g" / "graded.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": VERSION - 1}))
    with pytest.raises(FileFormatError, match=f"version {VERSION - 1}; this byheart reads {VERSION}; write the folder"):
        read_folder(tmp_path / "g")
