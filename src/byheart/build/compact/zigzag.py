"""Few contexts with two labels: tokens to ids in whose order equal labels stand together, and a zigzag over them.

What the label memory spends on folds that every memory needs (its guard and carries, some 50 parameters) is more than
a unit per run of labels costs up to about 200 contexts, and at any size where labels follow from the inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from byheart.build.compact.tokens import (
    TokenHash,
    TokenLine,
    context_sums,
    mean_count,
    needs_start,
    token_codes,
)
from byheart.build.fold import Effort
from byheart.build.fold.zigzag import Order, Zigzag, few_runs, zigzag
from byheart.data.dataset.dataset import Dataset
from byheart.exact import dyadic
from byheart.paper import Ref, implements

SAMPLE = 5_000  # contexts that are looked at first
SMALL = 110  # contexts up to which a search pays whatever the labels are
HOPE = 1.4  # times the budget: what annealing makes good, starting from least squares
WORK = 5_000_000  # contexts times steps of one annealing
STEPS = 20_000
RESTARTS = {Effort.QUICK: 2, Effort.NORMAL: 4, Effort.HIGH: 24}
OUTPUT = 4  # parameters of E_out with two logits


@dataclass(frozen=True)
class ZigzagMemory:
    """A front that gives the ids, and the zigzag over them."""

    token: TokenHash
    zigzag: Zigzag

    @property
    def parameters(self) -> int:
        """Of hash, zigzag and output; E_in and attention are those of every compact memory."""
        return sum(block.parameters for block in self.token.blocks) + self.zigzag.parameters + OUTPUT


@implements(
    Ref("byheart", "zigzag"),
    statement="two labels in R runs along the ids are memorized by R - 2 units, and ids can be chosen to have few runs",
    test="tests/build/fold/test_zigzag.py",
)
def zigzag_memory(
    dataset: Dataset, token: TokenHash, effort: Effort, budget: int | None, seed: int
) -> ZigzagMemory | None:
    """A memory of fewer than `budget` parameters (hash, zigzag, output; None: however many), or None.

    Vectors may get new weights; symbols keep the numbers that `token` gives them, and only b is chosen.
    """
    labels = np.array(dataset.contexts.label, dtype=np.int64)
    if dataset.C != 2 or labels.min() == labels.max() or needs_start(dataset):
        return None
    own, total = features(dataset, token)
    if budget is not None and len(labels) > 2 * SAMPLE:  # a part has no more runs than the whole: no hope, no search
        part = slice(None, None, len(labels) // SAMPLE)
        few = few_runs(own[part], total[part], labels[part], steps=0, restarts=1, seed=seed)
        if few is None or 3 * few.runs > HOPE * budget:
            return None
    order = few_runs(own, total, labels, steps=0, restarts=1, seed=seed)
    small = len(labels) <= SMALL
    if not small and budget is not None and (order is None or 3 * order.runs > HOPE * budget):
        return None
    steps = min(STEPS, WORK // len(labels))
    order = few_runs(own, total, labels, steps=steps, restarts=RESTARTS[effort], seed=seed) or order
    if order is None:
        return None
    found = ZigzagMemory(_front(dataset, token, order), zigzag(order.ids, labels.tolist(), order.bits))
    return found if budget is None or found.parameters < budget else None


def features(dataset: Dataset, token: TokenHash) -> tuple[Any, Any]:
    """(own, total), (M, d): the id of a context is own·A + b·total·A, for weights A of the coordinates.

    Symbols have one coordinate, their hash.
    """
    vectors = dataset.encoder.symbols is None
    columns = dataset.inputs.points.numerators.T.tolist() if vectors else [token_codes(token)]
    kind = np.int64 if max(abs(v) for column in columns for v in column) * mean_count(dataset) < 2**50 else object
    own, total = [], []
    for column in columns:
        phi = np.array([*column, 0], dtype=kind)
        alone = context_sums(dataset, phi, 0, None)
        own.append(alone)
        total.append(context_sums(dataset, phi, 1, None) - alone)
    return np.stack(own, axis=1), np.stack(total, axis=1)


def _front(dataset: Dataset, token: TokenHash, order: Order) -> TokenHash:
    """The front that computes the ids of this order, divided by 2^bits."""
    times = dyadic(mean_count(dataset) * order.factor, -order.bits)
    if dataset.encoder.symbols is not None:
        return replace(token, factor=0, mean_factor=times)
    weights = tuple(w * dataset.inputs.points.denominator for w in order.weights)
    return replace(token, line=TokenLine(weights, 0, ()), scale=1, shift=0, blocks=(), factor=0, mean_factor=times)
