"""Ready adapters: the engines that are installed pass the recital; what an engine lacks is reported."""

from __future__ import annotations

import pytest

from byheart.checkpoints.engines import engines
from byheart.checkpoints.suite.adapters import engine_adapter, open_adapter
from byheart.checkpoints.suite.cases import read_cases
from byheart.checkpoints.suite.runner import run_cases
from byheart.errors import MissingExtraError, OptionError


@pytest.mark.parametrize(
    "engine", ["onnxruntime", "llama.cpp", "ctranslate2", "transformers", "openvino", "mlx", "vllm"]
)
def test_every_installed_engine_is_green(small_fixture, engine):
    if engines()[engine].version is None:
        with pytest.raises(MissingExtraError):
            engine_adapter(engine)
        pytest.skip(f"{engine} is not installed")
    found = list(run_cases(read_cases(small_fixture), engine_adapter(engine)))
    assert {r.status for r in found} <= {"correct", "skipped"}, [r.message for r in found if not r.passed]
    assert sum(r.status == "correct" for r in found) >= 5


def test_an_adapter_without_generate_is_refused(tmp_path):
    with pytest.raises(OptionError, match="has no method generate"):
        open_adapter(lambda folder: object(), tmp_path)
    with pytest.raises(OptionError, match="unknown engine"):
        open_adapter("nonsense", tmp_path)
