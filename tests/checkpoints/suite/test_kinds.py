"""The registry of kinds."""

from byheart.checkpoints.suite.kinds import MODULES, kinds


def test_every_module_registers_a_kind_with_a_summary():
    found = kinds()
    assert "recital" in found and len(found) >= len(MODULES)
    assert all(kind.name == name and kind.summary and callable(kind.write) for name, kind in found.items())
