"""What all features share: nothing is written over, nothing half-written stays."""

import pytest

from byheart.checkpoints.suite.features.writing import check_folder, proved_margins
from byheart.errors import ExportError


def test_targets_are_checked_first(tmp_path):
    with pytest.raises(ExportError, match="already exists"):
        check_folder(tmp_path)
    with pytest.raises(ExportError, match="does not exist"):
        check_folder(tmp_path / "a" / "b")
    check_folder(tmp_path / "a")


def test_nothing_is_proved_by_nothing():
    assert all(values == {"proved": None, "measured": None} for values in proved_margins([]).values())
