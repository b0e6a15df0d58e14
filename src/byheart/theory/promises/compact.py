"""What `compact` promises: what a memory may cost at most, from facts that are known before anything is built.

    c1·sqrt(M·b) + c2·(length of ids) + c3:   M contexts, b bits per label

with a token hash before it and a readout after it. The builder keeps it (it draws again, works harder, or gives up
with a BuildError that says so), and a checker computes it again from the same facts, without the builder.

    >>> facts = CompactFacts(contexts=10_000, classes=2, sum_bits=3, inputs=1, token_bits=16, tokens=50_000)
    >>> compact_budget(facts, head="sign")
    854
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf, lcm, log2, sqrt
from typing import Any

import numpy as np

from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.ir.size import Claim
from byheart.paper import Ref
from byheart.theory.promises import choice, promises

ROOT = 6.6  # c1: per square root of a label bit; the limit of the architecture is 4.90
ID_BIT = 2.5  # c2: per bit of an id, for the walk; traps do not depend on the length of ids
LONG = 1.72  # times c2, where ids are so long that no digit is left to choose
TRAP_CLASSES = 16  # up to which traps can be taken, where logits are read
REST = 60.0  # c3
HASH_SPREAD = 14  # folds of the token hash beyond the length of tokens
CELL_LOSS = 0.26  # bits by which equal cells under a normal walk cost more than log2 C
ABSTAIN_BIT = 5.0  # per bit of abstaining: few rows, too, need a walk that is long enough to end anywhere
SPARE = 24  # beyond a line through all ids: six folds, for a token hash or a memory that has them
SHORT = 1.8  # times: fewest bits instead of fewest parameters


@dataclass(frozen=True)
class CompactFacts:
    """What the budget depends on; `of` reads it off a data set."""

    contexts: int
    classes: int
    sum_bits: int  # length of the number that makes sums of means
    inputs: int  # numbers per token
    token_bits: int  # length of the numbers that tokens are
    tokens: int
    pooled: bool = False  # a set: no attention
    started: bool = False  # a start token: prefixes without positions
    summed: bool = False  # symbols: a token and the sum of its row tell all contexts apart, so nothing needs hashing
    prefixes: bool = False  # read by means: hashed longer than need be, so that ids do not stand in clusters
    drawn_bits: int = 0  # vectors: how much of the length a random projection may take

    @staticmethod
    def of(dataset: Dataset) -> CompactFacts:
        """From the data alone: no network, no option, no random number."""
        points = dataset.inputs.points
        task = dataset.encoder.task
        started = task is Task.CAUSAL and not dataset.encoder.positions and dataset.n > 1
        sums = lcm(*range(1, dataset.n + 1 + started)) if task is Task.CAUSAL else dataset.n
        numbers = [abs(int(v)) for column in points.numerators.T.tolist() for v in column]
        length = max(1, *(v.bit_length() for v in numbers)) if numbers else 1
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
        """Parameters of a block that gives every token a value, which may take the place of the folds."""
        return inf if self.prefixes else 3.0 * self.tokens + 1

    @property
    def id_bits(self) -> float:
        """Length of ids, at most: of the hash or of the tokens themselves, times attention's factor."""
        return max(self.token_bits + 2, 2 * log2(self.contexts + 1) + 10) + self.sum_bits + 6

    @property
    def plain_bits(self) -> float:
        """Length of ids of tokens that are not hashed: the sum stands above the token."""
        return 2.0 * self.token_bits + self.sum_bits + 6


ODD = 0x9E3779B97F4A7C15  # a word that spreads


def sums_differ(dataset: Dataset) -> bool:
    """Whether token and sum over the row (for sets the sum) tell all contexts of symbols apart, tokens being numbered.

    In words that wrap around: what differs there differs. Prefixes are read by means, whose ids stand in clusters
    where nothing is hashed, and vectors may stand in clusters themselves; for them the answer is no.

    >>> from byheart.data.dataset.dataset import load
    >>> sums_differ(load(["ab", "ba"], [0, 1], positions=False)), sums_differ(load(["add", "bcd"], [0, 1]))
    (True, False)
    """
    symbols, task, contexts = dataset.encoder.symbols, dataset.encoder.task, dataset.contexts
    if symbols is None or task is Task.CAUSAL:
        return False
    columns = dataset.inputs.points.numerators
    numbers = columns @ np.array((1, len(symbols) + 1)[: columns.shape[1]], dtype=object)
    words = np.array([*numbers.tolist(), 0], dtype=np.uint64)  # the last entry stands for absent tokens
    sums = np.zeros(len(dataset.inputs.index), dtype=np.uint64)
    for column in dataset.inputs.index.T:
        sums += words[column]
    keys = sums[contexts.row]
    if task is not Task.SET:
        keys = keys * np.uint64(ODD) + words[contexts.point]
    return len(np.unique(keys)) == len(keys)


def compact_budget(
    facts: CompactFacts, *, head: str = "value", abstain_bits: int = 0, objective: str = "parameters", scores: int = 0
) -> int:
    """Parameters that a compact memory has at most; `scores` are those of zero keys and queries."""
    frame = facts.inputs + 1 + (0 if facts.pooled else 2) + scores + facts.started
    lines = 3 * (facts.contexts + 1) + 1 + (2 if head == "value" else 2 * max(2, facts.classes))  # one through all ids
    if objective == "depth":
        return frame + (0 if facts.summed else 3 * facts.tokens + 1) + lines
    classes = max(2, facts.classes)
    length = 0.0 if head != "value" and not abstain_bits and classes <= TRAP_CLASSES else ID_BIT
    if length:
        bits = log2(classes) + CELL_LOSS + abstain_bits
        reading = 2.0 * classes if head == "logits" else 4 * (bits + 5 + log2(facts.contexts + 1) / 2) + 6
    else:
        bits, reading = log2(classes), 5.0 * classes
    root, lines = ROOT * sqrt(facts.contexts * bits), (2 if objective == "bits" else 1) * lines

    def memory(id_bits: float) -> float:
        """Digits of long ids that few labels can use cost a fold each, and no group is saved by them."""
        found = max(root + length * id_bits, root / 2 + LONG * length * id_bits) + REST
        return reading + (SHORT * found + ID_BIT * id_bits if objective == "bits" else found)

    if abstain_bits:
        hashing = 4.0 * (facts.token_bits + HASH_SPREAD) + ABSTAIN_BIT * abstain_bits
        return ceil(frame + hashing + memory(facts.id_bits))
    found = [facts.hashing + memory(facts.id_bits), min(facts.hashing, facts.table) + lines + SPARE]
    if facts.summed:
        found += [memory(facts.plain_bits), float(lines + SPARE)]
    return ceil(frame + min(found))


THEOREM = Ref("byheart", "compact memory")
MOST_ABSTAIN_BITS = 64


@promises("compact")
def compact(dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    """The budget, which the builder keeps: it draws again, works harder, or gives up and says so."""
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
            "parameters": "c1·sqrt(contexts·bits per label) + c2·(length of ids) + c3, byheart.theory.promises.compact",
            "depth": "hash, attention, one line" if shallow else "a block has at least 4 parameters",
            "width": "a unit has 3 parameters",
        },
        assumptions=("exact integers of any length", "ids tell contexts apart, which is checked on the data"),
    )
