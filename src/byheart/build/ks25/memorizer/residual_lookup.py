"""Group look-up with skip connections: one block of two units per group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byheart.build.ks25.memorizer.key_groups import Fields, Group
from byheart.build.ks25.memorizer.residual_stream import STREAM, TRAJECTORIES, U1, U2, W1, W2, X, blocks, cleared
from byheart.build.shared.promise import Gadget, Promise
from byheart.build.shared.wires import Block, Effect, wire
from byheart.exact import Number, dyadic
from byheart.paper import Ref, implements


def start_shift(fields: Fields) -> dict[str, Number]:
    """Where the trajectories of a zero word begin: half and a quarter of a cell above zero."""
    t, s = fields.key_word, fields.label_word
    return {U1: dyadic(1, -t - 1), U2: dyadic(1, -t - 2), W1: dyadic(1, -s - 1), W2: dyadic(1, -s - 2)}


def lookup_blocks(groups: Sequence[Group], fields: Fields) -> list[Block]:
    """Each block adds the difference to the previous group's words once x has reached the group's first key."""
    steps = []
    key_word = label_word = 0
    for group in groups:
        key_step = dyadic(group.key_word - key_word, -fields.key_word)
        label_step = dyadic(group.label_word - label_word, -fields.label_word)
        adds: Mapping[str, Number] = {U1: key_step, U2: key_step, W1: label_step, W2: label_step}
        reached = 2 * wire(X) - 2 * group.first  # relu(reached + 1) - relu(reached) steps from 0 to 1 before the key
        takes = {name: -weight for name, weight in adds.items()}
        steps.append(Block((Effect(reached + 1, adds), Effect(reached, takes))))
        key_word, label_word = group.key_word, group.label_word
    return steps


@implements(
    Ref("KS25", "Lemma G.3"),
    statement="With skip connections: one block of two hidden units per group fetches its words.",
    test="tests/build/ks25/memorizer/test_residual_memorizer.py",
)
def residual_lookup(groups: Sequence[Group], fields: Fields) -> Gadget:
    """Clears the trajectories and starts them at the words of the last group that x has reached.

    Cost: stream 10, 4 hidden units in the first block and 2 in each of the m others, 1 + m blocks, at most
    max(K·max(rho, c), rho + 1, 2) + 2 bits.

    >>> gadget = residual_lookup([Group(2, 6, 37, 7)], Fields(entries=2, key_bits=4, label_bits=2))
    >>> len(gadget.layers), gadget.promise.depth
    (2, 2)
    """
    steps = [Block(cleared(*TRAJECTORIES), start_shift(fields)), *lookup_blocks(groups, fields)]
    bits = max(fields.entries * fields.steps, fields.key_bits) + 2
    return Gadget(blocks(steps), STREAM, STREAM, Promise(width=10, depth=1 + len(groups), bits=bits))
