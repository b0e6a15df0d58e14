"""The kind `recital` is the fixture of `write_fixture`."""

from byheart.checkpoints.suite.features.recital import write_recital
from byheart.checkpoints.suite.kinds import kinds


def test_it_is_registered():
    assert kinds()["recital"].write is write_recital
