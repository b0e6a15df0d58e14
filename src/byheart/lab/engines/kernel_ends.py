"""What stands around the blocks in the fast engine: E_in, uniform attention and the losses, all in compiled loops.

Streams are tiles of `LANES` tokens, see `byheart.lab.engines.kernel`: token k is lane k % LANES of tile k // LANES.

Distinct tokens are embedded once, sequences point at them. Attention is read at one token only, so it needs one mean
per sequence and no table of n² shares; W_O and W_V act through their 2 × 2 product. Losses are added up in float64, so
that sums of thousands of small terms still show progress near the end of a run.
"""

from __future__ import annotations

import numba
import numpy as np

from byheart.lab.engines.kernel import FAST, LANES


@numba.njit(inline="always", fastmath=FAST)
def embed_forward(points, E_in, tape):
    """tape[:, 0] ← E_in·points. points: (tiles, d, LANES), or (1, 0, 0): then tokens are unit vectors."""
    if points.shape[1] == 0:
        for k in range(E_in.shape[1]):
            for r in range(2):
                tape[k // LANES, 0, r, k % LANES] = E_in[r, k]
        return
    for tile in range(points.shape[0]):
        x = tape[tile, 0]
        x[:] = 0
        for k in range(points.shape[1]):
            w0, w1 = E_in[0, k], E_in[1, k]
            for t in range(LANES):
                x[0, t] += w0 * points[tile, k, t]
                x[1, t] += w1 * points[tile, k, t]


@numba.njit(inline="always", fastmath=FAST)
def embed_backward(points, slope, dE_in):
    """dE_in += ∂loss/∂E_in, where `slope` (tiles, 2, LANES) is ∂loss/∂(E_in·points)."""
    if points.shape[1] == 0:
        for k in range(dE_in.shape[1]):
            for r in range(2):
                dE_in[r, k] += slope[k // LANES, r, k % LANES]
        return
    for tile in range(points.shape[0]):
        for k in range(points.shape[1]):
            s0 = s1 = slope.dtype.type(0)
            for t in range(LANES):
                s0 += slope[tile, 0, t] * points[tile, k, t]
                s1 += slope[tile, 1, t] * points[tile, k, t]
            dE_in[0, k] += s0
            dE_in[1, k] += s1


@numba.njit(inline="always")
def product(WO, WV):
    """W_O·W_V, (2, 2), by hand: linking a library for it costs seconds of compilation."""
    A = np.zeros((2, 2), WO.dtype)
    for k in range(WV.shape[0]):
        for r in range(2):
            A[r, 0] += WO[r, k] * WV[k, 0]
            A[r, 1] += WO[r, k] * WV[k, 1]
    return A


@numba.njit(inline="always", fastmath=FAST)
def attend_forward(before, index, read, WV, WO, mean, after):
    """Uniform attention, eq. (39), at the one token that is read: after ← x_read + W_O·W_V·mean of the sequence.

    before: (tiles, 2, LANES), the distinct tokens; index: (N, n), which of them a sequence holds; after: (tiles, 2,
    LANES), one lane per sequence; mean: (N, 2), kept for the way back.
    """
    zero = before.dtype.type(0)
    share = before.dtype.type(1) / before.dtype.type(index.shape[1])
    A = product(WO, WV)
    for i in range(index.shape[0]):
        s0 = s1 = zero
        for k in range(index.shape[1]):
            tile, lane = index[i, k] // LANES, index[i, k] % LANES
            s0 += before[tile, 0, lane]
            s1 += before[tile, 1, lane]
        mean[i, 0] = s0 * share
        mean[i, 1] = s1 * share
        own = index[i, read]
        tile, lane = own // LANES, own % LANES
        for r in range(2):
            after[i // LANES, r, i % LANES] = before[tile, r, lane] + A[r, 0] * mean[i, 0] + A[r, 1] * mean[i, 1]


@numba.njit(inline="always", fastmath=FAST)
def attend_backward(slope_after, index, read, WV, WO, mean, slope_before, dWV, dWO):
    """The way back through `attend_forward`; slope_before is overwritten, dWV and dWO are added to."""
    zero = mean.dtype.type(0)
    share = mean.dtype.type(1) / mean.dtype.type(index.shape[1])
    A = product(WO, WV)
    dA = np.zeros((2, 2), mean.dtype)
    slope_before[:] = zero
    for i in range(index.shape[0]):
        g0 = slope_after[i // LANES, 0, i % LANES]
        g1 = slope_after[i // LANES, 1, i % LANES]
        dA[0, 0] += g0 * mean[i, 0]
        dA[0, 1] += g0 * mean[i, 1]
        dA[1, 0] += g1 * mean[i, 0]
        dA[1, 1] += g1 * mean[i, 1]
        own = index[i, read]
        slope_before[own // LANES, 0, own % LANES] += g0
        slope_before[own // LANES, 1, own % LANES] += g1
        m0 = (A[0, 0] * g0 + A[1, 0] * g1) * share
        m1 = (A[0, 1] * g0 + A[1, 1] * g1) * share
        for k in range(index.shape[1]):
            tile, lane = index[i, k] // LANES, index[i, k] % LANES
            slope_before[tile, 0, lane] += m0
            slope_before[tile, 1, lane] += m1
    for k in range(WV.shape[0]):
        for r in range(2):
            dWO[r, k] += dA[r, 0] * WV[k, 0] + dA[r, 1] * WV[k, 1]
            dWV[k, r] += WO[0, k] * dA[0, r] + WO[1, k] * dA[1, r]


@numba.njit(inline="always")
def cross_entropy(stream, E_out, labels, slope, dE_out):
    """(mean loss, share of right answers) of logits E_out·x; slope ← ∂loss/∂x and dE_out += ∂loss/∂E_out."""
    N, C = len(labels), E_out.shape[0]
    logits = np.empty(C, np.float64)
    loss = 0.0
    right = 0
    for i in range(N):
        x0, x1 = stream[i // LANES, 0, i % LANES], stream[i // LANES, 1, i % LANES]
        top = -np.inf
        best = 0
        for c in range(C):
            logits[c] = E_out[c, 0] * x0 + E_out[c, 1] * x1
            if logits[c] > top:
                top = logits[c]
                best = c
        loss += top - logits[labels[i]]  # before exp, which may round a hopeless answer to zero
        total = 0.0
        for c in range(C):
            logits[c] = np.exp(logits[c] - top)
            total += logits[c]
        loss += np.log(total)
        right += best == labels[i]
        g0 = g1 = 0.0
        for c in range(C):
            d = (logits[c] / total - (1.0 if c == labels[i] else 0.0)) / N
            dE_out[c, 0] += d * x0
            dE_out[c, 1] += d * x1
            g0 += d * E_out[c, 0]
            g1 += d * E_out[c, 1]
        slope[i // LANES, 0, i % LANES] = g0
        slope[i // LANES, 1, i % LANES] = g1
    return loss / N, right / N


@numba.njit(inline="always")
def mean_square(stream, E_out, labels, slope, dE_out):
    """(mean squared error, share of right signs) of the one output E_out·x; gradients as in `cross_entropy`."""
    N = len(labels)
    loss = 0.0
    right = 0
    for i in range(N):
        x0, x1 = stream[i // LANES, 0, i % LANES], stream[i // LANES, 1, i % LANES]
        answer = E_out[0, 0] * x0 + E_out[0, 1] * x1
        error = np.float64(answer) - labels[i]
        loss += error * error
        right += (answer > 0) == (labels[i] > 0)
        d = 2 * error / N
        dE_out[0, 0] += d * x0
        dE_out[0, 1] += d * x1
        slope[i // LANES, 0, i % LANES] = d * E_out[0, 0]
        slope[i // LANES, 1, i % LANES] = d * E_out[0, 1]
    return loss / N, right / N
