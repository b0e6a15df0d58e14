"""One on an interval, zero outside it."""

from __future__ import annotations

from byheart.build.shared.promise import Gadget, Promise
from byheart.build.shared.wires import Form, Units, assemble, wire
from byheart.errors import BuildError
from byheart.paper import Ref, implements


def distances(x: Form, first: int, last: int) -> Units:
    """How far x is below `first` and above `last`: the first layer of the indicator."""
    return {"below": first - x, "above": x - last}


def inside() -> Form:
    """The second layer: relu(1 - 2·below - 2·above)."""
    return 1 - 2 * wire("below") - 2 * wire("above")


@implements(
    Ref("KS25", "Lemma G.2"),
    statement="A network of width 2 and depth 2 is 1 on [a, b] and 0 below a - 1/2 and above b + 1/2.",
    test="tests/build/ks25/memorizer/test_interval_indicator.py",
)
def interval_indicator(first: int, last: int) -> Gadget:
    """relu(1 - 2·relu(first - x) - 2·relu(x - last)): 1 on [first, last], 0 half a step outside.

    Notation: a = first, b = last. Cost: width 2, depth 2, LEN(b) bits (at least the 2 bits of the weight 2).

    >>> gadget = interval_indicator(3, 5)
    >>> [layer.weight.dense() for layer in gadget.layers]
    [[[-1], [1]], [[-2, -2]]]
    """
    if not 0 <= first < last:
        raise BuildError(f"an interval needs 0 <= first < last, not {first} and {last}")
    layers = assemble(("x",), [distances(wire("x"), first, last), {"inside": inside()}])
    return Gadget(layers, ("x",), ("inside",), Promise(width=2, depth=2, bits=max(2, last.bit_length())))
