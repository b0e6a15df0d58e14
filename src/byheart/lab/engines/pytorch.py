"""The engines in PyTorch. Both compute everything distinct once.

`StackedEngine` trains eq. (165) with stacked weights, features × tokens: for widths other than two, and for GPUs.

    blocks: (L, q, m) @ (m, tokens); the same savings as the kernel: every distinct token once, F2 on the read tokens.

Slower than `byheart.lab.engines.kernel` on a CPU, where each of these products is too small for its own overhead.

`DecoderEngine` trains Madden et al.'s decoder: every distinct context once, and of it only the last token's query, key
and value, since its earlier tokens end shorter contexts. A document of T tokens has T prefixes, and stories begin
alike, so the distinct contexts are a fraction of the positions. A context's loss is that of its empirical next-token
distribution, which is the same number. Half of the time would go into passes over the logits, so the last layer and its
loss are one step with a gradient by hand, some hundred contexts at a time, whose logits stay in the cache; and a
context's gradient from the longer ones is a product with a sparse matrix, where PyTorch's own would add row by row.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from byheart.lab.config import DecoderModel, Training, Uniform
from byheart.lab.engines.readable import Descent, sinusoids, weigh
from byheart.lab.engines.weights import initial_decoder, initial_uniform
from byheart.lab.problem import CROSS_ENTROPY, PADDING, Documents, Sequences

CACHED = 1 << 16  # logits of a tile: 256 KiB


class StackedEngine:
    """One training run; `epochs(k)` runs k steps and returns (loss, accuracy) before each.

    compiled: let torch.compile fuse the step. Compiling needs half a minute, so it pays for long runs only.
    """

    def __init__(
        self,
        problem: Sequences,
        model: Uniform,
        training: Training,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        compiled: bool = False,
    ) -> None:
        self.squared = problem.loss != CROSS_ENTROPY
        place = {"dtype": dtype, "device": device}
        start = initial_uniform(model, problem, training.seed, identity=training.identity)
        self.weights = {name: torch.tensor(w, **place, requires_grad=True) for name, w in start.items()}
        self.points = None if problem.points is None else torch.tensor(problem.points.T, **place)  # (d, V)
        self.index = torch.tensor(problem.index, device=device)
        self.attention, self.every = model.attention, problem.labels.ndim == 2
        # (N, read tokens of each)
        self.read = (self.index if self.every else self.index[:, [problem.read]]).contiguous()
        labels = torch.tensor(problem.labels.reshape(-1), device=device)
        self.labels = labels.to(dtype) if self.squared else labels
        self.descent = Descent(self.weights, training, model.size, problem.asked, fused=True)
        self.measure = torch.compile(self._measure) if compiled else self._measure

    def epochs(self, count: int) -> npt.NDArray[np.float64]:
        return np.array([self.descent.step(self.measure) for _ in range(count)])

    def _measure(self) -> tuple[Tensor, Tensor]:
        w = self.weights
        x = w["E_in"] if self.points is None else w["E_in"] @ self.points  # (m, V)
        x = self._blocks("F1", x)
        x = x[:, self.read.reshape(-1)] + w["WO"] @ (w["WV"] @ self._mixed(x))
        answer = w["E_out"] @ self._blocks("F2", x)  # (C, answers)
        if self.squared:
            right = (answer[0] > 0) == (self.labels > 0)
            return (answer[0] - self.labels).square().mean(), right.to(answer.dtype).mean()
        right = answer.argmax(dim=0) == self.labels
        return torch.nn.functional.cross_entropy(answer.T, self.labels), right.to(answer.dtype).mean()

    def _mixed(self, x: Tensor) -> Tensor:
        """Apply attention to distinct tokens (m, V): for every token that is read, the weighed mean of its
        sequence, (m, answers). Scores are computed once for every pair of words."""
        if self.attention == "uniform":
            mean = torch.nn.functional.embedding_bag(self.index, x.T.contiguous(), mode="mean").T  # (m, N)
            return mean.repeat_interleave(self.read.shape[1], dim=1) if self.every else mean
        pairs = (self.weights["WQ"] @ x).T @ (self.weights["WK"] @ x)  # (V queries, V keys)
        scores = pairs[self.read[:, :, None], self.index[:, None, :]]  # (N, asked, n)
        tokens = torch.nn.functional.embedding(self.index, x.T)  # (N, n, m)
        return (weigh(scores, self.attention == "hardmax") @ tokens).flatten(0, 1).T

    def _blocks(self, stack: str, x: Tensor) -> Tensor:
        W1, b1, W2, b2 = (self.weights[f"{stack}.{part}"] for part in ("W1", "b1", "W2", "b2"))
        for i in range(W1.shape[0]):
            hidden = torch.relu(torch.addmm(b1[i][:, None], W1[i], x))  # (q, tokens)
            x = x + torch.addmm(b2[i][:, None], W2[i], hidden)
        return x


class DecoderEngine:
    """One training run; `epochs(k)` runs k steps and returns (loss, accuracy) before each."""

    def __init__(
        self, problem: Documents, model: DecoderModel, training: Training, dtype: torch.dtype = torch.float32
    ) -> None:
        start = initial_decoder(model, problem, training.seed)
        self.weights = {name: torch.tensor(w, dtype=dtype, requires_grad=True) for name, w in start.items()}
        lengths = (problem.contexts != PADDING).sum(axis=1)
        self.absent = torch.from_numpy(problem.contexts == PADDING)  # (n, T)
        self.tokens = torch.from_numpy(problem.contexts[np.arange(len(lengths)), lengths - 1])  # (n,) the last of each
        self.positions = sinusoids(problem.length, model.d).to(dtype)[torch.from_numpy(lengths - 1)]  # (n, d)
        self.prefixes = torch.from_numpy(_prefixes(problem.contexts))  # (n, T)
        self.gather = _gather(self.prefixes, dtype)  # (n, n·T)
        self.tiles = _tiles(problem, dtype)
        self.room = torch.empty(max(len(tile.totals) for tile in self.tiles), problem.vocabulary, dtype=dtype)
        self.descent = Descent(self.weights, training, model.size, problem.asked, fused=True)

    def epochs(self, count: int) -> npt.NDArray[np.float64]:
        return np.array([self.descent.step(self._measure) for _ in range(count)])

    def _measure(self) -> tuple[Tensor, Tensor]:
        w = self.weights
        loss, accuracy = NextTokenLoss.apply(self._hidden(), w["output"], w["output_bias"], self.tiles, self.room)
        return loss, accuracy

    def _hidden(self) -> Tensor:
        w = self.weights
        x = torch.nn.functional.embedding(self.tokens, w["embedding"]) + self.positions  # (n, d)
        query, key, value = (torch.addmm(w[f"{name}_bias"], x, w[name]) for name in ("query", "key", "value"))
        scores = (self._along(key) * query[:, None]).sum(dim=2) / x.shape[1] ** 0.5  # (n, T)
        attention = scores.masked_fill(self.absent, float("-inf")).softmax(dim=1)
        mixed = (attention[:, :, None] * self._along(value)).sum(dim=1)
        mixed = torch.addmm(w["project_bias"], mixed, w["project"])
        return torch.nn.functional.gelu(torch.addmm(w["hidden_bias"], mixed, w["hidden"]))  # (n, m)

    def _along(self, rows: Tensor) -> Tensor:
        """(n, d) -> (n, T, d): the rows of a context's tokens, which are those that end its prefixes."""
        return Spread.apply(rows, self.prefixes, self.gather)


class Spread(torch.autograd.Function):
    """rows[places], whose gradient is one product with the sparse matrix that `_gather` builds from the indices."""

    @staticmethod
    def forward(context: Any, rows: Tensor, places: Tensor, gather: Tensor) -> Tensor:
        context.save_for_backward(gather)
        return torch.nn.functional.embedding(places, rows)

    @staticmethod
    def backward(context: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        (gather,) = context.saved_tensors
        return gather @ slopes.reshape(gather.shape[1], -1), None, None


def _gather(places: Tensor, dtype: torch.dtype) -> Tensor:
    """Return (n, places) in compressed rows: the matrix that adds up all rows with the same index."""
    flat = places.reshape(-1)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(flat, minlength=len(places)).cumsum(0)])
    order, ones = torch.argsort(flat, stable=True), torch.ones(len(flat), dtype=dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        return torch.sparse_csr_tensor(starts, order, ones, (len(places), len(flat)), check_invariants=True)


def _prefixes(contexts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """(n, T): which context the first t + 1 tokens of a context are; 0 beyond its end.

    >>> _prefixes(np.array([[7, PADDING], [7, 8], [9, PADDING]])).tolist()
    [[0, 0], [0, 1], [2, 0]]
    """
    rows = [tuple(token for token in row if token != PADDING) for row in contexts.tolist()]
    numbers = {row: number for number, row in enumerate(rows)}
    found = np.zeros_like(contexts)
    for number, row in enumerate(rows):
        found[number, : len(row)] = [numbers[row[: t + 1]] for t in range(len(row))]
    return found


class Tile(NamedTuple):
    """Contexts in a row, their pairs as indices into the flat (contexts, ω) logits, weights, and contexts' weights."""

    rows: slice
    places: Tensor
    weights: Tensor
    totals: Tensor


def _tiles(problem: Documents, dtype: torch.dtype) -> list[Tile]:
    """Contexts in parts whose logits stay in a core's second-level cache."""
    order = np.argsort(problem.pairs[:, 0], kind="stable")
    pairs, weights = problem.pairs[order], problem.weights[order]
    totals = np.bincount(pairs[:, 0], weights=weights)
    size = max(1, CACHED // problem.vocabulary)
    found = []
    for a in range(0, len(totals), size):
        rows = slice(a, min(a + size, len(totals)))
        first, last = np.searchsorted(pairs[:, 0], (rows.start, rows.stop))
        places = (pairs[first:last, 0] - a) * problem.vocabulary + pairs[first:last, 1]
        arrays = weights[first:last], totals[rows]
        found.append(Tile(rows, torch.from_numpy(places), *(torch.from_numpy(each).to(dtype) for each in arrays)))
    return found


class NextTokenLoss(torch.autograd.Function):
    """(cross-entropy, share of correct predictions) of logits x·W + b against empirical distributions.

    loss = Σ totals·log Σ exp − Σ weights·logit, so ∂loss/∂logits = totals·softmax, less the weights at the pairs'
    indices: a tile of exponentials becomes its gradient in place, and from it the gradients of x, W and b, before the
    next tile is computed in the same `room`. A prediction is correct when no logit of its context is larger.
    """

    @staticmethod
    def forward(
        context: Any, x: Tensor, W: Tensor, b: Tensor, tiles: list[Tile], room: Tensor
    ) -> tuple[Tensor, Tensor]:
        slopes = torch.empty_like(x), torch.zeros_like(W), torch.zeros_like(b)
        loss, accuracy = x.new_zeros(()), x.new_zeros(())
        for rows, places, weights, totals in tiles:
            logits = torch.mm(x[rows], W, out=room[: len(totals)])  # (tile, ω)
            logits += b
            logits -= logits.amax(dim=1, keepdim=True)
            queried = logits.view(-1)[places]
            sums = logits.exp_().sum(dim=1)
            loss += totals @ sums.log() - weights @ queried
            accuracy += weights @ (queried == 0).to(weights.dtype)
            logits *= (totals / sums)[:, None]
            logits.view(-1).index_add_(0, places, weights, alpha=-1)
            torch.mm(logits, W.T, out=slopes[0][rows])
            slopes[1].addmm_(x[rows].T, logits)
            slopes[2].add_(logits.sum(dim=0))
        context.save_for_backward(*slopes)
        context.mark_non_differentiable(accuracy)
        return loss, accuracy

    @staticmethod
    def backward(context: Any, slope: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        slopes = context.saved_tensors
        return *(slopes if slope.item() == 1 else [slope * each for each in slopes]), None, None
