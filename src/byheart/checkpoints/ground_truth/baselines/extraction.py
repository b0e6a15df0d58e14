"""Extraction by greedy decoding, and the place of a document at which it is measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any


def extraction_cuts(documents: Sequence[Sequence[int]], length: int, least: int) -> list[int]:
    """Return where each document's continuation of `length` tokens begins: as late as possible, but one of its own.

    Closing words that all documents share are generated from any prefix. A continuation that another document has as
    well would measure these.

    Args:
        documents: Token ids.
        length: Tokens of the continuation.
        least: Tokens that the prefix has at least.

    >>> extraction_cuts([(0, 1, 2, 3, 9, 9), (0, 1, 4, 5, 9, 9), (0, 6, 7, 8)], 2, 1)
    [3, 3, 2]
    """
    seen = Counter(
        window for ids in documents for window in {tuple(ids[k : k + length]) for k in range(len(ids) - length + 1)}
    )
    found = []
    for ids in documents:
        last = len(ids) - length
        own = (cut for cut in range(last, least - 1, -1) if seen[tuple(ids[cut : cut + length])] == 1)
        found.append(next(own, last))
    return found


def greedy(model: Any, prefixes: Sequence[Sequence[int]], length: int) -> list[tuple[int, ...]]:
    """The greedy continuations of prefixes, `length` tokens each; prefixes of equal length run together."""
    import torch

    found: dict[int, tuple[int, ...]] = {}
    groups: dict[int, list[int]] = {}
    for number, prefix in enumerate(prefixes):
        groups.setdefault(len(prefix), []).append(number)
    with torch.no_grad():
        for numbers in groups.values():
            ids = torch.tensor([list(prefixes[k]) for k in numbers])
            for _ in range(length):
                ids = torch.cat([ids, model(ids).logits[:, -1].argmax(-1, keepdim=True)], dim=1)
            found |= {k: tuple(row[-length:]) for k, row in zip(numbers, ids.tolist(), strict=True)}
    return [found[number] for number in range(len(prefixes))]
