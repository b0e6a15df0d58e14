"""The fast engine for eq. (165) of any width m: compiled loops on one core, and almost nothing stored.

`kernel` has the width two written out and keeps the stream between all blocks. Here streams are wider, sequences
have up to ten thousand distinct tokens, and five million of them times every block would not fit into memory: a
tile of `LANES` tokens runs through all blocks in the first-level cache and only its inputs and outputs are
kept; on the way back the tile runs forwards again. That costs a third more arithmetic and saves all traffic between.

    stack: (tiles, m, LANES) -> (tiles, m, LANES)        block: x ← x + W₂·relu(W₁x + b₁) + b₂      (eq. (3))

Every innermost loop runs over lanes, with one weight in a register. The parts are written into the whole before it is
compiled, and sums are reordered, for the reasons that `kernel` gives.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from byheart.lab.config import Training, Uniform
from byheart.lab.engines.kernel import FAST, LANES, Curve, adamw, batch_of, shorten, vectors_of, views_of
from byheart.lab.engines.weights import Flat, Weights, initial_uniform
from byheart.lab.problem import Sequences


class WideEngine:
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
        start = start or initial_uniform(model, problem, training.seed, identity=training.identity)
        self.weights, self.gradient = Flat(start, dtype), Flat(start, dtype)
        self.vectors = vectors_of(self.weights, self.gradient, training, model.blocks)
        self.data = batch_of(problem, dtype)

        def stream(tokens: int) -> npt.NDArray[Any]:
            return np.zeros((-(-tokens // LANES), model.m, LANES), dtype)

        tokens, rows = problem.tokens, problem.N
        self.streams = (*(stream(tokens) for _ in range(3)), *(stream(rows) for _ in range(3)))
        self.room = np.zeros((model.blocks + 1, model.m, LANES), dtype), np.zeros((rows, model.m), dtype)

    def epochs(self, count: int) -> Curve:
        plan = self.training
        curve = np.empty((count, 2))
        rates = np.array([plan.rate_at(self.step + i) for i in range(count)])
        constants = (plan.beta1, plan.beta2, plan.epsilon, plan.decay, plan.clip)
        views = views_of(self.weights), views_of(self.gradient)
        run_wide(self.data, *views, self.streams, self.room, self.vectors, self.step, rates, constants, curve)
        self.step += count
        return curve

    def learned(self) -> Weights:
        return self.weights.copy()


@numba.njit(inline="always", fastmath=FAST)
def tile_forward(tape, W1, b1, W2, b2, h):
    """Fills tape[1:] from tape[0]; tape (L+1, m, LANES), W1 (L, q, m), W2 (L, m, q)."""
    zero = tape.dtype.type(0)
    for block in range(W1.shape[0]):
        x, y = tape[block], tape[block + 1]
        for r in range(W1.shape[2]):
            c = b2[block, r]
            for t in range(LANES):
                y[r, t] = x[r, t] + c
        for j in range(W1.shape[1]):
            hidden_unit(x, W1[block, j], b1[block, j], h)
            for t in range(LANES):
                h[t] = zero if h[t] < zero else h[t]  # a NaN passes
            for r in range(W1.shape[2]):
                u = W2[block, r, j]
                for t in range(LANES):
                    y[r, t] += u * h[t]


@numba.njit(inline="always", fastmath=FAST)
def hidden_unit(x, w, b, h):
    """h ← w·x + b, before the ReLU."""
    for t in range(LANES):
        h[t] = b
    for r in range(len(w)):
        c = w[r]
        for t in range(LANES):
            h[t] += c * x[r, t]


@numba.njit(inline="always", fastmath=FAST)
def tile_backward(tape, g, carried, h, d, W1, b1, W2, dW1, db1, dW2, db2):
    """Adds the gradients of the weights; g (m, LANES) enters as ∂loss/∂output and leaves as ∂loss/∂input."""
    zero = tape.dtype.type(0)
    m = W1.shape[2]
    for block in range(W1.shape[0] - 1, -1, -1):
        x = tape[block]
        for r in range(m):
            total = zero
            for t in range(LANES):
                total += g[r, t]
                carried[r, t] = g[r, t]
            db2[block, r] += total
        for j in range(W1.shape[1]):
            hidden_unit(x, W1[block, j], b1[block, j], h)
            for t in range(LANES):
                d[t] = zero
            for r in range(m):
                u = W2[block, r, j]
                for t in range(LANES):
                    d[t] += u * g[r, t]
            total = zero
            for t in range(LANES):
                open_ = h[t] > zero  # at the kink the slope is 0, as in torch
                d[t] = d[t] if open_ else zero
                h[t] = zero if h[t] < zero else h[t]
                total += d[t]
            db1[block, j] += total
            for r in range(m):
                w = W1[block, j, r]
                a = v = zero
                for t in range(LANES):
                    v += h[t] * g[r, t]
                    a += d[t] * x[r, t]
                    carried[r, t] += w * d[t]
                dW1[block, j, r] += a
                dW2[block, r, j] += v
        for r in range(m):
            for t in range(LANES):
                g[r, t] = carried[r, t]


@numba.njit(inline="always", fastmath=FAST)
def stack_forward(source, tape, h, F, out):
    """out ← F(source), tile by tile."""
    for tile in range(source.shape[0]):
        tape[0] = source[tile]
        tile_forward(tape, F[0], F[1], F[2], F[3], h)
        out[tile] = tape[-1]


@numba.njit(inline="always", fastmath=FAST)
def stack_backward(source, tape, carried, h, d, F, dF, slope):
    """Adds to dF; `slope` enters as ∂loss/∂F(source) and leaves as ∂loss/∂source."""
    for tile in range(source.shape[0]):
        tape[0] = source[tile]
        tile_forward(tape, F[0], F[1], F[2], F[3], h)
        tile_backward(tape, slope[tile], carried, h, d, F[0], F[1], F[2], dF[0], dF[1], dF[2], dF[3])


@numba.njit(inline="always", fastmath=FAST)
def embed(points, E_in, out):
    """out ← E_in·points; points (tiles, d, LANES), or (1, 0, 0): then tokens are unit vectors."""
    if points.shape[1] == 0:
        for k in range(E_in.shape[1]):
            for r in range(E_in.shape[0]):
                out[k // LANES, r, k % LANES] = E_in[r, k]
        return
    for tile in range(points.shape[0]):
        for r in range(E_in.shape[0]):
            x = out[tile, r]
            x[:] = 0
            for k in range(points.shape[1]):
                w = E_in[r, k]
                for t in range(LANES):
                    x[t] += w * points[tile, k, t]


@numba.njit(inline="always", fastmath=FAST)
def embed_backward(points, slope, dE_in):
    """dE_in += ∂loss/∂E_in."""
    if points.shape[1] == 0:
        for k in range(dE_in.shape[1]):
            for r in range(dE_in.shape[0]):
                dE_in[r, k] += slope[k // LANES, r, k % LANES]
        return
    for tile in range(points.shape[0]):
        for r in range(dE_in.shape[0]):
            for k in range(points.shape[1]):
                total = slope.dtype.type(0)
                for t in range(LANES):
                    total += slope[tile, r, t] * points[tile, k, t]
                dE_in[r, k] += total


@numba.njit(inline="always", fastmath=FAST)
def product(WO, WV):
    """W_O·W_V, (m, m)."""
    A = np.zeros((WO.shape[0], WV.shape[1]), WO.dtype)
    for k in range(WV.shape[0]):
        for r in range(WO.shape[0]):
            for c in range(WV.shape[1]):
                A[r, c] += WO[r, k] * WV[k, c]
    return A


@numba.njit(inline="always", fastmath=FAST)
def attend(before, index, read, A, mean, after):
    """Uniform attention, eq. (39), at the token that is read: after ← x_read + A·mean of the sequence."""
    m = len(A)
    share = before.dtype.type(1) / before.dtype.type(index.shape[1])
    for i in range(index.shape[0]):
        own = index[i, read]
        for r in range(m):
            total = before.dtype.type(0)
            for k in range(index.shape[1]):
                total += before[index[i, k] // LANES, r, index[i, k] % LANES]
            mean[i, r] = total * share
        for r in range(m):
            value = before[own // LANES, r, own % LANES]
            for c in range(m):
                value += A[r, c] * mean[i, c]
            after[i // LANES, r, i % LANES] = value


@numba.njit(inline="always", fastmath=FAST)
def attend_backward(slope_after, index, read, WV, WO, A, mean, slope_before, dWV, dWO):
    """The way back through `attend`; slope_before is overwritten, dWV and dWO are added to."""
    m = len(A)
    share = mean.dtype.type(1) / mean.dtype.type(index.shape[1])
    dA = np.zeros((m, m), mean.dtype)
    slope_before[:] = 0
    for i in range(index.shape[0]):
        own = index[i, read]
        for r in range(m):
            g = slope_after[i // LANES, r, i % LANES]
            slope_before[own // LANES, r, own % LANES] += g
            for c in range(m):
                dA[r, c] += g * mean[i, c]
        for c in range(m):
            each = mean.dtype.type(0)
            for r in range(m):
                each += A[r, c] * slope_after[i // LANES, r, i % LANES]
            each *= share
            for k in range(index.shape[1]):
                slope_before[index[i, k] // LANES, c, index[i, k] % LANES] += each
    for k in range(WV.shape[0]):
        for r in range(m):
            for c in range(m):
                dWO[r, k] += dA[r, c] * WV[k, c]
                dWV[k, c] += WO[r, k] * dA[r, c]


@numba.njit(inline="always")
def score(stream, E_out, labels, squared, slope, dE_out):
    """(mean loss, share of correct answers) of E_out·x: cross-entropy, or the squared error of its one number; slope ←
    ∂loss/∂x and dE_out += ∂loss/∂E_out."""
    N, C, m = len(labels), E_out.shape[0], E_out.shape[1]
    logits = np.empty(C, np.float64)
    loss = 0.0
    right = 0
    for i in range(N):
        tile, lane = i // LANES, i % LANES
        top = -np.inf
        best = 0
        for c in range(C):
            logits[c] = 0.0
            for r in range(m):
                logits[c] += E_out[c, r] * stream[tile, r, lane]
            if logits[c] > top:
                top = logits[c]
                best = c
        if squared:
            error = logits[0] - labels[i]
            loss += error * error
            right += (logits[0] > 0) == (labels[i] > 0)
            logits[0] = 2 * error
        else:
            loss += top - logits[labels[i]]
            total = 0.0
            for c in range(C):
                logits[c] = np.exp(logits[c] - top)
                total += logits[c]
            loss += np.log(total)
            right += best == labels[i]
            for c in range(C):
                logits[c] = logits[c] / total - (1.0 if c == labels[i] else 0.0)
        for r in range(m):
            g = 0.0
            for c in range(C):
                dE_out[c, r] += logits[c] / N * stream[tile, r, lane]
                g += logits[c] / N * E_out[c, r]
            slope[tile, r, lane] = g
    return loss / N, right / N


@numba.njit(cache=True, nogil=True, fastmath=FAST)
def run_wide(data, weights, gradient, streams, room, vectors, step, rates, constants, curve):
    """One epoch per entry of `rates`; curve[i] ← (loss, accuracy) before step i. Arguments as in `kernel.run_epochs`;
    streams: the input of F1, its output and its slope, and the same of F2; room: the tape of a tile, the means."""
    points, index, read, labels, squared = data
    E_in, F1, WV, WO, F2, E_out = weights
    dE_in, dF1, dWV, dWO, dF2, dE_out = gradient
    words, out1, slope1, rows, out2, slope2 = streams
    tape, mean = room
    flat, slope, first, second, paces = vectors
    beta1, beta2, epsilon, decay, clip = constants
    carried = np.empty_like(tape[0])
    h, d = np.empty(LANES, tape.dtype), np.empty(LANES, tape.dtype)
    for i in range(len(rates)):
        slope[:] = 0
        A = product(WO, WV)
        embed(points, E_in, words)
        stack_forward(words, tape, h, F1, out1)
        attend(out1, index, read, A, mean, rows)
        stack_forward(rows, tape, h, F2, out2)
        curve[i] = score(out2, E_out, labels, squared, slope2, dE_out)
        stack_backward(rows, tape, carried, h, d, F2, dF2, slope2)
        attend_backward(slope2, index, read, WV, WO, A, mean, slope1, dWV, dWO)
        stack_backward(words, tape, carried, h, d, F1, dF1, slope1)
        embed_backward(points, slope1, dE_in)
        if clip > 0:
            shorten(slope, clip)
        adamw(flat, slope, first, second, paces, step + i + 1, rates[i], beta1, beta2, epsilon, decay)
