"""Scanning the entries of a group's two words for the one whose key is x, and letting its label through."""

from __future__ import annotations

from byheart.build.ks25.memorizer.bit_extraction import Reader, keep, read_bit
from byheart.build.ks25.memorizer.key_groups import Fields
from byheart.build.ks25.memorizer.match_gate import gated, misses
from byheart.build.shared.promise import Gadget, Promise
from byheart.build.shared.wires import ZERO, Units, assemble, carried, wire, wires
from byheart.paper import Ref, implements


def scan_plan(fields: Fields, state: Units) -> tuple[list[Units], Units]:
    """From the wires x, u, w (and y, a sum so far) to x and y + label, as in eqs. (159) and (160)."""
    keys, labels = Reader("u", fields.key_word), Reader("w", fields.label_word)
    base = {"x": state["x"], "y": state.get("y", ZERO)}
    plan: list[Units] = [{**carried(base), **keys.start(state["u"]), **labels.start(state["w"])}]
    pairs = (*keys.pair, *labels.pair)
    state = {"y": ZERO, **wires(plan[-1])}
    for entry in range(fields.entries):
        state = {**state, keys.value: ZERO, labels.value: ZERO}
        for step in range(1, fields.steps + 1):
            layers, state = _read_step(keys, labels, fields, entry, step, state)
            plan += layers
        passed = {name: state[name] for name in ("x", "y", *pairs)} | {"label": state[labels.value]}
        plan.append({**carried(passed), **misses(state["x"], state[keys.value])})
        kept = carried(wires(name for name in plan[-1] if name not in ("label", "below", "above")))
        plan.append({**kept, "gated": gated(wire("label"), fields.label_bits)})
        state = {**kept, "y": kept.get("y", ZERO) + wire("gated")}
    return plan, {"x": state["x"], "y": state["y"]}


def _read_step(
    keys: Reader, labels: Reader, fields: Fields, entry: int, step: int, state: Units
) -> tuple[list[Units], Units]:
    """The three layers that read bit `step` of the entry's key and label; a field that is read already waits."""
    base = carried({"x": state["x"], "y": state["y"]})
    merged: list[Units] = [base, wires(base), wires(base)]
    new_state: Units = {"y": ZERO, **wires(base)}
    for reader, bits in ((keys, fields.key_bits), (labels, fields.label_bits)):
        if step <= bits:
            units, read = read_bit(reader, entry * bits + step, bits - step, state)
        else:
            units, read = keep(reader, state)
        merged = [{**a, **b} for a, b in zip(merged, units, strict=True)]
        new_state = {**new_state, **read}
    return merged, new_state


@implements(
    Ref("KS25", "Lemma G.6"),
    statement="A network of width 12, depth 3n·max(rho, c) + 2n + 2 and n·max(rho, c) + 2 bits maps (x, w, u) to the "
    "label of the entry whose key is the floor of x, and to 0 if x is away from every key.",
    test="tests/build/ks25/memorizer/test_scan.py",
)
def scan(fields: Fields) -> Gadget:
    """(x, u, w) -> the label in w beside the key of u that is ⌊x⌋, or 0.

    Notation: n = fields.entries, rho = fields.key_bits, c = fields.label_bits. Cost: width 12 (x, y and two bit
    readers of 5), depth 3n·max(rho, c) + 2n + 2, n·max(rho, c) + 2 bits. The state between entries is eq. (159):
    x, the two trajectories of u, those of w, and the sum y, so H has six outputs and G returns the sixth.

    >>> scan(Fields(entries=2, key_bits=3, label_bits=1)).promise
    Promise(width=12, depth=24, bits=8)
    """
    plan, state = scan_plan(fields, wires(("x", "u", "w")))
    plan.append({"y": state["y"]})
    bits = fields.entries * fields.steps
    promise = Promise(width=12, depth=3 * bits + 2 * fields.entries + 2, bits=bits + 2)
    return Gadget(assemble(("x", "u", "w"), plan), ("x", "u", "w"), ("y",), promise)
