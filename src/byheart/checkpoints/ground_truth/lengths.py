"""How long contexts are: LENGTHS, and longer ones where documents share long passages.

In prose, 8 tokens determine what follows. Rows of a table, JSON and forms share passages that are longer: after
`"ok": true, "ms": ` every row has the same context, so no number of copies would make the number extractable.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byheart.checkpoints.ground_truth.ngram import Ids, windows

LENGTHS, LONGER = (1, 2, 4, 8), (16, 32)
# The share of documents with an undetermined place from which on contexts become longer. Documents whose 8 tokens
# determine what follows keep LENGTHS: each further length costs as many units as all places.
UNDETERMINED = 0.5
# More documents than this are sampled at equal distances.
MOST_READ = 5000


def lengths_for(documents: Sequence[Ids]) -> tuple[int, ...]:
    """Choose the lengths of contexts: further ones until few documents have a place that needs a longer context.

    >>> rows = [(k, 9, 9, 9, 9, 9, 9, 9, 9, 9, k) for k in range(8)]
    >>> lengths_for(rows), lengths_for([row[:4] for row in rows])
    ((1, 2, 4, 8, 16), (1, 2, 4, 8))
    """
    part = documents[:: -(-len(documents) // MOST_READ)]
    chosen = list(LENGTHS)
    for length, open_share in zip((*LONGER, None), undetermined(part, (LENGTHS[-1], *LONGER)), strict=True):
        if length is None or open_share <= UNDETERMINED:
            break
        chosen.append(length)
    return tuple(chosen)


def undetermined(documents: Sequence[Ids], lengths: Sequence[int]) -> list[float]:
    """Return, per length, the share of documents with a place that only a longer context determines.

    Such a place continues in several ways after contexts of this length, and in one way after those of the last one.

    Args:
        documents: Token ids.
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
    found = []
    for one in single:
        needy = np.unique(owner[single[-1] & ~one])
        found.append(len(needy) / max(1, len(documents)))
    return found
