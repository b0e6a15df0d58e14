"""docs/architecture.md describes the code: the names on it can be imported, its packages exist."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections import Counter
from itertools import chain
from pathlib import Path
from types import FrameType

from click.testing import CliRunner

from byheart.cli import commands

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def look_up(name: str) -> object:
    parts = name.split(".")
    for stop in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:stop]))
        except ModuleNotFoundError:
            continue
        for part in parts[stop:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


def test_every_function_of_the_walk_is_there():
    names = set(re.findall(r"`(byheart(?:\.\w+)+)`", PAGE))
    assert len(names) >= 14
    for name in sorted(names):
        assert look_up(name) is not None, name


def test_a_row_takes_the_way_of_the_page(tmp_path):
    """The functions of the table are called, and first called in its order, by the command that the page names."""
    walk = PAGE.split("## One row")[1].split("And back")[0]
    names = [name for name in re.findall(r"`byheart\.([\w.]+)`", walk) if name != "memory.memory.Memory"]
    (tmp_path / "table.csv").write_text("name,kind\ncat,animal\noak,plant\n")
    calls: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls[f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}".removeprefix("byheart.")] = None

    command = ["memorize", str(tmp_path / "table.csv"), "-o", str(tmp_path / "table.byheart"), "--quiet"]
    sys.setprofile(note)
    try:
        result = CliRunner().invoke(commands, command, standalone_mode=False)
    finally:
        sys.setprofile(None)
    assert result.return_value == 0 and [name for name in calls if name in names] == names


def test_the_packages_are_those_of_the_contract():
    drawn = PAGE.split("```")[1].strip().splitlines()
    rows = [re.split(r"\s*\|\s*", re.split(r"\s{2,}", line)[0]) for line in drawn]
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    assert rows == [[room.strip(" ()") for room in layer.split("|")] for layer in contract]
    package = ROOT / "src" / "byheart"
    assert {folder.name for folder in package.iterdir() if (folder / "__init__.py").exists()} <= set(chain(*rows))


def test_every_module_has_a_test_that_is_found_by_name():
    """`a/b.py` has `tests/a/test_b.py`, or is tested with all of its folder in `test_a.py`."""
    package = ROOT / "src" / "byheart"
    there = {path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    types_only = {Path("errors.py"), Path("version.py")}

    def suites(module: Path) -> set[Path]:
        folders = [folder for folder in module.parents if folder.name]
        whole = [place / f"test_{folder.name}.py" for folder in folders for place in (folder, folder.parent)]
        return {module.parent / f"test_{module.stem.strip('_')}.py", *whole}

    modules = {path.relative_to(package) for path in package.rglob("*.py") if path.name != "__init__.py"}
    assert sorted(str(module) for module in modules - types_only if not suites(module) & there) == []


def test_every_class_has_a_name_of_its_own():
    """One concept, one type, one name: a reader who looks for a class finds one."""
    files = sorted((ROOT / "src").rglob("*.py"))
    names = Counter(chain.from_iterable(re.findall(r"^class (\w+)", file.read_text(), re.M) for file in files))
    assert len(names) > 300 and [name for name, count in names.items() if count > 1] == []
