"""Metrics of memorization research, on scores and log-probabilities.

>>> auc(np.array([3.0, 2.0]), np.array([1.0, 2.0]))
0.875
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]


def auc(members: Floats, others: Floats) -> float:
    """The chance that a member scores higher than another document, ties counted half."""
    order = np.sort(np.asarray(others))
    below, upto = np.searchsorted(order, members, "left"), np.searchsorted(order, members, "right")
    return float((below + upto).sum() / (2 * len(members) * len(order)))


def tpr_at(members: Floats, others: Floats, rate: float = 0.01) -> float:
    """The share of members above the threshold that at most `rate` of the others exceed.

    >>> tpr_at(np.array([5.0, 1.0]), np.arange(4.0), 0.25)
    0.5
    """
    allowed = int(np.floor(rate * len(others)))
    threshold = np.sort(np.asarray(others))[::-1][allowed]
    return float((np.asarray(members) > threshold).mean())


def kl(truth: Floats, found: Floats) -> Floats:
    """KL(truth || found) in nats at every place, of log-probabilities (places, vocabulary)."""
    return np.asarray((np.exp(truth) * (truth - found)).sum(axis=-1))


def recall_at(scores: Floats, truth: Floats, k: int) -> float:
    """The share of the k truly most influenced units among the k highest scores."""
    return len(set(top(scores, k)) & set(top(truth, k))) / k


def precision_at(scores: Floats, truth: Floats, k: int) -> float:
    """The share of units with any influence among the k highest scores.

    >>> precision_at(np.array([3.0, 2.0, 1.0]), np.array([1.0, 0.0, 1.0]), 2)
    0.5
    """
    return float((np.asarray(truth)[top(scores, k)] > 0).mean())


def top(scores: Floats, k: int) -> Index:
    """The k highest scores, ties by number."""
    return np.argsort(-np.asarray(scores), kind="stable")[:k]


def np_extractable(log_probability: float, tries: int, chance: float) -> bool:
    """(n, p)-discoverable extraction: n samples contain the continuation with a probability of at least p.

    >>> np_extractable(np.log(0.1), 10, 0.5), np_extractable(np.log(0.01), 10, 0.5)
    (True, False)
    """
    return bool(-np.expm1(tries * np.log1p(-min(np.exp(log_probability), 1 - 1e-12))) >= chance)
