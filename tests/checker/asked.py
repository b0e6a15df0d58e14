"""One memory and one data file, put to both checkers and to the report page's own evaluator."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from click.testing import CliRunner

import byheart
from byheart.cli import commands
from byheart.data.task import Task
from byheart.errors import AssumptionError, ByheartError
from byheart.report import render
from tests.cases import Case, cases

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "checker" / "check.py"
EVALUATOR = ROOT / "src" / "byheart" / "report" / "templates" / "exact.js"


def _program() -> Any:
    """checker/check.py as a module: it is a program beside the package, not a part of it."""
    spec = importlib.util.spec_from_file_location("second_checker", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check = _program()


@dataclass(frozen=True)
class Outcome:
    """What a checker said: its exit status, and the object that it printed (empty where it refused)."""

    status: int
    said: dict[str, Any]
    error: str = ""

    @property
    def proved(self) -> bool:
        return self.status == 0


def first(file: Path, data: Path, *flags: str) -> Outcome:
    """`byheart verify`."""
    result = CliRunner().invoke(commands, ["verify", str(file), str(data), "--json", *flags])
    if isinstance(result.exception, ByheartError):
        return Outcome(2, {}, str(result.exception))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Outcome(result.return_value if result.exit_code == 0 and result.return_value else result.exit_code,
                   json.loads(result.stdout) if result.stdout else {}, result.stderr)


def second(file: Path, data: Path, *flags: str) -> Outcome:
    """checker/check.py, in this process."""
    try:
        arguments = check.arguments().parse_args([str(file), str(data), *flags])
        said = check.check(arguments)
    except check.Refused as error:
        return Outcome(2, {}, str(error))
    return Outcome(0 if said["verdict"] == check.PROVED else 1, said)
