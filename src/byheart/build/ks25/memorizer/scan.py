"""Scanning the entries of a group's two words for the one whose key is x, and letting its label through.

Does a key match a stored one, and if so, which label goes through.
"""

from __future__ import annotations

from byheart.build.ks25.memorizer.bit_extraction import Reader, keep, read_bit
from byheart.build.ks25.memorizer.key_groups import Fields
from byheart.build.shared.wires import ZERO, Form, Units, carried, wire, wires
from byheart.paper import Ref, implements


@implements(
    Ref("KS25", "Lemma G.5"),
    statement="A network of width 2, depth 2 and 2 bits is 1 where x is in [y, y + 1] and 0 where x > y + 3/2 or "
    "x < y - 1/2.",
    test="tests/build/ks25/memorizer/test_match_gate.py",
)
def misses(x: Form, key: Form) -> Units:
    """How far x is below the stored key and above key + 1; both are 0 when ⌊x⌋ is the key.

    Lemma G.5 is 1 - 2·below - 2·above of these; here the distances themselves close the gate, which saves a layer.
    """
    return {"below": key - x, "above": x - key - 1}


@implements(
    Ref("KS25", "eq. (158)"),
    statement="The label passes where the key matches and 0 passes elsewhere.",
    test="tests/build/ks25/memorizer/test_match_gate.py",
)
def gated(label: Form, label_bits: int) -> Form:
    """label - 2^(c+1)·(below + above): positive only on a match, where it is the label."""
    return label - (1 << label_bits + 1) * (wire("below") + wire("above"))


@implements(
    Ref("KS25", "Lemma G.6"),
    statement="A network of width 12, depth 3n·max(rho, c) + 2n + 2 and n·max(rho, c) + 2 bits maps (x, w, u) to the "
    "label of the entry whose key is the floor of x, and to 0 if x is not near any key.",
    test="tests/build/ks25/memorizer/test_scan.py",
)
def scan_plan(fields: Fields, state: Units) -> tuple[list[Units], Units]:
    """From the wires x, u, w (and y, a sum so far) to x and y + label, as in eqs. (159) and (160).

    Notation: n = fields.entries, rho = fields.key_bits, c = fields.label_bits. Cost: width 12 (x, y and two bit
    readers of 5), depth 3n·max(rho, c) + 2n + 2 with the layer that gives y, n·max(rho, c) + 2 bits. The state between
    entries is eq. (159): x, the two trajectories of u, those of w, and the sum y, so H has six outputs and G returns
    the sixth.
    """
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
