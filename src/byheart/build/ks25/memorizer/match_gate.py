"""Does a key match a stored one, and if so, which label goes through."""

from __future__ import annotations

from byheart.build.shared.promise import Gadget, Promise
from byheart.build.shared.wires import Form, Units, assemble, wire
from byheart.paper import Ref, implements


def misses(x: Form, key: Form) -> Units:
    """How far x is below the stored key and above key + 1; both are 0 when ⌊x⌋ is the key."""
    return {"below": key - x, "above": x - key - 1}


def gated(label: Form, label_bits: int) -> Form:
    """label - 2^(c+1)·(below + above): positive only on a match, where it is the label."""
    return label - (1 << label_bits + 1) * (wire("below") + wire("above"))


@implements(
    Ref("KS25", "Lemma G.5"),
    statement="A network of width 2, depth 2 and 2 bits is 1 where x is in [y, y + 1] and 0 where x > y + 3/2 or "
    "x < y - 1/2.",
    test="tests/build/ks25/memorizer/test_match_gate.py",
)
def match() -> Gadget:
    """(x, key) -> 1 if key <= x <= key + 1, 0 half a step outside.

    >>> match().promise
    Promise(width=2, depth=2, bits=2)
    """
    plan = [misses(wire("x"), wire("key")), {"match": 1 - 2 * wire("below") - 2 * wire("above")}]
    return Gadget(assemble(("x", "key"), plan), ("x", "key"), ("match",), Promise(width=2, depth=2, bits=2))


@implements(
    Ref("KS25", "eq. (158)"),
    statement="The label passes where the key matches and 0 passes elsewhere.",
    test="tests/build/ks25/memorizer/test_match_gate.py",
)
def match_gate(label_bits: int) -> Gadget:
    """(x, key, label) -> label if key <= x <= key + 1, 0 half a step outside, for labels below 2^label_bits.

    Lemma G.5 and eq. (158) in two layers instead of three: the distances themselves close the gate.
    Notation: c = label_bits. Cost: width 3, depth 2, c + 2 bits.

    >>> match_gate(3).layers[1].weight.dense()
    [[1, -16, -16]]
    """
    plan = [
        {"label": wire("label"), **misses(wire("x"), wire("key"))},
        {"gated": gated(wire("label"), label_bits)},
    ]
    inputs = ("x", "key", "label")
    return Gadget(assemble(inputs, plan), inputs, ("gated",), Promise(width=3, depth=2, bits=label_bits + 2))
