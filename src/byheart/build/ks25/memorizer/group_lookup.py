"""Finding the group of a key and fetching the group's two words.

One on an interval, zero outside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from byheart.build.ks25.memorizer.key_groups import Group
from byheart.build.shared.wires import ZERO, Form, Units, carried, wire, wires
from byheart.paper import Ref, implements


@implements(
    Ref("KS25", "Lemma G.2"),
    statement="A network of width 2 and depth 2 is 1 on [a, b] and 0 below a - 1/2 and above b + 1/2.",
    test="tests/build/ks25/memorizer/test_interval_indicator.py",
)
def distances(x: Form, first: int, last: int) -> Units:
    """How far x is below `first` and above `last`: the first layer of the indicator, `inside` is the second.

    Together relu(1 - 2·relu(first - x) - 2·relu(x - last)): 1 on [first, last], 0 half a step outside.
    Notation: a = first, b = last. Cost: width 2, depth 2, LEN(b) bits (at least the 2 bits of the weight 2).
    """
    return {"below": first - x, "above": x - last}


def inside() -> Form:
    """The second layer: relu(1 - 2·below - 2·above)."""
    return 1 - 2 * wire("below") - 2 * wire("above")


@implements(
    Ref("KS25", "Lemma G.3"),
    statement="A network of depth 3m + 2 maps every key of group j to its word; a point at distance >= 2 from all "
    "keys goes to 0 or to some group's word.",
    test="tests/build/ks25/memorizer/test_group_lookup.py",
)
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
