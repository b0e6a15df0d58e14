"""The package as people install it: light to import, versions that agree, a wheel with everything in it."""

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import byheart

PROJECT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PYPROJECT["project"]["optional-dependencies"]

# Libraries that `import byheart` must not touch: optional ones, and matplotlib's half second.
HEAVY = ("torch", "onnx", "onnxruntime", "optuna", "dask", "pyarrow", "tokenizers", "datasets", "matplotlib", "sklearn",
         "flint", "pandas", "polars", "scipy")  # fmt: skip


def test_version_is_one_number():
    assert byheart.__version__ == PYPROJECT["project"]["version"]
    newest = re.search(r"^## (\d+\.\d+\.\d+)", (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == byheart.__version__


def test_license_is_the_one_named():
    assert PYPROJECT["project"]["license"] == "Apache-2.0"
    assert "Version 2.0, January 2004" in (PROJECT / "LICENSE").read_text(encoding="utf-8")


def test_extras_named_by_other_extras_exist():
    named = {part for extra in EXTRAS.values() for line in extra for part in re.findall(r"^byheart\[(.*)\]$", line)}
    used = {extra for part in named for extra in part.split(",")}
    assert used <= set(EXTRAS)


def test_extras_named_in_messages_exist():
    source = "".join(path.read_text(encoding="utf-8") for path in (PROJECT / "src").rglob("*.py"))
    named = set(re.findall(r"byheart\[([a-z,]+)\]", source)) | set(
        re.findall(r"MissingExtraError\([^()]*,\s*\"([a-z]+)\"\)", source)
    )
    assert {extra for part in named for extra in part.split(",")} <= set(EXTRAS)


def test_constraints_lie_inside_the_ranges():
    torch = next(line for line in EXTRAS["torch"] if line.startswith("torch"))
    assert torch == "torch>=2.5,<2.14"
    assert "torch==2.13.0" in (PROJECT / "constraints.txt").read_text(encoding="utf-8")


def test_import_touches_no_extra():
    program = f"import sys, json, byheart; print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    assert json.loads(_python(program)) == []


def test_import_is_quick():
    program = "import time; start = time.perf_counter(); import byheart; print(time.perf_counter() - start)"
    _python(program)  # fills the byte code cache
    assert min(float(_python(program)) for _ in range(5)) < 0.5


def test_no_address_and_no_machine_in_build_files():
    for name in ("Makefile", "pyproject.toml", "constraints.txt", ".ci/run"):
        text = (PROJECT / name).read_text(encoding="utf-8")
        assert not re.search(r"https?://|(^|\s)/(tmp|root|work|opt)/", text), name


@pytest.mark.slow
def test_wheel_installs_and_memorizes(tmp_path):
    """The wheel holds every module, installs alone into a new environment, and the core works without extras."""
    pip = [sys.executable, "-m", "pip", "-qq", "wheel", "--no-deps", "-w", str(tmp_path), str(PROJECT)]
    subprocess.run(pip, check=True)
    (wheel,) = tmp_path.glob("byheart-*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")}
    source = {path.relative_to(PROJECT / "src").as_posix() for path in (PROJECT / "src").rglob("*.py")}
    assert held == source
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    constraints = PROJECT / "constraints.txt"
    subprocess.run([python, "-m", "pip", "-qq", "install", "-c", constraints, wheel], check=True)
    program = (
        "import byheart\n"
        "memory = byheart.memorize(['ab', 'ba'], [0, 1])\n"
        "print(memory.certificate.verdict, *memory.predict(['ab', 'ba']))"
    )
    run = subprocess.run([python, "-c", program], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert run.stdout.split() == ["proved", "0", "1"]


def _python(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=PROJECT / "src").stdout
