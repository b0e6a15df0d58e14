"""docs/architecture.md and docs/walkthrough.md describe the code: their names can be imported, the packages exist."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib
from collections import Counter
from functools import cache
from itertools import chain
from pathlib import Path
from types import FrameType

from click.testing import CliRunner

from byheart.cli import commands

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
WALK = (ROOT / "docs" / "walkthrough.md").read_text()


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
    names = set(re.findall(r"`(byheart(?:\.\w+)+)`", PAGE + WALK))
    assert len(names) >= 14
    for name in sorted(names):
        assert look_up(name) is not None, name


def test_a_row_takes_the_way_of_the_page(tmp_path):
    """The functions of the table are called, and first called in its order, by the command that the page names."""
    walk = WALK.split("## One row,")[1].split("And back")[0]
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
    assert rows == [[part.strip(" ()") for part in layer.split("|")] for layer in contract]
    package = ROOT / "src" / "byheart"
    assert {folder.name for folder in package.iterdir() if (folder / "__init__.py").exists()} <= set(chain(*rows))


# Modules that no test in the place of their name imports: (pattern, test, evidence, reason). The evidence is a text of
# the test that runs them through their registry; without one, the test imports a module that imports them.
THROUGH = (
    ("__main__.py", "test_main.py", r"byheart", "run as a program"),
    ("cli/*.py", "cli/test_cli.py", r"CliRunner|commands", "commands are run by their names"),
    ("build/fold/*.py", "build/fold/test_fold.py", None, "parts of one search, which checks every label it plans"),
    ("build/ks25/*.py", "build/ks25/test_ks25.py", r"construction", "built by name, and proved"),
    ("build/native/*.py", "build/native/test_native.py", r"native", "built by name, and proved in every order"),
    ("build/table1/*.py", "build/test_build.py", r"recipes\(\)", "registered: the conformance suite builds them all"),
    ("data/read/formats/*.py", "data/read/test_formats.py", r"read_records", "registered by the endings of files"),
    ("data/read/frames.py", "data/test_data.py", r"pandas", "every frame is one kind of source"),
    ("export/targets/*.py", "export/test_export.py", r"targets|to_onnx|to_torch", "registered by the names of targets"),
    ("lab/engines/pytorch.py", "lab/engines/test_engines.py", r"stacked", "chosen by name"),
    ("memory/memory.py", "memory/test_memory.py", r"memorize", "the value that memorize returns"),
    ("plots/lab.py", "lab/test_lab.py", r"plot", "drawn by the laboratory's commands"),
    ("theory/guarantees/*.py", "theory/test_guarantees.py", r"guarantee", "registered: found by construction"),
    (
        "checkpoints/engines/*.py",
        "checkpoints/engines/test_engines.py",
        r"engines",
        "registered: the same cases in all",
    ),
    ("checkpoints/formats/table.py", "checkpoints/formats/test_classifier.py", r"to_huggingface", "the door of tables"),
    ("checkpoints/ground_truth/forget.py", "checkpoints/ground_truth/test_forget.py", r"forget", "by the package"),
    ("checkpoints/hosts/*.py", "checkpoints/hosts/test_hosts.py", r"hosts\(\)", "registered: one suite builds all"),
    ("checkpoints/proof/*.py", "checkpoints/proof/test_proof.py", None, "rules of one proof of whole folders"),
    ("checkpoints/proof/families/*.py", "checkpoints/proof/test_proof.py", None, "found by model_type"),
    ("checkpoints/suite/mutants/*.py", "checkpoints/suite/test_mutants.py", r"mutants", "registered by decorators"),
    ("checkpoints/suite/mutants/reported/*.py", "checkpoints/suite/test_mutants.py", r"mutants", "registered likewise"),
    ("checkpoints/windows/*.py", "checkpoints/windows/test_windows.py", r"recital", "reached by memorize_recital"),
)


@cache
def imports(file: Path) -> set[str]:
    """The modules that a file imports, and names in texts (tests that patch or import by name)."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("byheart."):
            found.add(node.value)
    return found


def reached(start: set[str], package: Path) -> set[str]:
    """All modules of byheart that these modules import, directly or not."""
    files = {dotted(file, package): file for file in package.rglob("*.py")}
    found, fresh = set(), {name for name in start if name in files}
    while fresh:
        found |= fresh
        fresh = {name for module in fresh for name in imports(files[module]) if name in files} - found
    return found


def dotted(file: Path, package: Path) -> str:
    parts = file.relative_to(package).with_suffix("").parts
    return ".".join(["byheart", *(parts[:-1] if parts[-1] == "__init__" else parts)])


def test_every_module_is_tested_where_its_name_says_or_gives_a_reason():
    """A test in the folder of a module imports it, or `THROUGH` names the test that runs it, and how."""
    package, tests = ROOT / "src" / "byheart", ROOT / "tests"
    imported = {file.relative_to(tests): imports(file) for file in tests.rglob("*.py")}
    used: set[str] = set()
    untested = []
    for file in sorted(package.rglob("*.py")):
        module, name = file.relative_to(package), dotted(file, package)
        if module.name in ("__init__.py", "errors.py", "version.py"):
            continue
        near = [
            test for test in imported if module.parent in (test.parent, *test.parents) and test.name != "conftest.py"
        ]
        folders = [folder for folder in module.parents if folder.name]
        near += [place for folder in folders if (place := folder.parent / f"test_{folder.name}.py") in imported]
        # A file beside the tests' root tests the modules of the package's root alone.
        near = [test for test in near if module.parent.name or test.stem == f"test_{module.stem}"]
        if any(name in imported[test] for test in near):
            continue
        row = next(
            (row for row in THROUGH if module.match(row[0]) and len(Path(row[0]).parts) == len(module.parts)), None
        )
        if row is None:
            untested.append(str(module))
            continue
        used.add(row[0])
        test, evidence = tests / row[1], row[2]
        if evidence is None:
            assert name in reached(imported[Path(row[1])], package), f"{row[1]} does not reach {module}"
        else:
            assert re.search(evidence, test.read_text()), f"{row[1]} does not run {module}"
    assert untested == []
    assert {row[0] for row in THROUGH} == used, "a reason that no module needs"


def test_every_class_has_a_name_of_its_own():
    """One concept, one type, one name: a reader who looks for a class finds one."""
    files = sorted((ROOT / "src").rglob("*.py"))
    names = Counter(chain.from_iterable(re.findall(r"^class (\w+)", file.read_text(), re.M) for file in files))
    assert len(names) > 300 and [name for name, count in names.items() if count > 1] == []
