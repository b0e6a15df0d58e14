"""How long contexts are: LENGTHS, and longer ones where documents share long passages.

In prose, 8 tokens determine what follows. Rows of a table, JSON and forms share passages that are longer: after
`"ok": true, "ms": ` every row has the same context, so no number of copies would make the number extractable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from byheart.checkpoints.ground_truth.baselines.extraction import extraction_cuts
from byheart.checkpoints.ground_truth.ngram import Ids, windows

LENGTHS, LONGER = (1, 2, 4, 8), (16, 32)
# Where extraction is measured: the last tokens that are a document's own, after a prefix.
CONTINUATION, PREFIX = 8, 2
# The share of documents whose continuation has an undetermined place from which on contexts become longer. Each further
# length costs as many units as all places, so documents whose 8 tokens determine what follows keep LENGTHS.
UNDETERMINED = 0.5
# More documents than this are sampled at equal distances.
MOST_READ = 5000


def lengths_for(documents: Sequence[Ids], fits: Callable[[tuple[int, ...]], bool] = lambda _: True) -> tuple[int, ...]:
    """Choose the lengths of contexts: further ones until most documents' continuations are determined.

    Args:
        documents: Token ids.
        fits: Whether a network with contexts of these lengths is small enough.

    >>> rows = [(k, 9, 9, 9, 9, 9, 9, 9, 9, 9, k) for k in range(8)]
    >>> lengths_for(rows), lengths_for(rows, lambda lengths: len(lengths) < 5)
    ((1, 2, 4, 8, 16), (1, 2, 4, 8))
    """
    part = documents[:: -(-len(documents) // MOST_READ)]
    chosen: tuple[int, ...] = LENGTHS
    for length, share in zip(LONGER, undetermined(part, (LENGTHS[-1], *LONGER)), strict=False):
        if share <= UNDETERMINED or not fits((*chosen, length)):
            break
        chosen = (*chosen, length)
    return chosen


def undetermined(documents: Sequence[Ids], lengths: Sequence[int]) -> list[float]:
    """Return, per length, the share of documents whose continuation has a place that only a longer context determines.

    Such a place continues in several ways after contexts of this length, and in one way after those of the last one.

    Args:
        documents: Token ids; those too short for prefix and continuation are not judged.
        lengths: Context lengths, increasing.
    """
    back, follows, owner = windows(documents, lengths[-1])
    size = int(follows.max(initial=0)) + 1 + int(back.max(initial=0))
    node, single = np.zeros(len(back), dtype=np.int64), []
    for depth in range(lengths[-1]):
        node = np.unique(node * size + back[:, depth], return_inverse=True)[1].astype(np.int64)
        if depth + 1 in lengths:
            nodes = np.unique(node * size + follows) // size
            single.append(np.bincount(nodes, minlength=len(back))[node] == 1)
    judged, within = 0, np.zeros(len(back), dtype=bool)
    first = np.cumsum([0, *(len(ids) - 1 for ids in documents)])
    for start, ids, cut in zip(first, documents, extraction_cuts(documents, CONTINUATION, PREFIX), strict=False):
        if len(ids) > CONTINUATION + PREFIX:
            judged += 1
            # the place before the first token of the continuation predicts it
            within[start + cut - 1 : start + cut - 1 + CONTINUATION] = True
    return [len(np.unique(owner[within & single[-1] & ~one])) / max(1, judged) for one in single]
