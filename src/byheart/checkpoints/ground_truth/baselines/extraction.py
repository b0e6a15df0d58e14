"""Extraction: continue a prefix greedily, or compute the chance that samples contain the continuation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def greedy(model: Any, prefixes: Sequence[Sequence[int]], length: int) -> list[tuple[int, ...]]:
    """The greedy continuations of prefixes of one length, `length` tokens each."""
    import torch

    ids = torch.tensor([list(prefix) for prefix in prefixes])
    with torch.no_grad():
        for _ in range(length):
            ids = torch.cat([ids, model(ids).logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    return [tuple(row[-length:]) for row in ids.tolist()]


def continuation_log_probability(model: Any, prefix: Sequence[int], continuation: Sequence[int]) -> float:
    """log of the chance that sampling continues `prefix` with exactly these tokens."""
    import torch

    ids = torch.tensor([[*prefix, *continuation]])
    with torch.no_grad():
        logs = model(ids[:, :-1]).logits[0, len(prefix) - 1 :].double().log_softmax(-1)
    return float(np.sum([float(logs[k, token]) for k, token in enumerate(continuation)]))
