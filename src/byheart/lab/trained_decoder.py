"""The trained rival of the closed form: the decoder of M24's experiment under full-batch Adam.

One block: embedding, sinusoidal positions, one softmax head, a linear layer with GELU, a linear layer; biases in the
linear layers; no dropout, no normalization, no residual connections. Contexts are batched with their counts, so an epoch
sees every distinct context once: the same loss as over all documents, in less time.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from byheart.data.documents import Contexts
from byheart.errors import MissingExtraError


@dataclass(frozen=True)
class Training:
    """How a training ended: the smallest gap so far, in nats, and what it took."""

    parameters: int
    steps: int
    seconds: float
    gap: float
    relative_gap: float
    reached: bool
    curve: tuple[tuple[int, float, float], ...]  # (step, seconds, relative gap)


def train_decoder(
    contexts: Contexts,
    *,
    neurons: int = 64,
    dimension: int = 16,
    step_size: float = 1e-4,
    steps: int = 50_000,
    fraction: float = 0.01,
    cap: float = math.inf,
    threads: int = 1,
    seed: int = 0,
    every: int = 100,
) -> Training:
    """Trains until the gap is below `fraction` of the entropy, for at most `steps` steps and `cap` seconds."""
    torch = _torch()
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    started = time.perf_counter()
    loss_of, weights = _model(torch, contexts, neurons, dimension)
    optimizer = torch.optim.Adam(weights, lr=step_size)
    total, entropy = float(contexts.weights.sum()), contexts.entropy
    curve: list[tuple[int, float, float]] = []
    best, step, reached = math.inf, 0, False
    while step < steps and not reached:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of()
        if step % every == 0:
            best = min(best, float(loss.detach()) * total - entropy)
            seconds = time.perf_counter() - started
            curve.append((step, seconds, best / entropy))
            reached = best <= fraction * entropy
            if reached or seconds > cap:
                break
        loss.backward()
        optimizer.step()
        step += 1
    parameters = sum(w.numel() for w in weights)
    return Training(parameters, step, time.perf_counter() - started, best, best / entropy, reached, tuple(curve))


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("training a decoder", "torch") from error
    return torch


def _model(torch: Any, contexts: Contexts, neurons: int, dimension: int) -> tuple[Any, list[Any]]:
    """(a function that evaluates the mean loss, the weights)."""
    nn, functional = torch.nn, torch.nn.functional
    embedding = nn.Embedding(contexts.vocabulary_size, dimension)
    query, key, value, mixed = (nn.Linear(dimension, dimension) for _ in range(4))
    hidden, output = nn.Linear(dimension, neurons), nn.Linear(neurons, contexts.vocabulary_size)
    weights = [w for layer in (embedding, query, key, value, mixed, hidden, output) for w in layer.parameters()]
    tokens = torch.from_numpy(np.maximum(contexts.tokens, 0))
    absent = torch.from_numpy(contexts.tokens < 0)
    rows, last = torch.arange(contexts.count), torch.from_numpy(contexts.lengths - 1)
    positions = torch.from_numpy(_sinusoids(contexts.tokens.shape[1], dimension))
    where, token = torch.from_numpy(contexts.pair_context), torch.from_numpy(contexts.pair_token)
    share = torch.from_numpy((contexts.pair_weight / contexts.weights.sum()).astype(np.float32))

    def loss() -> Any:
        plain = embedding(tokens) + positions
        scores = torch.einsum("nd,ntd->nt", query(plain[rows, last]), key(plain)) / math.sqrt(dimension)
        shares = scores.masked_fill(absent, -math.inf).softmax(dim=1)
        mixture = mixed(torch.einsum("nt,ntd->nd", shares, value(plain)))
        log_probabilities = functional.log_softmax(output(functional.gelu(hidden(mixture))), dim=1)
        return -(share * log_probabilities[where, token]).sum()

    return loss, weights


def _sinusoids(length: int, dimension: int) -> Any:
    """The positions of Vaswani et al. 2017."""
    place, k = np.arange(length)[:, None], np.arange(dimension)[None, :]
    angle = place / 10_000.0 ** (2 * (k // 2) / dimension)
    return np.where(k % 2 == 0, np.sin(angle), np.cos(angle)).astype(np.float32)
