"""Park, Lee, Yun and Shin 2021: the first sub-linear memorization, O(N^(2/3)), on flattened rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from byheart.build._base import Construction, register
from byheart.build.shared.projection import Constants, Line
from byheart.build.shared.wires import ZERO, Block, Form, affine, residual, wire
from byheart.build.table1.flattened import FLAT, feed_forward_network, flat_cloud, flat_rows, row_line
from byheart.build.table1.park21_blocks import (
    LOOK_UNITS,
    SCAN_UNITS,
    STREAM,
    fold_blocks,
    look_blocks,
    scan_blocks,
    shift_blocks,
    start_block,
)
from byheart.build.table1.shifted_table import ShiftedTable, least_modulus, shift_groups
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.ir.claim import Claim
from byheart.ir.layers import Affine
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress
from byheart.theory.theorems import output_map
from byheart.theory.upper import Promise, dense_blocks

THEOREM = Ref("P21", "Theorem 1")


@dataclass(frozen=True)
class Cut:
    """K keys per group, and labels per word of the table: the choice with the fewest parameters."""

    group: int
    places: int


@register(
    "park21",
    summary="feed-forward on the flattened row: groups shifted into a table of N^(4/3) bits, O(N^(2/3)) parameters",
    ref=THEOREM,
    tasks=(Task.NEXT_TOKEN,),
)
@implements(
    THEOREM,
    statement="N separated points are memorized by a feed-forward network of O(N^(2/3) + log(r/δ)) parameters.",
    test="tests/build/table1/test_park21.py",
)
def build_park21(dataset: Dataset, *, seed: int = 0, progress: Progress = SILENT) -> Construction:
    """Projection · one block per group adds its shift · modulo by halving · one block per word · bit extraction.

    Reconstructed from the theorem's order of growth: N^(2/3) groups, a table of length K·N + 1 > N^(4/3) that always
    has room, and words read bit by bit. The table's length is the theorem's, not the shortest that would do.
    """
    with progress.stage("numbering rows", total=2) as stage:
        rows = flat_rows(dataset)
        line = row_line(dataset, rows, Constants.MEASURED, seed)
        stage.advance()
        order = sorted(range(rows.count), key=line.numerators.__getitem__)
        label_bits = max(1, (dataset.C - 1).bit_length())
        cut = cheapest_cut(rows.count, label_bits)
        keys = [line.numerators[i] // line.denominator for i in order]
        table = shift_groups(keys, [rows.labels[i] for i in order], cut.group, cut.places, label_bits)
        stage.advance()
    steps = _steps(line, table)
    network = feed_forward_network(
        [
            ("row", (rows.layer,)),
            ("E_in", (_entrance(line),)),
            *((name, tuple(residual(STREAM, block) for block in blocks)) for name, blocks in steps),
            ("E_out", (affine(STREAM, {"y": wire("y")}, relu=False, bias=False),)),
        ],
        dataset.C,
    )
    note = (
        f"{len(table.firsts)} groups of {cut.group} rows, a table of {table.modulus} places in {len(table.words)} words"
    )
    claim = _claim(dataset, rows.count, rows.dimension, cut, label_bits, line.top, table.modulus)
    return Construction(network, claim, {}, (note,))


def cheapest_cut(count: int, label_bits: int) -> Cut:
    """K and the labels per word that need the fewest parameters; K grows like N^(1/3).

    >>> cheapest_cut(1000, 1).group, cheapest_cut(8000, 1).group
    (6, 12)
    """
    best = min(
        range(1, count + 1), key=lambda group: _cost(count, group, _places(count, group, label_bits), label_bits)
    )
    return Cut(best, _places(count, best, label_bits))


def _places(count: int, group: int, label_bits: int) -> int:
    """Labels per word: a word costs a block to look up, a bit costs a block to read."""
    look, scan = dense_blocks(1, len(STREAM), LOOK_UNITS), dense_blocks(1, len(STREAM), SCAN_UNITS)
    return max(1, round(math.sqrt(least_modulus(count, group) * look / (scan * label_bits))))


def _cost(count: int, group: int, places: int, label_bits: int) -> int:
    look, scan = dense_blocks(1, len(STREAM), LOOK_UNITS), dense_blocks(1, len(STREAM), SCAN_UNITS)
    words = -(-least_modulus(count, group) // places)
    return (-(-count // group) + words) * look + places * label_bits * scan


def _entrance(line: Line) -> Affine:
    inputs = tuple(f"x{j}" for j in range(len(line.weight)))
    projected = Form(dict(zip(inputs, line.weight, strict=True)))
    return affine(inputs, {name: projected if name == "x" else ZERO for name in STREAM}, relu=False, bias=False)


def _steps(line: Line, table: ShiftedTable) -> list[tuple[str, list[Block]]]:
    one = line.denominator  # x is a multiple of 1/one: steps this steep meet no key half-way
    return [
        ("start", [start_block(line.bias, table.word_bits, table.shifts[0])]),
        ("shift", shift_blocks(table, one)),
        ("modulo", fold_blocks(line.top, table.modulus, one)),
        ("word", look_blocks(table, one)),
        ("bits", scan_blocks(table, one)),
    ]


def _claim(dataset: Dataset, count: int, dimension: int, cut: Cut, label_bits: int, top: int, modulus: int) -> Claim:
    cloud = flat_cloud(dataset, flat_rows(dataset))
    size = len(STREAM)
    halvings = (top // modulus + 1).bit_length()
    groups, words = -(-count // cut.group), -(-modulus // cut.places)
    looks, scans = groups + halvings + words, cut.places * label_bits + 4
    promise = Promise(
        max(size, SCAN_UNITS),
        looks + scans,
        dense_blocks(looks, size, LOOK_UNITS) + dense_blocks(scans, size, SCAN_UNITS) + size * dimension,
        max(
            cut.places * label_bits + 3,
            2 * max(cloud.key_bits, cloud.projection_bits) + dataset.inputs.points.denominator.bit_length() + 2,
        ),
    ).then(output_map(size))
    return Claim(
        THEOREM,
        {
            "width": promise.width,
            "depth": promise.depth,
            "parameters": promise.parameters,
            "max_bits": promise.max_bits,
        },
        {
            "width": "ten hidden units on a stream of six",
            "depth": "N/K groups + log2(R/M) halvings + M/B words + B·c bits + 4, M = K·N + 1",
            "parameters": "32 per group, halving and word, 136 per bit; 6·n·d for the input",
            "max_bits": "B·c + 3, or a key with the fraction bits of data and projection",
        },
        assumptions=(FLAT, "rows are separated"),
    )
