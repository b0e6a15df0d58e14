"""Vardi, Yehudai and Shamir 2022: a feed-forward network of O(sqrt(N log N)) parameters, on flattened rows."""

from __future__ import annotations

from dataclasses import replace

from byheart.build._base import Construction, register
from byheart.build.ks25.layers import input_map as input_layer
from byheart.build.ks25.layers import stream
from byheart.build.ks25.memorizer import Fields, memorizer_plan
from byheart.build.ks25.parts import (
    CONSTANTS,
    DEPTH,
    FORM,
    BuildStyle,
    KeyLookup,
    PartLimit,
    measured_fields,
    needed,
    paper_fields,
)
from byheart.build.ks25.residual_memorizer import X, Y, blocks, memorizer_blocks, memorizer_lanes
from byheart.build.shared.projection import KeyLine
from byheart.build.shared.wires import affine, assemble, wire, wires
from byheart.build.table1.flattened import feed_forward_network, flat_cloud, flat_rows, row_line
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.ir.layers import Layer
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress
from byheart.theory.guarantees.ks25 import NO_PAPER_DEPTH, least_depth, too_shallow
from byheart.theory.guarantees.table1 import FlatFacts
from byheart.theory.upper import DENSE, PLAIN_WIDTH, label_bits, lanes_within

THEOREM = Ref("V22", "Theorem 3.1")


@register(
    "vardi22",
    summary="feed-forward on the flattened row: groups of sqrt(N) entries read bit by bit, O(sqrt(N log N)) parameters",
    order=40,
    formula="Vardi 2022",
    description="The optimal feed-forward network: rows are put on a line and split into groups; the keys and labels "
    "of a group are two long words that are read bit by bit. Grows like the square root of N, but must see the "
    "whole row at once, which costs a column per number of the row.",
    ref=THEOREM,
    tasks=(Task.NEXT_TOKEN,),
    options=(FORM, CONSTANTS, DEPTH),
)
@implements(
    THEOREM,
    statement="N separated points with C labels are memorized by a feed-forward network of width 12 and "
    "O(sqrt(N log N)) layers: projection, group lookup, bit extraction.",
    test="tests/build/table1/test_nilsson65.py",
)
def build_vardi22(
    dataset: Dataset,
    *,
    seed: int = 0,
    progress: Progress = SILENT,
    form: str = "residual",
    constants: str = "measured",
    depth: int | None = None,
) -> Construction:
    """Flatten · projection to a line · lookup of the group's words · bit extraction · label.

    The theorem is V22's; its lemmas are used as KS25 restates them (Lemmas C.1, C.2, G.2 to G.6). The form with skip
    connections is KS25's; form="plain" is the feed-forward network of the proof.
    """
    style = BuildStyle.of(form, constants, seed)
    if depth is not None and style.as_in_the_paper:
        raise OptionError(f"depth={depth} needs constants=measured: {NO_PAPER_DEPTH}")
    with progress.stage("numbering rows", total=1) as stage:
        rows = flat_rows(dataset)
        line = row_line(dataset, rows, style.constants, seed)
        stage.advance()
    labels = [label + 1 for label in rows.labels]
    cloud = flat_cloud(dataset, rows)

    def divide(keys: object, found: object) -> Fields:
        if style.as_in_the_paper:
            return paper_fields(line.floors, rows.count, cloud.key_bits, label_bits(dataset.C))
        limit = PartLimit(FlatFacts.of(dataset).part(dataset.C, style.form), PLAIN_WIDTH if style.plain else DENSE)
        return measured_fields(style, line.floors, labels, DENSE, limit)

    memory = KeyLookup.of(line.floors, labels, divide)
    body = memory_layers(style, line, memory)
    if depth is not None and len(body) - 2 > depth:
        style, memory = in_lanes(style, line, labels, depth)
        body = memory_layers(style, line, memory)
    network = feed_forward_network(
        [("row", (rows.layer,)), ("E_in", body[:1]), ("label memory", body[1:-1]), ("E_out", body[-1:])], dataset.C, 1
    )
    return Construction(
        network,
        {"form": form, "constants": constants, "depth": depth},
        (f"{rows.count} different rows of {rows.dimension} numbers; {memory.fields}",),
    )


def memory_layers(style: BuildStyle, line: KeyLine, memory: KeyLookup) -> tuple[Layer, ...]:
    """E_in, the memorizer of the line's keys, E_out; label 0 for numbers that are not keys."""
    entrance = input_layer(style, line)
    if style.plain:
        first = {"x": wire("x") + line.bias}
        plan, state = memorizer_plan(memory.pieces, wires(first), abreast=style.lanes > 1)
        plan = [first, *plan]
        exit_map = affine(tuple(plan[-1]), {"y": state["y"]}, relu=False, bias=False)
        return entrance, *assemble(("x",), plan), exit_map
    make = memorizer_lanes if style.lanes > 1 else memorizer_blocks
    steps = make(memory.pieces, shift={X: line.bias})
    return entrance, *blocks(steps, style.lanes), affine(stream(style), {"y": wire(Y)}, relu=False, bias=False)


def in_lanes(style: BuildStyle, line: KeyLine, labels: list[int], depth: int) -> tuple[BuildStyle, KeyLookup]:
    """The memory split into lanes, so that it is no deeper than `depth`."""
    entries, key_bits, label_bits = needed(style, line.floors, labels)
    lanes = lanes_within(depth, entries, key_bits, label_bits, style.form)
    if lanes is None:
        least = least_depth((entries, key_bits, label_bits), style.form)
        raise too_shallow(depth, f"{style.form} memories with keys of {key_bits} bits", least)
    style = replace(style, lanes=lanes.count)
    return style, KeyLookup.in_lanes(style, line.floors, labels, lanes)
