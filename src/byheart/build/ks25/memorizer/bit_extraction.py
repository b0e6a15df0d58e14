"""Reading the bits of a long word, one after the other, by iterating Telgarsky's triangle function.

    psi(z) = relu(relu(2z) - relu(4z - 2)) doubles z and folds it back at 1/2.

Two points z1 > z2 that lie 2^(-n-2) apart inside the cell of a word x travel together; after l foldings they are
2^(l-n-2) apart, and their order tells bit l: it is turned round exactly when bit l of x is 1. Hence

    bit_l = relu(2^(n+2-l) · (psi^l(z2) - psi^l(z1))).
"""

from __future__ import annotations

from dataclasses import dataclass

from byheart.build.shared.wires import ZERO, Form, Units, carried, wire, wires
from byheart.exact import dyadic
from byheart.paper import Ref, implements


@dataclass(frozen=True)
class Reader:
    """The wires of one word that is being read: `name`1 and `name`2 are the trajectories, `value` what was read."""

    name: str
    length: int  # n: bits of the whole word

    @property
    def pair(self) -> tuple[str, str]:
        return self.name + "1", self.name + "2"

    @property
    def value(self) -> str:
        return self.name + " value"

    def start(self, word: Form) -> Units:
        """Where the trajectories begin: x/2^n + 2^(-n-1) and x/2^n + 2^(-n-2)."""
        first, second = self.pair
        scaled = dyadic(1, -self.length) * word
        return {first: scaled + dyadic(1, -self.length - 1), second: scaled + dyadic(1, -self.length - 2)}

    def difference(self, place: int) -> Form:
        """±1: +1 when bit `place` (counted from 1, highest first) is 1. Read after `place` foldings."""
        first, second = self.pair
        return (1 << self.length + 2 - place) * (wire(second) - wire(first))


@implements(
    Ref("KS25", "Lemma G.4"),
    statement="A network of width 5 and depth 3(j - i + 1) turns the two trajectories after i - 1 foldings into "
    "those after j foldings and the number that bits i to j spell.",
    test="tests/build/ks25/memorizer/test_bit_extraction.py",
)
def read_bit(reader: Reader, place: int, left: int, state: Units) -> tuple[list[Units], Units]:
    """Three layers that fold both trajectories and append bit `place` to the value; `left` bits follow it.

    The bit is a unit of its own and the next layer reads value + 2^left · bit, which keeps weights at n + 2 bits;
    only the last bit (left = 0) is small enough to be added at once.

    Bits i to j of a word of n bits are read by j - i + 1 such steps: width 5, depth 3(j - i + 1), n + 2 bits. i = j is
    allowed (the paper's i < j is a slip).
    """
    value, bit = reader.value, reader.name + " bit"
    fold: dict[str, Form] = {}
    psi: dict[str, Form] = {}
    for z in reader.pair:
        fold |= {z + " up": 2 * state[z], z + " down": 4 * state[z] - 2}
        psi[z] = wire(z + " up") - wire(z + " down")
    kept = carried({value: state[value]})
    folded = {**psi, **wires(kept)}
    after = wires(folded)
    difference = reader.difference(place)
    if left == 0:
        total = after.get(value, ZERO) + dyadic(1, -1) * (difference + 1)
        return [{**fold, **kept}, folded, {**after, value: total}], wires((*reader.pair, value))
    emitted = {**after, bit: difference}
    new_value = after.get(value, ZERO) + (1 << left) * wire(bit)
    return [{**fold, **kept}, folded, emitted], {**wires(reader.pair), value: new_value}


def keep(reader: Reader, state: Units) -> tuple[list[Units], Units]:
    """The same three layers for a word whose field is read already: everything is carried."""
    kept = {name: state[name] for name in (*reader.pair, reader.value)}
    return [kept, wires(kept), wires(kept)], wires(kept)
