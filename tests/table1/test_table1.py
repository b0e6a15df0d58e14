"""What Table 1 promises, measured: every row proved on a grid of random data, and the exponents of growth."""

from __future__ import annotations

import pytest

from byheart.compiler import memorize
from byheart.compiler.compare import compare_growth, random_dataset
from byheart.compiler.compare_rows import growth_exponents
from tests.table1.grid import FULL, letters, proved

ONE_LABEL = ("nilsson65", "baum88", "park21", "vardi22", "mahdavi24")
PER_TOKEN = ("kim23", "ks24")
SUBLINEAR = {"vardi22": (0.45, 0.65), "kim23": (0.45, 0.65), "park21": (0.6, 0.75)}


@pytest.mark.slow
@pytest.mark.parametrize(("N", "n", "d", "C"), FULL)
@pytest.mark.parametrize("name", ONE_LABEL)
def test_one_label_per_row(name, N, n, d, C):
    proved(name, N, n, d, C)


@pytest.mark.slow
@pytest.mark.parametrize(("N", "n", "d", "C"), FULL)
@pytest.mark.parametrize("name", PER_TOKEN)
def test_one_label_per_token(name, N, n, d, C):
    proved(name, N, n, d, C, "seq-to-seq")
    proved(name, N, n, d, C)


@pytest.mark.slow
@pytest.mark.parametrize("name", (*ONE_LABEL, *PER_TOKEN))
def test_letters_with_positions(name):
    rows, labels = letters(300)
    memory = memorize(rows, labels, construction=name, progress=False)
    assert memory.certificate.verdict == "proved" and memory.predict(rows) == labels


def test_the_sublinear_rows_grow_as_their_theorems_say():
    datasets = [random_dataset(N, 4, 2, 2) for N in (50, 150, 450)]
    slopes = growth_exponents(compare_growth(datasets, constructions=sorted(SUBLINEAR)))
    for name, (low, high) in SUBLINEAR.items():
        assert low - 0.05 < slopes[name] < high + 0.05, slopes


@pytest.mark.slow
def test_exponents_from_100_to_3000_rows():
    wide = {"vardi22": (0.45, 0.65), "park21": (0.6, 0.75), "baum88": (0.85, 1.1), "compact": (0.45, 0.65)}
    datasets = [random_dataset(N, 8, 8, 2) for N in (100, 300, 1000, 3000)]
    slopes = growth_exponents(compare_growth(datasets, constructions=[*wide, "ks25", "kim23"]))
    for name, (low, high) in {**wide, "ks25": (0.45, 0.65), "kim23": (0.45, 0.65)}.items():
        assert low < slopes[name] < high, slopes
