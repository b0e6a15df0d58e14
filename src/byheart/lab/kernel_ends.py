"""What stands around the blocks in the fast engine: uniform attention, the losses and AdamW, all in compiled loops.

Streams are tiles of `LANES` tokens, see `byheart.lab.kernel`: token k is lane k % LANES of tile k // LANES.
"""

from __future__ import annotations

import numba
import numpy as np

from byheart.lab.kernel import _FAST, LANES


@numba.njit(cache=True, fastmath=_FAST, nogil=True)
def attend_forward(before, index, read, WV, WO, mean, after):
    """Uniform attention, eq. (39), at the one token that is read: after ← x_read + W_O·W_V·mean of the sequence.

    before: (tiles, 2, LANES), the distinct tokens; index: (N, n), which of them a sequence holds; after: (tiles, 2,
    LANES), one lane per sequence; mean: (N, 2), kept for the way back.
    """
    zero = before.dtype.type(0)
    share = before.dtype.type(1) / before.dtype.type(index.shape[1])
    A = WO @ WV
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


@numba.njit(cache=True, fastmath=_FAST, nogil=True)
def attend_backward(slope_after, index, read, WV, WO, mean, slope_before, dWV, dWO):
    """The way back through `attend_forward`; slope_before is overwritten, dWV and dWO are added to."""
    zero = mean.dtype.type(0)
    share = mean.dtype.type(1) / mean.dtype.type(index.shape[1])
    A = WO @ WV
    dA = np.zeros_like(A)
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
    dWO += dA @ WV.T
    dWV += WO.T @ dA


@numba.njit(cache=True, nogil=True)
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
        total = 0.0
        for c in range(C):
            logits[c] = np.exp(logits[c] - top)
            total += logits[c]
        loss -= np.log(logits[labels[i]] / total)
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


@numba.njit(cache=True, nogil=True)
def mean_square(stream, E_out, targets, slope, dE_out):
    """(mean squared error, share of right signs) of the one output E_out·x; gradients as in `cross_entropy`."""
    N = len(targets)
    loss = 0.0
    right = 0
    for i in range(N):
        x0, x1 = stream[i // LANES, 0, i % LANES], stream[i // LANES, 1, i % LANES]
        answer = E_out[0, 0] * x0 + E_out[0, 1] * x1
        error = np.float64(answer) - targets[i]
        loss += error * error
        right += (answer > 0) == (targets[i] > 0)
        d = 2 * error / N
        dE_out[0, 0] += d * x0
        dE_out[0, 1] += d * x1
        slope[i // LANES, 0, i % LANES] = d * E_out[0, 0]
        slope[i // LANES, 1, i % LANES] = d * E_out[0, 1]
    return loss / N, right / N


@numba.njit(cache=True, nogil=True)
def adamw(weights, gradient, first, second, step, rate, beta1, beta2, epsilon, decay):
    """One step of AdamW (Loshchilov and Hutter, Algorithm 2) on flat vectors, as torch.optim.AdamW does it."""
    stride = weights.dtype.type(rate / (1 - beta1**step))
    scale = weights.dtype.type(1 / np.sqrt(1 - beta2**step))
    fresh1, fresh2, kept2 = weights.dtype.type(1 - beta1), weights.dtype.type(1 - beta2), weights.dtype.type(beta2)
    shrink, tiny = weights.dtype.type(1 - rate * decay), weights.dtype.type(epsilon)
    for k in range(len(weights)):
        g = gradient[k]
        first[k] += (g - first[k]) * fresh1
        second[k] = second[k] * kept2 + g * g * fresh2
        weights[k] = weights[k] * shrink - stride * first[k] / (np.sqrt(second[k]) * scale + tiny)
