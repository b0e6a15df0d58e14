"""A paragraph for every row of a comparison: what it does, and when to take it."""

from __future__ import annotations

from byheart.build import recipes

# rows that are not constructions: these explain themselves here, constructions where they are registered
OTHERS = {
    "python dict": "What most people would write. Answers only keys that it has, in constant time.",
    "sorted array": "Packed rows with labels, found by bisection: the smallest ordinary table.",
    "information limit": "The labels alone: what any store of arbitrary labels needs, even if the inputs were free.",
    "trained": "A network of KS25's form that gradient descent found on this data in the time given. It is checked in "
    "floating point, not proved.",
}


def words(name: str, summary: str) -> str:
    entry = recipes().get(name)
    return OTHERS.get(name, summary) if entry is None else entry.words
