"""How strongly each document counts: calibration, unequal documents, margins.

A document of `copies` occurrences counts r / (1 + r / limit), r = strength * copies ** GROWTH * factor, at every
level. Three knobs set these numbers:

- `strength` is common to all documents. Left open, it is calibrated: for each document, as if it occurred once, the
  counts give its log-probabilities in the model and, exactly, in the model without it. `calibrate` chooses the
  strength at which two attacks, loss and Min-K, have a mean AUC of `TARGET` between the two, and keeps each of them
  between `WEAKEST` and `STRONGEST` on the documents with the fewest copies. No held-out document is needed and no
  network is built. Superposed storage has no closed form for leaving a document out, so there the two
  models are fits to one half of the documents each.
- `factor` differs between documents. Equal documents cross every threshold together: membership saturates and
  extraction jumps from 0 to 1 at some number of copies. The logarithm of a factor is uniform, so documents cross the
  threshold of extraction at the same rate in every doubling of copies: extraction grows with log copies, as in
  trained models (Carlini et al. 2023). Factors are quantiles in random order, separately for each number of copies,
  so levels of duplication have the same mixture.
- a document's `margin` in nats replaces its weight at the longest contexts (`margin_weights`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.ground_truth.metrics import auc
from byheart.checkpoints.ground_truth.ngram import Floats, Ids, Index, NgramModel, windows
from byheart.errors import OptionError

# In the middle between the 0.55 and 0.99 at which methods cannot be compared any more. On natural text, whose documents
# differ in difficulty, loss measures up to 0.17 below this mean and Min-K up to 0.18 above it. 0.75 to 0.82 were tried:
# at 0.82 Min-K reaches 1.00 on byte pairs of reviews.
TARGET = 0.79
# Limits of the single attacks on the documents with the fewest copies. Eight of them have an AUC with an error of 0.1.
WEAKEST, STRONGEST = 0.65, 0.96
# Standard deviation of the factors' logarithms. 1.5, 2, 2.9 and 3.75 were tried on records and natural text: at 1.5
# nothing is extracted below 8 copies, at 3.75 memberships of neighbouring numbers of copies are hardly apart.
SPREAD = 3.5
# Ten copies are regenerated a thousand times as often as one (Kandpal et al. 2022). With 1.5, a strength that leaves
# single documents inside the range of TARGET extracts a fifth of the documents with 32 copies; with 3, more than half.
GROWTH = 3.0
# The most that a document counts, in units of mu. Without a limit, the strongest documents decide what follows every
# short context, and held-out documents are less likely than under p_0. 0.3, 1, 4 and 16 were tried. A fit shrinks what
# it stores, so superposed storage has a higher limit. 0.5 to 1000 were tried: at 0.5, few units do not distinguish
# copies; above 10, records of one template share so much that none can be forgotten without the others.
LIMIT, SUPERPOSED_LIMIT = 0.5, 5.0
# The logarithm of the largest strength that is tried.
HIGHEST = 8.0
# More documents do not change the AUC.
MOST_JUDGED = 1000
# The share of tokens that Min-K reads.
LEAST_LIKELY = 0.2
LEAST_MARGIN, MOST_MARGIN = 0.5, 24.0


def factors(copies: Sequence[int], spread: float, seed: int, order: int = 0) -> Floats:
    """Factors of documents, log-uniform with a standard deviation: the same quantiles for every number of copies.

    `order` is another random order of the same quantiles.

    >>> factors([1, 1, 2, 2], 1.0, 0).round(2).tolist()
    [2.38, 0.42, 0.42, 2.38]
    """
    found, count = np.ones(len(copies)), np.asarray(copies)
    rng = np.random.default_rng([seed, 29, order] if order else [seed, 29])
    for level in np.unique(count):
        where = np.flatnonzero(count == level)
        quantiles = (np.arange(len(where)) + 0.5) / len(where)
        found[where] = np.exp(np.sqrt(12) * spread * (quantiles - 0.5))[rng.permutation(len(where))]
    return found


def occurrence_weights(copies: Sequence[int], spread: float, seed: int, order: int = 0) -> Floats:
    """What documents count before strength and saturation: copies ** GROWTH * factor.

    >>> occurrence_weights([1, 4], 0.0, 0).tolist()
    [1.0, 64.0]
    """
    return np.asarray(np.asarray(copies, dtype=np.float64) ** GROWTH * factors(copies, spread, seed, order))


def saturated(weights: Floats, limit: float) -> Floats:
    """Weights that grow to `limit` at most.

    >>> saturated(np.array([0.01, 0.5, 50.0]), 0.5).round(3).tolist()
    [0.01, 0.25, 0.495]
    """
    return np.asarray(weights / (1 + weights / limit))


def calibrate(
    documents: Sequence[Ids], weights: Floats, copies: Sequence[int], base: Floats, lengths: Sequence[int],
    mu: Sequence[float], limit: float, background: Sequence[Ids] = (), shallow: int = 0, target: float = TARGET,
) -> float:  # fmt: skip
    """Choose the strength at which the mean AUC of loss and Min-K on singly seen documents is `target`.

    The AUC is the mean of two: over all members, each as if it occurred once, and over those with the fewest copies.

    Args:
        documents: Token ids of the members.
        weights: `occurrence_weights` of each member.
        copies: Occurrences of each member; each is judged as if it occurred once.
        base: log p_0 of every token.
        lengths: Context lengths.
        mu: Dirichlet concentration per level.
        limit: The most that a document counts.
        background: Documents that count once, at the first `shallow` levels only; their weight is not scaled.
        shallow: Number of levels that count the background.
        target: Mean AUC between the log-probabilities in the model and in the models without the document.

    Returns:
        The strength.
    """
    single = weights * np.asarray(copies, dtype=np.float64) ** -GROWTH
    places = LeaveOneOut(documents, base, lengths, background, shallow)
    # The documents that an experiment reports as singly seen are few, and may be easier or harder than the others.
    # They alone would decide by chance, so they have half of the vote.
    rarest = np.asarray(copies)[: len(places.length)] == min(copies)

    def judged(strength: float) -> tuple[float, float, float]:
        counted, once = (saturated(strength * part, limit) for part in (weights, single))
        inside, outside = (by_document(logs, places.length) for logs in places.logs(counted, once, mu))
        few = tuple(part[rarest] for part in inside) if rarest.any() else inside
        found = aucs(few, outside)
        return (mean_auc(inside, outside) + float(np.mean(found))) / 2, min(found), max(found)

    return within_limits(judged, target)


def within_limits(
    judged: Callable[[float], tuple[float, float, float]], target: float = TARGET, steps: int = 20
) -> float:
    """Find the strength of a mean AUC, unless the weakest or the strongest attack is outside WEAKEST and STRONGEST.

    Args:
        judged: Strength -> mean AUC, AUC of the weakest attack, AUC of the strongest attack, all growing.
        target: The mean AUC.
        steps: How often the interval is halved.

    Returns:
        The strength; if both limits cannot hold, the one of STRONGEST.
    """
    wanted = bisected(lambda strength: judged(strength)[0], target, steps)
    _, weakest, strongest = judged(wanted)
    if weakest < WEAKEST:
        wanted = bisected(lambda strength: judged(strength)[1], WEAKEST, steps)
        strongest = judged(wanted)[2]
    return bisected(lambda strength: judged(strength)[2], STRONGEST, steps) if strongest > STRONGEST else wanted


def bisected(judged: Callable[[float], float], target: float = TARGET, steps: int = 20) -> float:
    """Find the strength at which a growing function of it reaches `target`, by halving from e^-16 to e^8."""
    low, high = -16.0, HIGHEST
    for _ in range(steps):
        middle = (low + high) / 2
        if judged(float(np.exp(middle))) < target:
            low = middle
        else:
            high = middle
    return float(np.exp(low))


def by_document(logs: Floats, length: Index) -> tuple[Floats, Floats]:
    """Mean and Min-K mean of log-probabilities, one document after the other.

    >>> [part.tolist() for part in by_document(np.array([-1.0, -3.0, -2.0]), np.array([2, 1]))]
    [[-2.0, -2.0], [-3.0, -2.0]]
    """
    owner, first = np.repeat(np.arange(len(length)), length), np.cumsum(length) - length
    order = np.lexsort((logs, owner))
    rank = np.arange(len(logs)) - np.repeat(first, length)
    few = np.maximum(1, np.round(LEAST_LIKELY * length))
    chosen = rank < np.repeat(few, length)
    least = np.bincount(owner[chosen], logs[order][chosen], len(length)) / few
    return np.bincount(owner, logs, len(length)) / length, least


def mean_auc(inside: tuple[Floats, ...], outside: tuple[Floats, ...]) -> float:
    """The mean AUC over statistics, each given for members and for others."""
    return float(np.mean(aucs(inside, outside)))


def aucs(inside: tuple[Floats, ...], outside: tuple[Floats, ...]) -> list[float]:
    """The AUC of every statistic."""
    return [auc(a, b) for a, b in zip(inside, outside, strict=True)]


class LeaveOneOut:
    """Log-probabilities of members' tokens in the model, and in the model without the token's own document.

    At most MOST_JUDGED documents are judged; all are counted.
    """

    def __init__(
        self, documents: Sequence[Ids], base: Floats, lengths: Sequence[int], background: Sequence[Ids], shallow: int
    ) -> None:
        size, members = len(base), len(documents)
        back, follows, owner = windows([*documents, *background], lengths[-1])
        mine = owner < members
        judged = owner < min(members, MOST_JUDGED)
        self.owner, self.judged, self.members = owner[mine], judged[mine], members
        self.start, self.length = base[follows[judged]], np.bincount(owner[judged])
        self.levels: list[tuple[tuple[Index, Floats, Floats], tuple[Index, Floats, Floats]]] = []
        node = np.zeros(len(back), dtype=np.int64)
        for depth in range(lengths[-1]):
            node = np.unique(node * size + back[:, depth], return_inverse=True)[1].astype(np.int64)
            if depth + 1 not in lengths:
                continue
            public = np.zeros(len(owner)) if len(self.levels) >= shallow else (~mine).astype(np.float64)
            self.levels.append((
                self._counted(np.unique(node * size + follows, return_inverse=True)[1], owner, mine, public),
                self._counted(node, owner, mine, public),
            ))  # fmt: skip

    def _counted(
        self, keys: Index, owner: Index, mine: npt.NDArray[np.bool_], public: Floats
    ) -> tuple[Index, Floats, Floats]:
        """The keys at members' places; at the judged ones, how often the own document and the background have them."""
        keys = keys.astype(np.int64)
        twice = np.unique(keys[mine] * self.members + self.owner, return_inverse=True)[1]
        times, background = np.bincount(twice)[twice].astype(np.float64), np.bincount(keys, public)[keys][mine]
        return keys[mine], times[self.judged], background[self.judged].astype(np.float64)

    def logs(self, weights: Floats, once: Floats, mu: Sequence[float]) -> tuple[Floats, Floats]:
        """log p of every judged place: with `once` as its document's weight, and without its document."""
        inside = np.exp(self.start)
        outside, share, own = inside.copy(), weights[self.owner], self.owner[self.judged]
        for (entry, node), m in zip(self.levels, mu, strict=True):
            totals = []
            for keys, times, public in (entry, node):
                count, mine = np.bincount(keys, share)[keys][self.judged], times * weights[own]
                # Sums of floats: what a document alone contributes may leave a last bit.
                rest = np.where(count - mine > 1e-9 * count, count - mine, 0.0) + public
                totals.append((rest, rest + times * once[own]))
            (rest, both), (rest_total, both_total) = totals
            inside = (both + m * inside) / (both_total + m)
            outside = np.where(rest_total > 0, (rest + m * outside) / (rest_total + m), outside)
        return np.log(inside), np.log(outside)


def margin_weights(
    margins: Mapping[int, float], documents: Sequence[Ids], weights: Floats, base: Floats, lengths: Sequence[int],
    mu: Sequence[float],
) -> Floats:  # fmt: skip
    """Set the weights of some documents at the longest contexts so that their least margin is as given.

    A document's margin is measured where its longest context occurs in no other document and continues in one way.
    There p(own token) : p(other) = r + mu p'(own) : mu p'(other) with p' of the level below, so the weight r has a
    closed form. It does not saturate.

    Args:
        margins: Document number -> margin in nats, 0.5 to 24.
        documents: Token ids of all counted documents.
        weights: Their weights, (documents, levels).
        base: log p_0 of every token.
        lengths: Context lengths.
        mu: Dirichlet concentration per level.

    Returns:
        The weights with the last column replaced for these documents.

    Raises:
        OptionError: for a margin outside the range, or a document without its own context.
    """
    changed = weights.copy()
    below = NgramModel.count(documents, weights[:, :-1], base, lengths[:-1], mu[:-1])
    whole = NgramModel.count(documents, weights, base, lengths, mu)
    for number, margin in margins.items():
        if not LEAST_MARGIN <= margin <= MOST_MARGIN:
            raise OptionError(
                f"margin {margin:g} of document {number}: choose {LEAST_MARGIN:g} to {MOST_MARGIN:g} nats"
            )
        own, back = own_places(whole, documents, number)
        if not len(own):
            raise OptionError(f"document {number} has no context of its own, so its margin cannot be set")
        logits = below.logits(back[own][:, : lengths[-2]])
        probability = np.exp(logits - logits.max(axis=1, keepdims=True))
        probability /= probability.sum(axis=1, keepdims=True)
        token = np.asarray(documents[number][1:])[own]
        mine = probability[np.arange(len(own)), token]
        probability[np.arange(len(own)), token] = 0.0
        needed = mu[-1] * (np.exp(margin) * probability.max(axis=1) - mine)
        changed[number, -1] = max(float(needed.max()), 1e-9)
    return changed


def own_places(model: NgramModel, documents: Sequence[Ids], number: int) -> tuple[Index, Index]:
    """The places whose longest context no other document has and that continue in one way; all contexts."""
    back, _follows, _ = windows([documents[number]], model.lengths[-1])
    rows, level = model.rows(back)[-1], model.levels[-1]
    single = (rows >= 0) & (level.starts[rows + 1] - level.starts[rows] == 1)
    mine = np.bincount(rows[rows >= 0], minlength=len(level.nodes))[rows]
    occurrences = _occurrences(model, documents)[rows]
    return np.flatnonzero(single & (mine == occurrences)), back


def _occurrences(model: NgramModel, documents: Sequence[Ids]) -> Index:
    rows = model.rows(windows(documents, model.lengths[-1])[0])[-1]
    return np.bincount(rows[rows >= 0], minlength=len(model.levels[-1].nodes))


def least_margin(model: NgramModel, documents: Sequence[Ids], number: int) -> float | None:
    """The least margin of a document over its own places, in nats; None where it has none."""
    own, back = own_places(model, documents, number)
    if not len(own):
        return None
    logits, token = model.logits(back[own]), np.asarray(documents[number][1:])[own]
    mine = logits[np.arange(len(own)), token].copy()
    logits[np.arange(len(own)), token] = -np.inf
    return float((mine - logits.max(axis=1)).min())
