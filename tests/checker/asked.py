"""One memory and one data file, put to both checkers and to the report page's own evaluator."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import byheart
from byheart.build import recipes
from byheart.cli import commands
from byheart.data.task import Task
from byheart.errors import AssumptionError, ByheartError
from byheart.report import render
from tests.cases import Case, cases

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "checker" / "check.py"
EVALUATOR = ROOT / "src" / "byheart" / "report" / "templates" / "exact.js"
COLUMNS = ("--sequence-column", "tokens", "--label-column", "label")


def _program() -> Any:
    """checker/check.py as a module: it is a program beside the package, not a part of it."""
    spec = importlib.util.spec_from_file_location("second_checker", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    sys.modules["second_checker"] = module
    spec.loader.exec_module(module)
    return module


check = _program()


@dataclass(frozen=True)
class Outcome:
    """The result of a checker: its exit status, and the object that it printed (empty where it refused)."""

    status: int
    reply: dict[str, Any]
    error: str = ""

    @property
    def proved(self) -> bool:
        return self.status == 0


def first(file: Path, data: Path, *flags: str) -> Outcome:
    """`byheart verify`."""
    result = CliRunner().invoke(commands, ["verify", str(file), str(data), "--json", *flags], standalone_mode=False)
    if isinstance(result.exception, ByheartError):
        return Outcome(2, {}, str(result.exception))
    if result.exception is not None:
        raise result.exception
    return Outcome(result.return_value, json.loads(result.stdout))


def second(file: Path, data: Path, *flags: str) -> Outcome:
    """checker/check.py, in this process; as a program it is run in test_program.py."""
    try:
        said = check.check(check.arguments().parse_args([str(file), str(data), *flags]))
    except check.Refused as error:
        return Outcome(2, {}, str(error))
    return Outcome(0 if said["verdict"] == check.PROVED else 1, said)


def plain(row: Any) -> list[Any]:
    """A row as JSON has it: vectors are lists."""
    return [list(token) if isinstance(token, tuple) else token for token in row]


def write_rows(path: Path, sequences: list[Any], labels: list[Any]) -> Path:
    """JSON Lines, where tokens and labels keep their types."""
    rows = [{"tokens": plain(row), "label": label} for row, label in zip(sequences, labels, strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@cache
def built(name: str, case: int, task: str, seed: int = 0) -> tuple[Case, byheart.Memory | None]:
    """A memory of case number `case` of a task; None where the construction's assumptions fail on it."""
    found = list(cases(Task(task)))[case]
    options = {"task": found.task, "positions": found.positions, "construction": name, "seed": seed}
    try:
        return found, byheart.memorize(found.sequences, found.labels, progress=False, **options)
    except AssumptionError:
        return found, None


def pairs() -> Iterator[tuple[str, str]]:
    """Every construction with every task that it builds."""
    for name, recipe in sorted(recipes().items()):
        for task in recipe.tasks:
            yield name, task.value


def page_answers(memory: byheart.Memory, questions: list[str]) -> list[Any]:
    """What the report's evaluator returns for texts or JSON lists of tokens, run by Node: answers, or {"error": …}."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: the report's evaluator is run by it (apt install nodejs)")
    live = re.search(r'<script type="application/json" id="memory">(.*?)</script>', render(memory), re.DOTALL)
    if live is None:
        return []
    script = f"""{EVALUATOR.read_text()}
    const {{ memory, questions }} = JSON.parse(require("fs").readFileSync(0, "utf-8"));
    const {{ tokensOf, evaluate }} = exactly(memory);
    const ask = (text) => {{
      try {{ return evaluate(tokensOf(text)).answers; }} catch (error) {{ return {{ error: error.message }}; }}
    }};
    console.log(JSON.stringify(questions.map(ask)));"""
    given = json.dumps({"memory": json.loads(live[1]), "questions": questions})
    done = subprocess.run([node, "-e", script], input=given, capture_output=True, text=True, check=True, timeout=120)
    return json.loads(done.stdout)
