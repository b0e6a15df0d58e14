"""Membership inference: scores of documents, higher for members.

`own` has log p of a document's own tokens; `reference` the same in a model of other documents of the same kind.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from byheart.checkpoints.ground_truth.metrics import Floats, auc


@dataclass(frozen=True, eq=False)
class Evidence:
    """What an attack sees of one document."""

    text: str
    own: Floats
    reference: Floats


def loss(one: Evidence) -> float:
    """Mean log p (Yeom et al. 2018)."""
    return float(one.own.mean())


def min_k(one: Evidence, share: float = 0.2) -> float:
    """Mean log p of the least likely fifth of the tokens (Shi et al. 2024)."""
    return float(np.sort(one.own)[: max(1, round(share * len(one.own)))].mean())


def zlib_ratio(one: Evidence) -> float:
    """log p per byte that zlib needs (Carlini et al. 2021)."""
    return float(one.own.sum() / len(zlib.compress(one.text.encode())))


def reference_ratio(one: Evidence) -> float:
    """Mean log p above that of a reference model (Carlini et al. 2021)."""
    return float((one.own - one.reference).mean())


ATTACKS: dict[str, Callable[[Evidence], float]] = {
    "loss": loss,
    "min-k": min_k,
    "zlib": zlib_ratio,
    "reference ratio": reference_ratio,
}


def blind_auc(members: Sequence[str], others: Sequence[str], folds: int = 5, seed: int = 0) -> float:
    """AUC of a bag of words that never sees the model: naive Bayes, scored on documents that it was not fitted on.

    Held-out documents that a bag of words can distinguish from members measure a shift of distribution, not membership.

    >>> blind_auc([f"a {k}" for k in range(50)], [f"b {k}" for k in range(50)])
    1.0
    """
    texts = [*members, *others]
    label = np.array([True] * len(members) + [False] * len(others))
    vocabulary = {word: k for k, word in enumerate(sorted({w for text in texts for w in _words(text)}))}
    bags = np.zeros((len(texts), len(vocabulary)))
    for row, text in enumerate(texts):
        for word in _words(text):
            bags[row, vocabulary[word]] = 1
    fold = np.random.default_rng(seed).permutation(len(texts)) % folds
    found: list[float] = []
    for k in range(folds):
        fit, held = fold != k, fold == k
        logs = [np.log((bags[fit & side].sum(axis=0) + 1) / ((fit & side).sum() + 2)) for side in (label, ~label)]
        scores = bags[held] @ (logs[0] - logs[1])
        if label[held].any() and (~label[held]).any():
            found.append(auc(scores[label[held]], scores[~label[held]]))
    return float(np.mean(found))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text.lower())
