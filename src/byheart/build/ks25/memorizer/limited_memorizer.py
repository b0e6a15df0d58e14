"""The memorizer with short weights: many small memorizers in a row, each knowing a few of the points."""

from __future__ import annotations

from byheart.build.ks25.memorizer.memorizer import Table, bits_promised, depth_promised, memorizer_plan
from byheart.build.shared.promise import Gadget, Promise
from byheart.build.shared.wires import assemble, wires
from byheart.paper import Ref, implements


@implements(
    Ref("KS25", "Lemma F.1"),
    statement="With B in [1, sqrt(N)], width 13 and depth O(N/B) pieces of B^2 points need only O(B) bits per weight.",
    test="tests/build/ks25/memorizer/test_limited_memorizer.py",
)
def limited_memorizer(table: Table, piece: int) -> Gadget:
    """The same function as `memorizer`, from pieces of `piece` keys that add to one y (eq. 140).

    Stage I is done once: projecting again for every piece would let R grow. Notation: B^2 = piece; the paper's
    indices run to N/B^2 + 1, not N/B^2. Cost: width 13, and per piece the depth and bits of Lemma C.1.

    >>> from byheart.build.ks25.memorizer.key_groups import Fields
    >>> table = Table((2, 5, 8), (1, 3, 2), Fields(entries=1, key_bits=4, label_bits=2))
    >>> limited_memorizer(table, piece=1).promise
    Promise(width=13, depth=63, bits=8)
    """
    pieces = table.pieces(piece)
    plan, state = memorizer_plan(pieces, wires(("x",)))
    plan.append({"y": state["y"]})
    depth = sum(depth_promised(part.group_count, table.fields) for part in pieces)
    return Gadget(assemble(("x",), plan), ("x",), ("y",), Promise(13, max(1, depth), bits_promised(table.fields)))
