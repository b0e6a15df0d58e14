from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoints.proof.folders import write


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("checkpoint") / "llama")
