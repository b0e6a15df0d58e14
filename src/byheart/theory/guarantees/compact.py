"""The guarantee of `compact`: the largest cost of a memory, from facts that are known before anything is built.

    c1·sqrt(M·b) + c2·(length of ids) + c3:   M contexts, b bits per label

with a token hash before it and a readout after it. The builder keeps it (it samples again, searches longer, or raises a
BuildError), and a checker computes it again from the same facts, without the builder.

    >>> facts = CompactFacts(contexts=10_000, classes=2, sum_bits=3, inputs=1, token_bits=16, tokens=50_000)
    >>> compact_budget(facts, head="sign")
    854
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import ceil, erfc, inf, lcm, log2, sqrt
from typing import Any

import numpy as np

from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.ir.size import Claim
from byheart.paper import Ref
from byheart.theory.guarantees import choice, guarantees

ROOT = 6.6  # c1: per square root of a label bit; 4.90 is the least for folds that are fixed beforehand
ID_BIT = 2.5  # c2: per bit of an id, for the walk; traps do not depend on the length of ids
LONG = 1.72  # times c2, where ids are so long that no digit is left to choose
TRAP_CLASSES = 16  # up to which traps can be taken, where logits are read
REST = 60.0  # c3
HASH_SPREAD = 14  # blocks of the token hash beyond the length of tokens
CELL_LOSS = 0.26  # bits by which equal cells under a normal walk cost more than log2 C
CELL_SPARE, CELL_SKEW = 0.1, 1.05  # bits that a walk into cells by frequency may cost more than they should, and times
MOST_CELLS = 4096  # classes whose frequencies are looked at
SKEW = 1.1  # times the entropy: the excess cost of traps by frequency
PHASE_FOLDS = 12.0  # parameters of the folds that a phase of traps has at least, however rare its label
MOST_PHASES = 64  # classes up to which traps can be taken
ABSTAIN_BIT = 5.0  # per bit of abstaining: few rows, too, need a walk that is long enough to end anywhere
SPARE = 24  # beyond a line through all ids: six folds, for a token hash or a memory that has them
SHORT = 1.8  # times: fewest bits instead of fewest parameters


@dataclass(frozen=True)
class CompactFacts:
    """The inputs of the budget; `of` reads them from a data set."""

    contexts: int
    classes: int
    sum_bits: int  # length of the number that makes sums of means
    inputs: int  # numbers per token
    token_bits: int  # length of the numbers that tokens are
    tokens: int
    pooled: bool = False  # a set: no attention
    started: bool = False  # a start token: prefixes without positions
    summed: bool = False  # symbols: a token and the sum of its row distinguish all contexts, so nothing needs hashing
    prefixes: bool = False  # read by means: hashed longer than need be, so that ids do not form clusters
    drawn_bits: int = 0  # vectors: how much of the length a random projection may take
    frequencies: tuple[int, ...] = ()  # how often each label occurs; empty where only the number of classes is known

    @staticmethod
    def of(dataset: Dataset) -> CompactFacts:
        """From the data alone: no network, no option, no random number."""
        points = dataset.inputs.points
        task = dataset.encoder.task
        started = task is Task.CAUSAL and not dataset.encoder.positions and dataset.n > 1
        sums = lcm(*range(1, dataset.n + 1 + started)) if task is Task.CAUSAL else dataset.n
        length = _longest(points.numerators)
        drawn = 0
        if dataset.encoder.symbols is not None:
            length += (len(dataset.encoder.symbols) + 1).bit_length() if points.width > 1 else 0
        else:  # vectors are projected until all differ
            drawn = 2 * points.count.bit_length()
            length += drawn + points.width.bit_length() + 2
        return CompactFacts(
            len(dataset.contexts),
            dataset.C,
            sums.bit_length(),
            dataset.d,
            length,
            points.count,
            task is Task.SET,
            started,
            sums_differ(dataset),
            task is Task.CAUSAL,
            drawn,
            tuple(np.bincount(dataset.contexts.label, minlength=dataset.C).tolist()),
        )

    @property
    def hashing(self) -> float:
        """Parameters of folds that hash tokens or, for vectors, pull ids apart that are closer than M ids must be."""
        folds = self.token_bits - self.drawn_bits + HASH_SPREAD
        if self.drawn_bits:
            return 4 * max(float(HASH_SPREAD), folds - log2(self.contexts))
        return min(4.0 * folds, self.table)

    @property
    def table(self) -> float:
        """Parameters of a block that gives every token a value, which may replace the folds."""
        return inf if self.prefixes else 3.0 * self.tokens + 1

    @property
    def id_bits(self) -> float:
        """Length of ids, at most: of the hash or of the tokens themselves, times attention's factor."""
        return max(self.token_bits + 2, 2 * log2(self.contexts + 1) + 10) + self.sum_bits + 6

    @cached_property
    def entropy(self) -> float:
        """Bits of a label, by how often each occurs."""
        total = sum(self.frequencies)
        return -sum(k / total * log2(k / total) for k in self.frequencies if k) if total else log2(max(2, self.classes))

    @cached_property
    def cell_bits(self) -> float:
        """Bits that a label costs a walk whose middle cells belong to frequent labels."""
        plain = log2(max(2, self.classes)) + CELL_LOSS
        if not self.frequencies or len(self.frequencies) > MOST_CELLS:
            return plain
        return min(plain, CELL_SKEW * middle_cells(self.frequencies) + CELL_SPARE)

    @property
    def lines(self) -> int:
        """Lines through all ids, at most: one an id, or two for every run of equal labels."""
        others = self.contexts - max(self.frequencies) if self.frequencies else self.contexts
        return min(self.contexts + 1, 4 * others + 3)

    @property
    def plain_bits(self) -> float:
        """Length of ids of tokens that are not hashed: the sum is above the token."""
        return 2.0 * self.token_bits + self.sum_bits + 6


def _longest(numerators: Any) -> int:
    """Bits of the longest number, at least 1; there may be millions of them.

    >>> _longest(np.array([[3, -9], [1 << 80, 0]], dtype=object)), _longest(np.array([[3, -9]], dtype=object))
    (81, 4)
    """
    if not numerators.size:
        return 1
    with suppress(OverflowError):  # some are longer than a word
        numerators = numerators.astype(np.int64)
    return max(1, int(numerators.max()).bit_length(), int(numerators.min()).bit_length())


ODD = 0x9E3779B97F4A7C15  # a word that spreads


def sums_differ(dataset: Dataset) -> bool:
    """Whether token and sum over the row (for sets the sum) distinguish all contexts of symbols, tokens being numbered.

    In words that wrap around: ids that differ there differ. Prefixes are read by means, whose ids form clusters
    where nothing is hashed, and vectors may form clusters themselves; for them the answer is no.

    >>> from byheart.data.dataset.dataset import load
    >>> sums_differ(load(["ab", "ba"], [0, 1], positions=False)), sums_differ(load(["add", "bcd"], [0, 1]))
    (True, False)
    """
    symbols, task, contexts = dataset.encoder.symbols, dataset.encoder.task, dataset.contexts
    if symbols is None or task is Task.CAUSAL:
        return False
    columns = dataset.inputs.points.numerators
    weights = np.array((1, len(symbols) + 1)[: columns.shape[1]], dtype=np.int64)
    words = np.append(columns.astype(np.int64) @ weights, 0).astype(np.uint64)  # the last one is for absent tokens
    sums = np.zeros(len(dataset.inputs.index), dtype=np.uint64)
    for column in dataset.inputs.index.T:
        sums += words[column]
    keys = sums[contexts.row]
    if task is not Task.SET:
        keys = keys * np.uint64(ODD) + words[contexts.point]
    return len(np.unique(keys)) == len(keys)


def middle_cells(frequencies: Sequence[int]) -> float:
    """Mean bits of a label where a normal walk ends in equal cells, the most frequent label's in the middle.

    >>> round(middle_cells([1] * 16), 2), round(middle_cells([100, 1, 1, 1]), 2)
    (4.06, 1.14)
    """
    classes = len(frequencies)
    shares = np.sort(np.array(frequencies, np.float64))[::-1] / sum(frequencies)
    outwards = np.argsort(np.abs(np.arange(classes) - (classes - 1) / 2), kind="stable")
    placed = np.empty(classes)
    placed[outwards] = shares
    below = np.frompyfunc(lambda x: erfc(-x / sqrt(2)) / 2, 1, 1)
    costs = []
    for width in np.geomspace(0.8, 40, 40) / classes:
        low = (np.arange(classes // 2 + 1) - classes / 2) * width  # the left half; the right one is its mirror
        ends = np.append(below(low).astype(np.float64), 0.5 if classes % 2 == 0 else below(width / 2))
        ends[0] = 0.0
        half = np.diff(ends)[: (classes + 1) // 2]
        chances = np.concatenate([half, half[: classes // 2][::-1]])
        costs.append(float((-np.log2(np.maximum(chances, 1e-30)) * placed).sum()))
    return min(costs)


def compact_budget(
    facts: CompactFacts, *, head: str = "value", abstain_bits: int = 0, objective: str = "parameters", scores: int = 0
) -> int:
    """Parameters that a compact memory has at most; `scores` are those of zero keys and queries."""
    frame = facts.inputs + 1 + (0 if facts.pooled else 2) + scores + facts.started
    read = 2 if head == "value" else 2 * max(2, facts.classes)
    if objective == "depth":
        return frame + (0 if facts.summed else 3 * facts.tokens + 1) + 3 * (facts.contexts + 1) + 1 + read
    lines = (2 if objective == "bits" else 1) * (3 * facts.lines + 1 + read)  # one through all ids

    def memory(id_bits: float) -> float:
        kinds = _kinds(facts, head, abstain_bits, objective)
        return min(_memory(facts, kind, objective, id_bits) for kind in kinds)

    if abstain_bits:
        hashing = 4.0 * (facts.token_bits + HASH_SPREAD) + ABSTAIN_BIT * abstain_bits
        return ceil(frame + hashing + memory(facts.id_bits))
    found = [facts.hashing + memory(facts.id_bits), min(facts.hashing, facts.table) + lines + SPARE]
    if facts.summed:
        found += [memory(facts.plain_bits), float(lines + SPARE)]
    return ceil(frame + min(found))


@dataclass(frozen=True)
class _Kind:
    """A label memory that can be taken: bits of a label, parameters of reading, parameters per bit of an id."""

    bits: float
    reading: float
    length: float


def _kinds(facts: CompactFacts, head: str, abstain_bits: int, objective: str) -> list[_Kind]:
    """Traps for few classes, where logits are read, else a walk; by the labels' frequencies, where those are known."""
    classes = max(2, facts.classes)
    few = head != "value" and not abstain_bits and classes <= TRAP_CLASSES
    bits = log2(classes) + CELL_LOSS + abstain_bits
    if few:
        found = [_Kind(log2(classes), 5.0 * classes, 0.0)]
    elif head == "logits":
        found = [_Kind(bits if objective == "bits" else facts.cell_bits, 2.0 * classes, ID_BIT)]
    else:
        found = [_Kind(bits, 4 * (bits + 5 + log2(facts.contexts + 1) / 2) + 6, ID_BIT)]
    if head != "value" and not abstain_bits and classes <= MOST_PHASES and objective == "parameters":
        phases = PHASE_FOLDS * (classes - 1) if classes > 2 else 0.0
        found.append(_Kind(SKEW * facts.entropy, 5.0 * classes + phases, 0.0))
    return found


def _memory(facts: CompactFacts, kind: _Kind, objective: str, id_bits: float) -> float:
    """Digits of long ids that few labels can use cost a fold each, and no group is saved by them."""
    root = ROOT * sqrt(facts.contexts * kind.bits)
    found = max(root + kind.length * id_bits, root / 2 + LONG * kind.length * id_bits) + REST
    return kind.reading + (SHORT * found + ID_BIT * id_bits if objective == "bits" else found)


THEOREM = Ref("byheart", "compact memory")
# More are never needed: an unknown row is accepted once in 2^64 times.
MOST_ABSTAIN_BITS = 64


@guarantees("compact")
def compact(dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    """Return the budget. The builder keeps it: it samples again, searches longer, or raises an error."""
    head = choice(options, "head", "value", "logits", "sign")
    objective = choice(options, "objective", "parameters", "bits", "depth")
    attention = choice(options, "attention", "uniform", "softmax", "hardmax")
    abstain_bits = options.get("abstain_bits", 0)
    if type(abstain_bits) is not int or not 0 <= abstain_bits <= MOST_ABSTAIN_BITS:
        raise OptionError(f"option abstain_bits={abstain_bits!r} is not a number from 0 to {MOST_ABSTAIN_BITS}")
    scores = 0 if attention == "uniform" or dataset.encoder.task is Task.SET else 2
    facts = CompactFacts.of(dataset)
    budget = compact_budget(facts, head=head, abstain_bits=abstain_bits, objective=objective, scores=scores)
    shallow = objective == "depth"
    return Claim(
        THEOREM,
        {"parameters": budget, "depth": 3 if shallow else budget // 4 + 2, "width": max(1, budget // 3)},
        {
            "parameters": "c1·sqrt(contexts·bits per label) + c2·(length of ids) + c3, theory.guarantees.compact",
            "depth": "hash, attention, one line" if shallow else "a block has at least 4 parameters",
            "width": "a unit has 3 parameters",
        },
        assumptions=("exact integers of any length", "ids distinguish contexts, which is checked on the data"),
    )
