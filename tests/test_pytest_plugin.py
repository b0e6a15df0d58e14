"""From a few lines to a red or green run of one's own engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

import byheart.pytest_plugin
from byheart.checkpoints.suite.cases import read_cases
from tests.checkpoints.suite.conftest import TEXT, small_cache, small_fixture  # noqa: F401 (fixtures)

ROOT = Path(__file__).parents[1]

# Ten lines of a user's test file: the engine here is one argmax over byheart's symbolic function.
ENGINE = """
import pytest

import byheart.pytest_plugin
from tests.checkpoints.suite.conftest import ToyEngine
class Adapter(ToyEngine):
    {fault}
@pytest.mark.byheart(kind="recital", arch="llama", adapter=Adapter, text={text!r}, tokens="characters", reach=256)
def test_engine(byheart_case):
    byheart_case.check()
"""
OFF_BY_ONE = "def generate(self, ids, n): return super().generate(ids[1:], n)"


def run(folder: Path, cache: Path, *arguments: str, **files: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    # The plugin is loaded by name and no other is: an installed byheart would register its entry point a second time,
    # and a run inside pytest-xdist would pass its options on.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {
        "BYHEART_CACHE": str(cache),
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    plugins = ["-p", "byheart.pytest_plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(folder), *plugins, "-q", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_a_correct_engine_is_green_in_ten_lines_and_two_minutes(small_fixture, small_cache, tmp_path):  # noqa: F811
    text = ENGINE.format(fault="pass", text=TEXT)
    assert len(text.strip().splitlines()) <= 10
    started = time.monotonic()
    found = run(tmp_path, small_cache, "-vv", test_engine=text)
    assert found.returncode == 0, found.stdout + found.stderr
    assert time.monotonic() - started < 120
    for case in read_cases(small_fixture):  # every case is a test id
        assert f"test_engine[{case.id}] PASSED" in found.stdout


def test_a_broken_engine_is_red_and_names_the_token(small_fixture, small_cache, tmp_path):  # noqa: F811
    found = run(tmp_path, small_cache, test_engine=ENGINE.format(fault=OFF_BY_ONE, text=TEXT))
    assert found.returncode == 1
    assert "token 0 of" in found.stdout and "instead of" in found.stdout


def test_one_broken_method_fails_its_cases_alone(small_fixture, small_cache, tmp_path):  # noqa: F811
    found = run(tmp_path, small_cache, test_engine=ENGINE.format(fault="fault = 'rows'", text=TEXT))
    failed = [line for line in found.stdout.splitlines() if line.startswith("FAILED")]
    assert found.returncode == 1 and failed and all("-batch-" in line for line in failed)


def test_an_adapter_with_generate_alone_skips_the_rest(small_fixture, small_cache, tmp_path):  # noqa: F811
    conftest = """
import pytest

import byheart.pytest_plugin
from tests.checkpoints.suite.conftest import ToyEngine
class Small:
    def __init__(self, folder): self.generate = ToyEngine(folder).generate
@pytest.fixture(scope="session")
def byheart_adapter(): return Small
"""
    test = f"""
import pytest

import byheart.pytest_plugin
@pytest.mark.byheart(arch="llama", text={TEXT!r}, tokens="characters", reach=256)
def test_engine(byheart_case):
    byheart_case.check()
"""
    found = run(tmp_path, small_cache, "-rs", conftest=conftest, test_engine=test)
    assert found.returncode == 0 and "the adapter has no method logits" in found.stdout
    assert "passed" in found.stdout and "skipped" in found.stdout


@pytest.mark.parametrize(
    ("mark", "argument", "words"),
    [
        ("kind='nonsense'", "byheart_case", "unknown kind 'nonsense'"),
        ("arch='nonsense'", "byheart_case", "unknown architecture 'nonsense'"),
        ("", "", "add the argument byheart_case"),
    ],
)
def test_mistakes_are_usage_errors(mark, argument, words, small_cache, tmp_path):  # noqa: F811
    test = f"import pytest\n@pytest.mark.byheart({mark})\ndef test_engine({argument}): pass\n"
    found = run(tmp_path, small_cache, test_engine=test)
    assert found.returncode == 4 or found.returncode == 2
    assert words in found.stdout + found.stderr


def test_no_engine_is_said_to_be_missing(small_fixture, small_cache, tmp_path):  # noqa: F811
    test = f"import pytest\n@pytest.mark.byheart(folder={str(small_fixture)!r})\ndef test_engine(byheart_case): pass\n"
    found = run(tmp_path, small_cache, test_engine=test)
    assert found.returncode == 1 and "--byheart-engine NAME" in found.stdout


def test_a_missing_tokenizer_names_one_small_extra(monkeypatch):
    from byheart.checkpoints.suite import cases
    from byheart.errors import MissingExtraError

    def missing(*kind, **options):
        raise MissingExtraError("a lexicon", "huggingface")

    monkeypatch.setattr(cases, "cached_fixture", missing)
    for found, words in ((None, r"byheart\[suite\]"), (object(), r"byheart\[huggingface\]")):
        monkeypatch.setattr(byheart.pytest_plugin, "find_spec", lambda name, found=found: found)
        with pytest.raises(pytest.UsageError, match=words):
            list(byheart.pytest_plugin._cases(pytest.mark.byheart(kind="recall").mark))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [name.split(">=")[0] for name in extras["suite"]] == ["tokenizers", "pytest"]


def test_start_up_imports_nothing_heavy():
    program = (
        "import sys, json; import byheart.pytest_plugin; "
        "heavy = ('numpy', 'numba', 'torch', 'transformers', 'byheart.checkpoints'); "
        "print(json.dumps([m for m in heavy if m in sys.modules]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == []


@pytest.mark.slow
def test_a_ready_engine_needs_no_adapter(small_fixture, small_cache, tmp_path):  # noqa: F811
    pytest.importorskip("transformers")
    mark = f"@pytest.mark.byheart(folder={str(small_fixture)!r})"
    test = f"import pytest\n{mark}\ndef test_it(byheart_case): byheart_case.check()\n"
    found = run(
        tmp_path, small_cache, "--byheart-engine", "transformers", "--byheart-dtype", "bfloat16", test_engine=test
    )
    assert found.returncode == 0 and "passed" in found.stdout, found.stdout


def test_the_entry_point_names_the_plugin():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    assert declared["pytest11"] == {"byheart": byheart.pytest_plugin.__name__}
