"""The fast engine for eq. (165) with any attention and a label for one token or for every token: compiled loops.

`kernel` and `wide` average and read one token of a sequence. Here attention may weigh (softmax, hardmax), and every
token may have a separate label, so F2 sees N·n tokens. The stacks, E_in and the loss are those of `wide`; what is new
is the layer between them.

A score belongs to a pair of words, not to a position: all V² of them are computed once, and their exponentials too, so
a sequence only looks its weights up. Exponentials are taken below the largest score of a query over *all* words, in
float64; where a sequence contains no word near it, so that the looked-up weights vanish, its own largest score is
taken. Gradients go the same way back: they are gathered for pairs of words and pass through W_Q and W_K at the end.

    words X (V, m)      P = (X·W_Qᵀ)·(X·W_Kᵀ)ᵀ (V, V)      out of token q in a row: x_q + W_O·W_V·Σ_k p_k x_k
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from byheart.lab.config import Training, Uniform
from byheart.lab.engines.kernel import FAST, LANES, Curve, adamw, batch_of, shorten, vectors_of, views_of
from byheart.lab.engines.weights import Flat, Weights, initial_uniform
from byheart.lab.engines.wide import embed, embed_backward, product, score, stack_backward, stack_forward
from byheart.lab.problem import Sequences

_KINDS = {"uniform": 0, "softmax": 1, "hardmax": 2}
_VANISHED = 1e-290  # a sum of looked-up exponentials below this has lost its digits


class AttendingEngine:
    """One training run; `epochs(k)` runs k steps and returns (loss, accuracy) before each."""

    def __init__(
        self,
        problem: Sequences,
        model: Uniform,
        training: Training,
        dtype: npt.DTypeLike = np.float32,
        start: Weights | None = None,
    ) -> None:
        self.training, self.step = training, 0
        start = dict(start or initial_uniform(model, problem, training.seed, identity=training.identity))
        if model.attention == "uniform":  # never used, and without gradient: the compiled loop has one shape
            start |= {name: np.zeros((model.s, model.m)) for name in ("WK", "WQ")}
        self.weights, self.gradient = Flat(start, dtype), Flat(start, dtype)
        self.vectors = vectors_of(self.weights, self.gradient, training, model.blocks)
        points, index, read, labels, squared = batch_of(problem, dtype)
        asked = index if problem.labels.ndim == 2 else np.ascontiguousarray(index[:, read : read + 1])
        self.data = points, index, asked, np.ascontiguousarray(labels).reshape(-1), squared
        self.kind = _KINDS[model.attention]

        def stream(tokens: int) -> npt.NDArray[Any]:
            return np.zeros((-(-tokens // LANES), model.m, LANES), dtype)

        V, m = problem.tokens, model.m
        self.streams = (*(stream(V) for _ in range(3)), *(stream(asked.size) for _ in range(3)))
        self.tape = np.zeros((model.blocks + 1, m, LANES), dtype)
        self.room = (
            np.zeros((V, m), dtype),  # the words after F1
            np.zeros((V, m), dtype),  # and their slopes
            np.zeros((V, V)),  # scores
            np.zeros((V, V)),  # their exponentials
            np.zeros((V, V)),  # slopes of the scores
            np.zeros((asked.size, m), dtype),  # outputs of attention
        )

    def epochs(self, count: int) -> Curve:
        plan = self.training
        curve = np.empty((count, 2))
        rates = np.array([plan.rate_at(self.step + i) for i in range(count)])
        constants = (plan.beta1, plan.beta2, plan.epsilon, plan.decay, plan.clip)
        views = (self._views(self.weights), self._views(self.gradient))
        places = (self.streams, self.tape, self.room)
        run_attending(self.data, self.kind, *views, *places, self.vectors, self.step, rates, constants, curve)
        self.step += count
        return curve

    def learned(self) -> Weights:
        return self.weights.copy()

    @staticmethod
    def _views(flat: Flat) -> tuple[Any, ...]:
        return *views_of(flat), flat["WK"], flat["WQ"]


@numba.njit(inline="always")
def rows_of(stream, X):
    """X (V, m) ← the tokens of a stream (tiles, m, LANES)."""
    for v in range(X.shape[0]):
        for r in range(X.shape[1]):
            X[v, r] = stream[v // LANES, r, v % LANES]


@numba.njit(inline="always")
def tiles_of(X, stream):
    """The way back from `rows_of`."""
    for v in range(X.shape[0]):
        for r in range(X.shape[1]):
            stream[v // LANES, r, v % LANES] = X[v, r]


@numba.njit(inline="always")
def times(X, W, Y):
    """Y (V, s) ← X (V, m) · Wᵀ, W (s, m)."""
    for v in range(X.shape[0]):
        for k in range(W.shape[0]):
            total = 0.0
            for r in range(X.shape[1]):
                total += X[v, r] * W[k, r]
            Y[v, k] = total


@numba.njit(inline="always", fastmath=FAST)
def scores_of(Q, K, P, E):
    """P ← Q·Kᵀ, and E ← exp(P − the largest of its row)."""
    for v in range(P.shape[0]):
        top = -np.inf
        for u in range(P.shape[1]):
            total = 0.0
            for k in range(Q.shape[1]):
                total += Q[v, k] * K[u, k]
            P[v, u] = total
            top = max(top, total)
        for u in range(P.shape[1]):
            E[v, u] = np.exp(P[v, u] - top)


@numba.njit(inline="always")
def weigh(kind, own, row, P, E, soft, used):
    """The weights of a token in its row: `used` on the way there, `soft` for the slopes (they differ for hardmax)."""
    n = len(row)
    if kind == 0:
        used[:n] = 1.0 / n
        return
    total = 0.0
    top = -np.inf
    for k in range(n):
        soft[k] = E[own, row[k]]
        total += soft[k]
        top = max(top, P[own, row[k]])
    if not total > _VANISHED:  # and for NaN
        total = 0.0
        for k in range(n):
            soft[k] = np.exp(P[own, row[k]] - top)
            total += soft[k]
    largest = 0
    for k in range(n):
        soft[k] /= total
        largest += P[own, row[k]] == top
    for k in range(n):
        used[k] = soft[k] if kind == 1 else (P[own, row[k]] == top) / largest


@numba.njit(inline="always", fastmath=FAST)
def attend(kind, X, index, asked, P, E, A, mixed, after, soft, used):
    """after ← x_q + A·Σ p_k x_k for every token q that is predicted; `mixed` keeps the sums."""
    m = X.shape[1]
    for i in range(index.shape[0]):
        for a in range(asked.shape[1]):
            place, own = i * asked.shape[1] + a, asked[i, a]
            if kind or a == 0:
                weigh(kind, own, index[i], P, E, soft, used)
                mixed[place] = 0
                for k in range(index.shape[1]):
                    for r in range(m):
                        mixed[place, r] += used[k] * X[index[i, k], r]
            else:  # an average is the same for all tokens of a row
                mixed[place] = mixed[place - 1]
            for r in range(m):
                value = X[own, r]
                for c in range(m):
                    value += A[r, c] * mixed[place, c]
                after[place // LANES, r, place % LANES] = value


@numba.njit(inline="always", fastmath=FAST)
def attend_backward(kind, slope, X, index, asked, P, E, A, mixed, dX, dP, dA, soft, used):
    """The way back through `attend`: overwrites dX and dP, adds to dA."""
    m, n = X.shape[1], index.shape[1]
    dX[:] = 0
    dP[:] = 0
    g, back, turns = np.empty(m), np.empty(m), np.empty(n)
    for i in range(index.shape[0]):
        for a in range(asked.shape[1]):
            place, own = i * asked.shape[1] + a, asked[i, a]
            for r in range(m):
                g[r] = slope[place // LANES, r, place % LANES]
                dX[own, r] += g[r]
                for c in range(m):
                    dA[r, c] += g[r] * mixed[place, c]
            for c in range(m):
                back[c] = 0.0
                for r in range(m):
                    back[c] += A[r, c] * g[r]
            if kind or a == 0:
                weigh(kind, own, index[i], P, E, soft, used)
            mean = 0.0
            for k in range(n):
                turn = 0.0
                for r in range(m):
                    dX[index[i, k], r] += used[k] * back[r]
                    turn += back[r] * X[index[i, k], r]
                turns[k] = turn
                mean += soft[k] * turn
            if kind:
                for k in range(n):
                    dP[own, index[i, k]] += soft[k] * (turns[k] - mean)


@numba.njit(inline="always", fastmath=FAST)
def scores_backward(X, Q, K, WQ, WK, dP, dX, dWQ, dWK):
    """The way back through P = (X·W_Qᵀ)·(X·W_Kᵀ)ᵀ; adds to dX, dWQ, dWK."""
    for v in range(X.shape[0]):
        for k in range(Q.shape[1]):
            query = key = 0.0
            for u in range(X.shape[0]):
                query += dP[v, u] * K[u, k]
                key += dP[u, v] * Q[u, k]
            for r in range(X.shape[1]):
                dWQ[k, r] += query * X[v, r]
                dWK[k, r] += key * X[v, r]
                dX[v, r] += query * WQ[k, r] + key * WK[k, r]


@numba.njit(cache=True, nogil=True, fastmath=FAST)
def run_attending(data, kind, weights, gradient, streams, tape, room, vectors, step, rates, constants, curve):
    """One epoch per entry of `rates`; curve[i] ← (loss, accuracy) before step i. Arguments as in `wide.run_wide`;
    room: words and their slopes, scores, exponentials, slopes of scores, and outputs of attention."""
    points, index, asked, labels, squared = data
    E_in, F1, WV, WO, F2, E_out, WK, WQ = weights
    dE_in, dF1, dWV, dWO, dF2, dE_out, dWK, dWQ = gradient
    words, out1, slope1, rows, out2, slope2 = streams
    X, dX, P, E, dP, mixed = room
    flat, slope, first, second, paces = vectors
    beta1, beta2, epsilon, decay, clip = constants
    carried, dA = np.empty_like(tape[0]), np.empty((X.shape[1], X.shape[1]))
    h, d = np.empty(LANES, tape.dtype), np.empty(LANES, tape.dtype)
    soft, used = np.zeros(index.shape[1]), np.zeros(index.shape[1])
    Q, K = np.empty((X.shape[0], WQ.shape[0])), np.empty((X.shape[0], WK.shape[0]))
    for i in range(len(rates)):
        slope[:] = 0
        dA[:] = 0
        A = product(WO, WV)
        embed(points, E_in, words)
        stack_forward(words, tape, h, F1, out1)
        rows_of(out1, X)
        if kind:
            times(X, WQ, Q)
            times(X, WK, K)
            scores_of(Q, K, P, E)
        attend(kind, X, index, asked, P, E, A, mixed, rows, soft, used)
        stack_forward(rows, tape, h, F2, out2)
        curve[i] = score(out2, E_out, labels, squared, slope2, dE_out)
        stack_backward(rows, tape, carried, h, d, F2, dF2, slope2)
        attend_backward(kind, slope2, X, index, asked, P, E, A, mixed, dX, dP, dA, soft, used)
        if kind:
            scores_backward(X, Q, K, WQ, WK, dP, dX, dWQ, dWK)
        for k in range(WV.shape[0]):
            for r in range(len(dA)):
                for c in range(len(dA)):
                    dWO[r, k] += dA[r, c] * WV[k, c]
                    dWV[k, c] += WO[r, k] * dA[r, c]
        tiles_of(dX, slope1)
        stack_backward(words, tape, carried, h, d, F1, dF1, slope1)
        embed_backward(points, slope1, dE_in)
        if clip > 0:
            shorten(slope, clip)
        adamw(flat, slope, first, second, paces, step + i + 1, rates[i], beta1, beta2, epsilon, decay)
