"""A feed-forward network that stores labels and is zero on other known points: KS25, Lemma C.1.

Sorted keys and their labels are packed into two long words per group (`pack`). The network finds the group of a key and
fetches the group's words (`lookup_plan`), then scans their entries for the one whose key is x, and lets its label
through (`scan_plan`).

The bits of a long word are read one after the other, by iterating Telgarsky's triangle function:

    psi(z) = relu(relu(2z) - relu(4z - 2)) doubles z and folds it back at 1/2.

Two points z1 > z2 that lie 2^(-n-2) apart inside the cell of a word x travel together; after l foldings they are
2^(l-n-2) apart, and their order determines bit l: it is turned round exactly when bit l of x is 1. Hence

    bit_l = relu(2^(n+2-l) · (psi^l(z2) - psi^l(z1))).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from byheart.build.shared.wires import ZERO, Form, Units, carried, renamed, wire, wires
from byheart.errors import BuildError
from byheart.exact import dyadic
from byheart.paper import Ref, implements


@dataclass(frozen=True)
class Fields:
    """How a word is divided: `entries` fields, each of `key_bits` in the key word and `label_bits` in the label word.

    Notation: entries = n of Lemma G.6 (K in our notes), key_bits = rho, label_bits = c.
    """

    entries: int
    key_bits: int
    label_bits: int

    def __post_init__(self) -> None:
        if min(self.entries, self.key_bits, self.label_bits) < 1:
            raise BuildError(f"fields need at least one entry and one bit, not {self}")

    @property
    def steps(self) -> int:
        """max(rho, c): bits to read per entry."""
        return max(self.key_bits, self.label_bits)

    @property
    def key_word(self) -> int:
        return self.entries * self.key_bits

    @property
    def label_word(self) -> int:
        return self.entries * self.label_bits


@dataclass(frozen=True)
class Group:
    """Consecutive keys: the interval [first, last] that contains them, and their two words (u_j and w_j)."""

    first: int
    last: int
    key_word: int
    label_word: int


def pack(keys: Sequence[int], labels: Sequence[int], fields: Fields) -> tuple[Group, ...]:
    """Groups of `fields.entries` keys (the floors of x_1 < … < x_N), first entry in the highest bits.

    Unused entries of the last group have key 0 and label 0: no x >= 2 matches them.

    >>> pack([2, 5, 8], [1, 3, 2], Fields(entries=2, key_bits=4, label_bits=2))
    (Group(first=2, last=6, key_word=37, label_word=7), Group(first=8, last=9, key_word=128, label_word=8))
    """
    for earlier, later in pairwise(keys):
        if later - earlier < 1:
            raise BuildError(f"keys must ascend, but {later} follows {earlier}")
    for key, label in zip(keys, labels, strict=True):
        if not 2 <= key < 1 << fields.key_bits or not 1 <= label < 1 << fields.label_bits:
            raise BuildError(f"key {key} with label {label} does not fit {fields}")
    groups = []
    for start in range(0, len(keys), fields.entries):
        key_word = label_word = 0
        chunk = range(start, min(start + fields.entries, len(keys)))
        for place in range(start, start + fields.entries):
            key_word = key_word << fields.key_bits | (keys[place] if place in chunk else 0)
            label_word = label_word << fields.label_bits | (labels[place] if place in chunk else 0)
        groups.append(Group(keys[chunk[0]], keys[chunk[-1]] + 1, key_word, label_word))
    return tuple(groups)


@dataclass(frozen=True)
class WordReader:
    """The wires of one word that is being read: `name`1 and `name`2 are the trajectories, `value` the bits read."""

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
    test="tests/build/ks25/test_memorizer.py",
)
def read_bit(reader: WordReader, place: int, left: int, state: Units) -> tuple[list[Units], Units]:
    """Three layers that fold both trajectories and append bit `place` to the value; `left` bits follow it.

    The bit is a separate unit and the next layer reads value + 2^left · bit, which keeps weights at n + 2 bits;
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


def keep(reader: WordReader, state: Units) -> tuple[list[Units], Units]:
    """The same three layers for a word whose field is read already: everything is carried."""
    kept = {name: state[name] for name in (*reader.pair, reader.value)}
    return [kept, wires(kept), wires(kept)], wires(kept)


@implements(
    Ref("KS25", "Lemma G.2"),
    statement="A network of width 2 and depth 2 is 1 on [a, b] and 0 below a - 1/2 and above b + 1/2.",
    test="tests/build/ks25/test_memorizer.py",
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
    test="tests/build/ks25/test_memorizer.py",
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


@implements(
    Ref("KS25", "Lemma G.5"),
    statement="A network of width 2, depth 2 and 2 bits is 1 where x is in [y, y + 1] and 0 where x > y + 3/2 or "
    "x < y - 1/2.",
    test="tests/build/ks25/test_memorizer.py",
    partly="its two distances close the gate of eq. (158) themselves, which saves a layer; the "
    "indicator as such is not built",
)
def misses(x: Form, key: Form) -> Units:
    """How far x is below the stored key and above key + 1; both are 0 on [key, key + 1], so where ⌊x⌋ is the key.

    Lemma G.5 is 1 - 2·below - 2·above of these; here the distances themselves close the gate, which saves a layer.
    """
    return {"below": key - x, "above": x - key - 1}


@implements(
    Ref("KS25", "eq. (158)"),
    statement="The label passes where the key matches and 0 passes elsewhere; two distances replace the paper's "
    "indicator.",
    test="tests/build/ks25/test_memorizer.py",
)
def gated(label: Form, label_bits: int) -> Form:
    """label - 2^(c+1)·(below + above): positive only on a match, where it is the label."""
    return label - (1 << label_bits + 1) * (wire("below") + wire("above"))


@implements(
    Ref("KS25", "Lemma G.6"),
    statement="A network of width 12, depth 3n·max(rho, c) + 2n + 2 and n·max(rho, c) + 2 bits maps (x, w, u) to the "
    "label of the entry whose key is the floor of x, and to 0 if x is not near any key.",
    test="tests/build/ks25/test_memorizer.py",
)
def scan_plan(fields: Fields, state: Units) -> tuple[list[Units], Units]:
    """From the wires x, u, w (and y, a sum so far) to x and y + label, as in eqs. (159) and (160).

    Notation: n = fields.entries, rho = fields.key_bits, c = fields.label_bits. Cost: width 12 (x, y and two bit
    readers of 5), depth 3n·max(rho, c) + 2n + 2 with the layer that gives y, n·max(rho, c) + 2 bits. The state between
    entries is eq. (159): x, the two trajectories of u, those of w, and the sum y, so H has six outputs and G returns
    the sixth.
    """
    keys, labels = WordReader("u", fields.key_word), WordReader("w", fields.label_word)
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
    keys: WordReader, labels: WordReader, fields: Fields, entry: int, step: int, state: Units
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


@dataclass(frozen=True)
class KeyTable:
    """The data to memorize: keys (floors of points on the line, at least 2, ascending, 2 apart) and labels >= 1."""

    keys: tuple[int, ...]
    labels: tuple[int, ...]
    fields: Fields

    @staticmethod
    def of(keys: Sequence[int], labels: Sequence[int], fields: Fields) -> KeyTable:
        """The labelled keys in ascending order; label 0 means none.

        >>> KeyTable.of([8, 2, 5], [2, 1, 0], Fields(entries=1, key_bits=4, label_bits=2)).keys
        (2, 8)
        """
        pairs = sorted((key, label) for key, label in zip(keys, labels, strict=True) if label)
        return KeyTable(tuple(key for key, _ in pairs), tuple(label for _, label in pairs), fields)

    @property
    def groups(self) -> tuple[Group, ...]:
        return pack(self.keys, self.labels, self.fields)

    @property
    def group_count(self) -> int:
        return -(-len(self.keys) // self.fields.entries)

    def pieces(self, size: int) -> tuple[KeyTable, ...]:
        """The same table in pieces of at most `size` keys."""
        if size < 1:
            raise BuildError(f"a piece needs at least one key, not {size}")
        starts = range(0, len(self.keys), size)
        return tuple(KeyTable(self.keys[s : s + size], self.labels[s : s + size], self.fields) for s in starts)


@implements(
    Ref("KS25", "Lemma C.1"),
    statement="N labelled points and any further points: a network of width 12 and depth O(sqrt(N log N) + "
    "sqrt(N / log N)·log max(R, C)) gives the N labels, and 0 on the further points.",
    test="tests/build/ks25/test_memorizer.py",
)
def memorizer_plan(pieces: Sequence[KeyTable], state: Units, *, abreast: bool = False) -> tuple[list[Units], Units]:
    """x -> label of the key ⌊x⌋, or 0 for any x >= 2 at a distance of at least 2 from all keys: stages II and III.

    Pieces work one after the other on a shared x and a shared sum y, or all at once beside each other (`abreast`):
    each is zero where x is not one of its keys, so the sum of them is the label. Stage I is the projection to the
    line. Notation: m = piece.group_count, K = fields.entries, rho = fields.key_bits, c = fields.label_bits (the
    paper's text swaps rho and c). `byheart.theory.upper.explicit_memory` computes the lemma's guarantee.
    """
    if abreast:
        return _abreast(pieces, state)
    plan: list[Units] = []
    for piece in pieces:
        layers, state = lookup_plan(piece.groups, state)
        plan += layers
        layers, state = scan_plan(piece.fields, state)
        plan += layers
    return plan, {"y": ZERO, **state}


def _abreast(pieces: Sequence[KeyTable], state: Units) -> tuple[list[Units], Units]:
    """All pieces at once on a shared x; one with fewer groups waits for the others before it scans."""
    most = max(piece.group_count for piece in pieces)
    plan: list[dict[str, Form]] = []
    total, x = ZERO, state["x"]
    for number, piece in enumerate(pieces):
        layers, found = lookup_plan(piece.groups, {"x": x})
        layers += [wires(carried(found))] * (3 * (most - piece.group_count))
        scan, found = scan_plan(piece.fields, found)
        copies = [renamed(units, f"#{number}", shared="x") for units in (*layers, *scan)]
        plan = [{**a, **b} for a, b in zip(plan, copies, strict=True)] if plan else copies
        last = renamed(found, f"#{number}", shared="x")
        total, x_after = total + last[f"y#{number}"], last["x"]
    return list(plan), {"x": x_after, "y": total}
