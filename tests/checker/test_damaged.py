"""Damaged and nonsensical files and tables: neither checker crashes, hangs or proves anything false."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.checker.asked import COLUMNS, built, first, second, write_rows
from tests.checker.tampering import sealed
from tests.fuzz.damage import damaged

STRANGE = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2**60,
    "",
    "x",
    "0x1p4194304",
    "-0x1p-4194304",
    "0x1",
    [],
    {},
    [[]],
    [0],
    1 << 24,
]
BASES = [("ks25", "next-token", 6), ("native", "seq-to-seq", 0), ("compact", "set", 5), ("baum88", "next-token", 4)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, found = tmp_path_factory.mktemp("damaged"), []
    for number, (name, task, case) in enumerate(BASES):
        rows, memory = built(name, case, task)
        memory.save(folder / "m")
        data = write_rows(folder / f"{number}.jsonl", rows.sequences, rows.labels)
        found.append(((folder / "m").read_bytes(), data))
    return found


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, part in items for place in [(value, key), *places(part)]]


def nonsense(data: bytes, rng: random.Random) -> bytes:
    """A file with one to three of its parts replaced by something else, with a right checksum."""
    body = json.loads(data)["memory"]
    for _ in range(rng.randint(1, 3)):
        container, key = rng.choice(places(body))
        container[key] = rng.choice(STRANGE)
    return sealed(body)


@pytest.mark.parametrize("count", [20, pytest.param(1500, marks=pytest.mark.slow)])
def test_files_that_make_no_sense(count, files, tmp_path):
    rng, statuses = random.Random("nonsense"), set()
    for number in range(count):
        data, rows = rng.choice(files)
        (tmp_path / "m").write_bytes(nonsense(data, rng))
        start = time.monotonic()
        one, two = first(tmp_path / "m", rows, *COLUMNS), second(tmp_path / "m", rows, *COLUMNS)
        assert time.monotonic() - start < 60, number
        if one.status != two.status:
            answered = one.reply.get("agree") == one.reply.get("rows") if one.reply else False
            assert (two.proved and answered) or {one.status, two.status} == {1, 2}, (number, one, two)
        statuses.add(two.status)
    assert {1, 2} <= statuses


@pytest.mark.parametrize("what", ["file", "table"])
def test_damaged_bytes(what, files, tmp_path):
    """A damaged file is refused; a damaged table is refused or compared as it is."""
    file, table = tmp_path / "m", tmp_path / "rows.jsonl"
    file.write_bytes(files[0][0])
    table.write_bytes(files[0][1].read_bytes())
    target = file if what == "file" else table
    original = target.read_bytes()

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(damaged([original]))
    def run(data: bytes) -> None:
        target.write_bytes(data)
        said = second(file, table, *COLUMNS)
        if what == "file":
            assert said.status == (0 if data == original else 2), said
        assert said.status in (0, 1, 2)

    run()
