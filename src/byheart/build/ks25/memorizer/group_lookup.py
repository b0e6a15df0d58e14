"""Finding the group of a key and fetching the group's two words."""

from __future__ import annotations

from collections.abc import Sequence

from byheart.build.ks25.memorizer.interval_indicator import distances, inside
from byheart.build.ks25.memorizer.key_groups import Group
from byheart.build.shared.promise import Gadget, Promise
from byheart.build.shared.wires import ZERO, Units, assemble, carried, wire, wires
from byheart.paper import Ref, implements


def lookup_plan(groups: Sequence[Group], state: Units) -> tuple[list[Units], Units]:
    """Three layers per group: the distances to its interval, the indicator, the words added where it is 1.

    `state` has at least the wire x; afterwards it also has the key word u and the label word w.
    """
    plan: list[Units] = []
    state = {**state, "u": ZERO, "w": ZERO}
    for group in groups:
        plan.append({**carried(state), **distances(state["x"], group.first, group.last)})
        kept = wires(carried(state))
        plan.append({**kept, "inside": inside()})
        words = {"u": group.key_word * wire("inside"), "w": group.label_word * wire("inside")}
        words = {name: form + kept.get(name, ZERO) for name, form in words.items()}
        plan.append({**kept, **words})
        state = wires(plan[-1])
    return plan, state


@implements(
    Ref("KS25", "Lemma G.3"),
    statement="A network of depth 3m + 2 maps every key of group j to its word; a point at distance >= 2 from all "
    "keys goes to 0 or to some group's word.",
    test="tests/build/ks25/memorizer/test_group_lookup.py",
)
def group_lookup(groups: Sequence[Group], key_bits: int, word_bits: int) -> Gadget:
    """x -> (x, u_j, w_j) for x in group j's interval, (x, 0, 0) half a step outside all of them.

    Notation: m = len(groups), R < 2^key_bits, b = word_bits (the longer of the two words). Cost: width 5, depth 3m,
    b + key_bits bits. The paper runs two look-ups of width 4 beside each other; here one indicator serves both words.

    >>> gadget = group_lookup([Group(first=2, last=6, key_word=37, label_word=7)], key_bits=4, word_bits=8)
    >>> len(gadget.layers), gadget.outputs
    (3, ('x', 'u', 'w'))
    """
    plan, state = lookup_plan(groups, wires(("x",)))
    promise = Promise(width=5, depth=3 * len(groups) + 2, bits=word_bits + key_bits)
    return Gadget(assemble(("x",), plan), ("x",), tuple(state), promise)
