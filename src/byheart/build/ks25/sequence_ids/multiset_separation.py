"""A number for every token, zero for most, whose sums tell multisets apart: the sequence ids of KS25."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from byheart.build.ks25.sequence_ids.distinguishing_tokens import distinguishing_tokens
from byheart.build.ks25.sequence_ids.multisets import Index, Multisets
from byheart.build.ks25.sequence_ids.token_weights import token_weights
from byheart.build.shared.projection import Constants, Line, project
from byheart.exact.values import Values
from byheart.paper import Ref, implements


@dataclass(frozen=True, eq=False)
class TokenCode:
    """Where every point stands on the line, its label (0 for most), and the sum of every multiset's labels."""

    line: Line
    labels: tuple[int, ...]
    sums: Index


def number_tokens(count: int, index: Index, constants: Constants, seed: int = 0) -> tuple[tuple[int, ...], Index]:
    """A label for each of `count` tokens, 0 for most, and the sum of every multiset's labels; the sums all differ.

    >>> import numpy as np
    >>> labels, sums = number_tokens(3, np.array([[0, 1], [0, 2], [1, 2]]), Constants.MEASURED)
    >>> labels, sums.tolist()
    ((2, 1, 0), [3, 2, 1])
    """
    multisets = Multisets.of(index)
    tokens = distinguishing_tokens(multisets)
    weights, sums = token_weights(multisets, tokens, constants, seed)
    labels = [0] * count
    for token, weight in zip(tokens, weights, strict=True):
        labels[token] = weight
    return tuple(labels), sums


@implements(
    Ref("KS25", "Lemma B.3"),
    statement="A network of width 12 that labels at most N - 1 tokens and is 0 on the others has different sums on "
    "N different multisets.",
    test="tests/build/ks25/sequence_ids/test_multiset_separation.py",
)
def separate_multisets(
    points: Values, separation: Fraction, index: Index, constants: Constants, seed: int = 0
) -> TokenCode:
    """The token labels f of Lemma B.2 on the tokens A of Lemma B.1, and the line on which Lemma C.1 looks them up.

    Notation: index[i] are the points of multiset i (all different), phi = labels. The sums count every token as often
    as it occurs (the multiplicity that eq. (47) lacks). The network itself is the memorizer of `line` and `labels`.

    >>> import numpy as np
    >>> points = Values.of([[0], [1], [2]])
    >>> code = separate_multisets(points, Fraction(1), np.array([[0, 1], [0, 2], [1, 2]]), Constants.MEASURED)
    >>> code.line.floors, code.labels
    ((2, 4, 6), (2, 1, 0))
    """
    labels, sums = number_tokens(points.count, index, constants, seed)
    return TokenCode(project(points, separation, constants, seed), labels, sums)
