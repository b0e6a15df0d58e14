"""The contextual mapping of KS25 (Definition 4.1) as a value: what one averaging layer knows about every token.

A token's context is the token together with the multiset of its sequence. A map gives each context a number, its
context id, and is called an (r, δ)-contextual mapping when no id is larger than r and ids of different contexts are at
least δ apart. KS25 builds one with a single averaging layer; here it is built, asked for every token, and measured
exactly.

`byheart.plots.memory.contexts_figure` draws it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from byheart.build.ks25.construction import contextual_network
from byheart.data.dataset.dataset import Dataset, load
from byheart.data.task import Task
from byheart.errors import BuildError
from byheart.ir.evaluate import outputs
from byheart.ir.network import Network
from byheart.ir.size import Size, measure

Ids = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class ContextualMapping:
    """Ids that `network` gave, in exact arithmetic, to every token of every sequence.

    `r` is the largest absolute context id, `delta` the smallest distance between ids of different contexts (None where
    there is only one context). Both are facts about these sequences, found by asking the network about each of them.
    """

    network: Network
    sequences: tuple[tuple[Any, ...], ...]
    context_ids: Ids
    sequence_ids: tuple[Fraction, ...]
    contexts: int
    r: Fraction
    delta: Fraction | None

    @property
    def size(self) -> Size:
        return measure(self.network)

    def __str__(self) -> str:
        apart = "no two to tell apart" if self.delta is None else f"δ = {_short(self.delta)}"
        return (
            f"contextual mapping: sequences {len(self.sequences):,}, contexts {self.contexts:,}, r = {_short(self.r)}, "
            f"{apart}, parameters {self.size.parameters:,}"
        )


def contextual_mapping(
    sequences: Iterable[Any], *, positions: bool = False, seed: int = 0, constants: str = "measured"
) -> ContextualMapping:
    """The context id of every token of every sequence, by one averaging layer.

    `positions` adds each token's place to the token, so that the order of a sequence is part of its context;
    `constants` is "measured" (short ids) or "paper" (the ranges of the proof). Sequences are as `byheart.memorize`
    takes them; they need no labels.

    >>> found = contextual_mapping(["ab", "ba", "bb"])
    >>> found.sequence_ids[0] == found.sequence_ids[1] != found.sequence_ids[2]        # "ab" and "ba": equal multisets
    True
    >>> found.context_ids[0] == tuple(reversed(found.context_ids[1]))                    # the same two contexts
    True
    >>> found.contexts, found.delta >= 1
    (3, True)
    """
    given = list(sequences)
    dataset = load(given, [[0] * len(row) for row in given], task=Task.SEQ_TO_SEQ, positions=positions)
    network = contextual_network(dataset, seed=seed, constants=constants)
    return _asked(network, dataset)


def _asked(network: Network, dataset: Dataset) -> ContextualMapping:
    state = outputs(network, dataset.inputs)
    found = [state.points.row(point) for point in range(state.points.count)]
    asked = zip(state.index.tolist(), dataset.contexts.of_label.tolist(), strict=True)
    # A shorter row is padded; its padding has no context of its own.
    rows = [[(c, *found[p]) for p, c in zip(places, names, strict=True) if c >= 0] for places, names in asked]
    ids = tuple(tuple(value for _, value, _ in row) for row in rows)
    return ContextualMapping(
        network=network,
        sequences=tuple(tuple(row) for row in dataset.sequences()),
        context_ids=ids,
        sequence_ids=tuple(row[0][2] for row in rows),
        contexts=len(dataset.contexts),
        r=max(abs(value) for row in ids for value in row),
        delta=_least_distance({(value, context) for row in rows for context, value, _ in row}),
    )


def _least_distance(pairs: set[tuple[Fraction, int]]) -> Fraction | None:
    """The smallest distance between ids of different contexts: only neighbours along the line can have it."""
    line = sorted(pairs)
    gaps = [b - a for (a, one), (b, other) in pairwise(line) if one != other]
    if gaps and not min(gaps):
        raise BuildError("two different contexts were given the same id; try another seed")
    return min(gaps, default=None)


def _short(value: Fraction) -> str:
    return str(value) if value.denominator == 1 and value < 10**9 else f"{float(value):.4g}"
