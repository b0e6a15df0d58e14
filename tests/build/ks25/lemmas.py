"""The lemmas' own networks, assembled from the plans that the builders run, and what they are measured by."""

from __future__ import annotations

from collections.abc import Sequence

from byheart.build.ks25.memorizer import (
    Fields,
    Group,
    KeyTable,
    WordReader,
    distances,
    gated,
    inside,
    lookup_plan,
    memorizer_plan,
    misses,
    read_bit,
    scan_plan,
)
from byheart.build.ks25.residual_memorizer import (
    TRAJECTORIES,
    blocks,
    cleared,
    lookup_blocks,
    memorizer_blocks,
    scan_blocks,
    start_shift,
)
from byheart.build.shared.projection import KeyLine
from byheart.build.shared.wires import ZERO, Form, Units, WireBlock, assemble, wire, wires
from byheart.exact import bit_length
from byheart.ir.layers import Affine, Residual

Layers = Sequence[Affine | Residual]


def measured(layers: Layers) -> tuple[int, int, int]:
    """Width, depth and bits."""
    wide = [layer.width_out if isinstance(layer, Affine) else max(layer.width_in, layer.hidden) for layer in layers]
    bits = [bit_length(w) for layer in layers for w in layer.weights()]
    return max(wide, default=0), len(layers), max(bits, default=0)


def within(layers: Layers, width: int, depth: int, bits: int) -> bool:
    return all(found <= most for found, most in zip(measured(layers), (width, depth, bits), strict=True))


def interval_indicator(first: int, last: int) -> Layers:
    return assemble(("x",), [distances(wire("x"), first, last), {"inside": inside()}])


def group_lookup(groups: Sequence[Group]) -> Layers:
    return assemble(("x",), lookup_plan(groups, wires(("x",)))[0])


def extract_bits(length: int, first: int, last: int) -> Layers:
    reader = WordReader("z", length)
    state: Units = {**wires(reader.pair), reader.value: ZERO}
    plan: list[Units] = []
    for place in range(first, last + 1):
        layers, state = read_bit(reader, place, last - place, state)
        plan += layers
    return assemble(reader.pair, plan)


def match_gate(label_bits: int) -> Layers:
    plan = [{"label": wire("label"), **misses(wire("x"), wire("key"))}, {"gated": gated(wire("label"), label_bits)}]
    return assemble(("x", "key", "label"), plan)


def scan(fields: Fields) -> Layers:
    plan, state = scan_plan(fields, wires(("x", "u", "w")))
    return assemble(("x", "u", "w"), [*plan, {"y": state["y"]}])


def memorizer(table: KeyTable, piece: int | None = None) -> Layers:
    pieces = [table] if piece is None else table.pieces(piece)
    plan, state = memorizer_plan(pieces, wires(("x",)))
    return assemble(("x",), [*plan, {"y": state["y"]}])


def residual_lookup(groups: Sequence[Group], fields: Fields) -> Layers:
    return blocks([WireBlock(cleared(*TRAJECTORIES), start_shift(fields)), *lookup_blocks(groups, fields)])


def residual_scan(fields: Fields) -> Layers:
    return blocks(scan_blocks(fields))


def residual_memorizer(table: KeyTable, piece: int | None = None, hidden: int = 14) -> Layers:
    return blocks(memorizer_blocks(table.pieces(piece or max(1, len(table.keys))), hidden))


def projection(line: KeyLine) -> Layers:
    inputs = tuple(f"x{j}" for j in range(len(line.weight)))
    return assemble(inputs, [{"x": Form(dict(zip(inputs, line.weight, strict=True)), line.bias)}])
