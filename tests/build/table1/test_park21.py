"""Park's table: groups of keys shifted without collisions, labels as bits of long words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import byheart
from byheart.build.table1.park21 import ascending, cheapest_cut, shift_groups
from byheart.errors import BuildError
from byheart.ir.layers import Affine
from byheart.ir.network import Network
from byheart.memory.compare.comparison import random_dataset
from byheart.theory.guarantees import guarantee
from tests.build.table1.grid import THIN, letters, proved


@given(
    st.dictionaries(st.integers(0, 10**6), st.integers(0, 7), min_size=1, max_size=60),
    st.integers(1, 8),
    st.integers(1, 9),
)
def test_the_table_knows_every_key(cells, group, places):
    keys = sorted(cells)
    table = shift_groups(keys, [cells[k] for k in keys], group, places, 3)
    assert [table.label(k) for k in keys] == [cells[k] for k in keys]
    assert len({table.place(k) for k in keys}) == len(keys)  # no collisions
    assert table.modulus > group * len(keys) and max(table.words).bit_length() <= table.word_bits


def test_equal_keys_are_refused():
    with pytest.raises(BuildError):
        shift_groups([3, 3], [0, 1], 1, 1, 1)


@pytest.mark.parametrize("form", ["plain", "residual"])
@pytest.mark.parametrize(("N", "n", "d", "C"), [*THIN, (2, 2, 2, 2), (40, 3, 2, 9)])
def test_rows_are_memorized(N, n, d, C, form):
    proved("park21", N, n, d, C, form=form)


@pytest.mark.parametrize("C", [2, 3, 8])
def test_no_layer_is_wider_than_the_theorems_three(C):
    """The theorem's width is 3: measured, guaranteed, and true of every layer between the maps."""
    memory = proved("park21", 120, 4, 3, C)
    assert memory.size.width == memory.claim.bounds["width"] == 3 and memory.certificate.guarantee == "kept"
    assert isinstance(memory.network, Network)
    inner = memory.network.layers[2:-1]  # after the flattened row and E_in
    assert all(isinstance(layer, Affine) and layer.relu and layer.width_out <= 3 for layer in inner)


def test_three_units_are_fewer_parameters_than_blocks():
    plain, residual = (proved("park21", 100, 4, 2, 2, form=form).size for form in ("plain", "residual"))
    assert 2 * plain.parameters < residual.parameters and plain.depth > residual.depth and residual.width == 10


def test_rows_of_symbols_with_and_without_positions_are_memorized_in_width_three():
    rows, labels = letters(60)
    for positions in (True, False):
        memory = byheart.memorize(rows, labels, construction="park21", positions=positions, conflicts="first")
        assert memory.certificate.verdict == "proved" and memory.size.width == 3


def test_files_that_name_no_form_keep_their_guarantee():
    """Files from before there were two forms have no option: their network is the one with blocks."""
    assert guarantee("park21", random_dataset(20, 2, 2, 2), {}).bounds["width"] == 10


@given(st.lists(st.integers(0, 30), min_size=1, max_size=20))
def test_ascending_numbers_keep_their_residues(values):
    found = ascending(values, 31)
    assert [value % 31 for value in found] == values and found == sorted(set(found))
    assert found[-1] < 31 * len(values)  # what the guarantee counts with


def test_the_cut_follows_the_cube_root():
    for form in ("plain", "residual"):
        ratio = cheapest_cut(64_000, 1, form).group / cheapest_cut(1000, 1, form).group
        assert 3.0 < ratio < 5.0  # 64^(1/3) = 4
