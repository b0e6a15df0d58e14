"""Small corpora with the awkward cases: contexts of length 1, duplicates, prefixes of prefixes, one-token documents."""

from __future__ import annotations

import random

TEXTS = [
    "a cat sat",
    "a cat sat",  # a duplicate
    "a cat",  # a prefix of another document
    "a dog sat down",
    "a dog ran",
    "the dog",  # a context of length 1 only
    "a",  # no context at all
    "the end of the dog",
]


def random_texts(documents: int, vocabulary: int, length: int, seed: int) -> list[str]:
    """Documents in which early tokens are drawn from few words, so that contexts repeat."""
    rng = random.Random(seed)
    return [
        " ".join(
            f"w{rng.randrange(min(vocabulary, 2 + t * t)) if t < 3 else rng.randrange(vocabulary)}"
            for t in range(length)
        )
        for _ in range(documents)
    ]
