"""Vectors at the ends of what floats hold: exact everywhere, refused with a remedy where a construction cannot."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pytest
from click.testing import CliRunner

import byheart
from byheart.cli import commands
from byheart.data import load
from byheart.errors import ByheartError

ROWS = [[[1e300, 1.0]], [[1e-300, 1.0]], [[1.0, 5e-324]]]
LABELS = ["a", "b", "a"]
ENDS = (1e300, -1e300, 1e-300, 5e-324, 1.7e308, 1.0, 0.0)


LEFT_OUT = {"kim23", "park21", "vardi22", "recital"}  # too slow here; a recital has no rows


@pytest.mark.parametrize("construction", sorted(set(byheart.constructions()) - LEFT_OUT))
def test_no_construction_crashes(construction: str, tmp_path: Path) -> None:
    task = "set" if construction == "ks25-sets" else "next-token"
    try:
        memory = byheart.memorize(ROWS, LABELS, construction=construction, task=task, progress=False)
    except ByheartError as error:
        refuse = ("native", "mahdavi24", "ks25-embedding", "baum88", "madden24", "madden24-average")
        assert construction in refuse, error
        assert ";" in str(error), "a remedy follows"
        return
    memory.save(tmp_path / "m")
    assert byheart.load(tmp_path / "m").predict(ROWS) == LABELS and memory.certificate.verdict == "proved"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("construction", ["compact", "ks25"])
@pytest.mark.parametrize("vector", [[1e300, 1], [1e-300, 1], [5e-324, 1.7e308], [-1.7e308, 1.7e308]])
def test_two_labels_of_two_vectors(vector: list[float], construction: str) -> None:
    rows, labels = [[vector], [[2, 3]], [[1.7e308, -1]]], ["p", "q", "q"]
    memory = byheart.memorize(rows, labels, construction=construction, progress=False)
    assert memory.predict(rows) == labels and memory.verify(rows[:2], labels[:2]).verdict == "proved"


@pytest.mark.parametrize("count", [2, 20, 60])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_separation_is_exact(count: int, width: int) -> None:
    draw = random.Random(count * width)
    entry = lambda: draw.choice([*ENDS, draw.random() * 10.0 ** draw.randint(-300, 300)])  # noqa: E731
    points = sorted({tuple(entry() for _ in range(width)) for _ in range(count)} | {(1e300,) * width, (0.5,) * width})
    found = load([[list(point)] for point in points], list(range(len(points))), positions=False).separation
    exact = [tuple(map(Fraction, point)) for point in points]
    assert found.delta_squared == min(
        sum(((a - b) ** 2 for a, b in zip(one, two, strict=True)), Fraction(0)) for one, two in combinations(exact, 2)
    )
    assert found.r_squared == max(sum((x * x for x in point), Fraction(0)) for point in exact)


def test_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"tokens": row, "label": label}) for row, label in zip(ROWS, LABELS, strict=True)]
    (tmp_path / "v.jsonl").write_text("\n".join(lines))

    def run(*arguments: str) -> object:
        return CliRunner().invoke(commands, [*arguments], catch_exceptions=False, standalone_mode=False).return_value

    assert run("memorize", "v.jsonl", "-o", "m") == run("verify", "m", "v.jsonl") == 0
    assert run("report", "m", "v.jsonl", "-o", "r.html") == run("predict", "m", "[[1e300, 1]]") == 0
    assert run("compare", "v.jsonl", "--construction", "compact", "--construction", "nilsson65") == 0
