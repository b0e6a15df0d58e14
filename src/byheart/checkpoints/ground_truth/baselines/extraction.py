"""Extraction by greedy decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


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
