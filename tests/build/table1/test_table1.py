"""What Table 1 guarantees, measured: every row proved on a grid of random data, and the exponents of growth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from byheart.data.dataset.dataset import load
from byheart.memory.compare.comparison import applicable, compare_growth, measured_row, random_dataset
from byheart.memory.compare.rows import growth_exponents
from tests.build.table1.grid import FULL, letters

SUBLINEAR = {"vardi22": (0.45, 0.65), "kim23": (0.45, 0.65), "park21": (0.6, 0.75)}


@pytest.mark.slow
@pytest.mark.parametrize("task", ["next-token", "seq-to-seq"])
@pytest.mark.parametrize(("N", "n", "d", "C"), FULL)
def test_every_row_is_proved_on_random_vectors(N, n, d, C, task):
    dataset = random_dataset(N, n, d, C, task)
    rows = [measured_row(dataset, name, 0) for name in applicable(dataset)]
    assert len(rows) >= (13 if task == "next-token" else 7)
    assert {row.construction: row.reason for row in rows if row.verdict != "proved"} == {}


@pytest.mark.slow
def test_every_row_is_proved_on_letters_with_positions():
    dataset = load(*letters(300))
    rows = [measured_row(dataset, name, 0) for name in applicable(dataset)]
    assert {row.construction: row.reason for row in rows if row.verdict != "proved"} == {}


@pytest.mark.slow
def test_every_row_is_proved_on_sentences():
    path = Path(__file__).parents[4] / "shared" / "data" / "mnli.jsonl"
    if not path.is_file():
        pytest.skip("needs MultiNLI")
    texts: dict[tuple[str, ...], int] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        texts.setdefault(tuple(row["premise"].lower().split()[:8]), row["label"])
    rows = [(list(text), label) for text, label in texts.items() if text][:300]
    dataset = load([text for text, _ in rows], [label for _, label in rows])
    found = [measured_row(dataset, name, 0) for name in applicable(dataset)]
    assert {row.construction: row.reason for row in found if row.verdict != "proved"} == {}


def test_the_sublinear_rows_grow_as_their_theorems_say():
    datasets = [random_dataset(N, 4, 2, 2) for N in (50, 150, 450)]
    slopes = growth_exponents(compare_growth(datasets, constructions=sorted(SUBLINEAR)))
    for name, (low, high) in SUBLINEAR.items():
        assert low - 0.05 < slopes[name] < high + 0.05, slopes


@pytest.mark.slow
def test_exponents_from_100_to_3000_rows():
    root, line = (0.45, 0.65), (0.85, 1.15)
    wanted = {"vardi22": root, "kim23": root, "ks25": root, "compact": root, "park21": (0.6, 0.75)}
    wanted |= {"baum88": line, "ks24": line, "madden24": line}
    datasets = [random_dataset(N, 8, 8, 2) for N in (100, 300, 1000, 3000)]
    slopes = growth_exponents(compare_growth(datasets, constructions=list(wanted)))
    for name, (low, high) in wanted.items():
        assert low < slopes[name] < high, slopes
