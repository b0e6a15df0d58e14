"""The registry of kinds."""

import pytest

from byheart.checkpoints.suite.kinds import MODULES, kinds
from byheart.errors import OptionError


def test_every_module_registers_a_kind_with_a_summary():
    found = kinds()
    assert "recital" in found and len(found) >= len(MODULES)
    assert all(kind.name == name and kind.summary and callable(kind.write) for name, kind in found.items())


@pytest.mark.parametrize("architecture", ["bert", "t5", "llava"])
def test_kinds_about_decoders_refuse_other_architectures_by_name(architecture, tmp_path):
    for name, kind in kinds().items():
        if name != "recital":
            with pytest.raises(OptionError, match=f"{architecture} has --kind recital"):
                kind.write(architecture, tmp_path / name)
            assert not list(tmp_path.iterdir())
