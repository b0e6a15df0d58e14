"""Park, Lee, Yun and Shin 2021: the first sub-linear memorization, O(N^(2/3)), on flattened rows."""

from __future__ import annotations

from byheart.build._base import Construction, register
from byheart.build.shared.projection import Constants, Line
from byheart.build.shared.wires import ZERO, Block, Form, affine, residual, wire
from byheart.build.table1.flattened import feed_forward_network, flat_rows, row_line
from byheart.build.table1.park21_blocks import (
    STREAM,
    fold_blocks,
    look_blocks,
    scan_blocks,
    shift_blocks,
    start_block,
)
from byheart.build.table1.shifted_table import ShiftedTable, shift_groups
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.ir.layers import Affine
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress
from byheart.theory.promises.table1 import cheapest_cut

THEOREM = Ref("P21", "Theorem 1")


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
    return Construction(network, {}, (note,))


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
