"""docs/architecture.md describes the house as it is: what it names can be imported, and its rooms are there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

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


def test_the_rooms_are_those_of_the_package():
    drawn = PAGE.split("```")[1]
    rooms = set(re.findall(r"\b[a-z]+\b", " ".join(line[:34] for line in drawn.splitlines())))
    package = ROOT / "src" / "byheart"
    folders = {folder.name for folder in package.iterdir() if (folder / "__init__.py").exists()}
    assert folders <= rooms
