"""Whole epochs in compiled code: forwards, backwards, AdamW, again, without coming back to Python in between.

The parts are written into the whole before it is compiled (`inline="always"`): a part that is compiled on its own may
be bound in place of the copy inside the whole, depending on what a process compiled and what it loaded from the cache,
and the two add in different orders. A resumed run must repeat an uninterrupted one to the last bit.
"""

from __future__ import annotations

import numba
import numpy as np

from byheart.lab.engines.kernel import FAST, blocks_backward, blocks_forward
from byheart.lab.engines.kernel_ends import (
    attend_backward,
    attend_forward,
    cross_entropy,
    embed_backward,
    embed_forward,
    mean_square,
)


@numba.njit(cache=True, nogil=True, fastmath=FAST)
def run_epochs(data, weights, gradient, streams, vectors, step, rates, constants, curve):
    """One epoch per entry of `rates`; curve[i] ← (loss, accuracy) before step i.

    data: points, index, read, labels, squared. weights and gradient: E_in, F1, WV, WO, F2, E_out, where F1 and F2 are
    W1, b1, W2, b2. streams: the tapes and slopes of F1 and F2, and the means of the sequences. vectors: the weights
    and the gradient as flat vectors, and the two moments; constants: β₁, β₂, ε, the weight decay
    and the longest gradient (0: any).
    """
    points, index, read, labels, squared = data
    E_in, F1, WV, WO, F2, E_out = weights
    dE_in, dF1, dWV, dWO, dF2, dE_out = gradient
    tape1, slope1, tape2, slope2, mean = streams
    flat, slope, first, second = vectors
    beta1, beta2, epsilon, decay, clip = constants
    for i in range(len(rates)):
        slope[:] = 0
        embed_forward(points, E_in, tape1)
        blocks_forward(tape1, F1[0], F1[1], F1[2], F1[3])
        attend_forward(tape1[:, -1], index, read, WV, WO, mean, tape2[:, 0])
        blocks_forward(tape2, F2[0], F2[1], F2[2], F2[3])
        if squared:
            curve[i] = mean_square(tape2[:, -1], E_out, labels, slope2, dE_out)
        else:
            curve[i] = cross_entropy(tape2[:, -1], E_out, labels, slope2, dE_out)
        blocks_backward(tape2, slope2, F2[0], F2[1], F2[2], dF2[0], dF2[1], dF2[2], dF2[3])
        attend_backward(slope2, index, read, WV, WO, mean, slope1, dWV, dWO)
        blocks_backward(tape1, slope1, F1[0], F1[1], F1[2], dF1[0], dF1[1], dF1[2], dF1[3])
        embed_backward(points, slope1, dE_in)
        if clip > 0:
            shorten(slope, clip)
        adamw(flat, slope, first, second, step + i + 1, rates[i], beta1, beta2, epsilon, decay)


@numba.njit(inline="always")
def shorten(gradient, longest):
    """Scales the gradient down to length `longest`, as torch.nn.utils.clip_grad_norm_ does."""
    total = 0.0
    for g in gradient:
        total += np.float64(g) * g
    factor = gradient.dtype.type(longest / (np.sqrt(total) + 1e-6))
    if factor < 1:
        for k in range(len(gradient)):
            gradient[k] *= factor


@numba.njit(inline="always")
def adamw(weights, gradient, first, second, step, rate, beta1, beta2, epsilon, decay):
    """One step of AdamW (Loshchilov and Hutter, Algorithm 2) on flat vectors, as torch.optim.AdamW does."""
    stride = weights.dtype.type(rate / (1 - beta1**step))
    scale = weights.dtype.type(1 / np.sqrt(1 - beta2**step))
    fresh1, fresh2, kept2 = weights.dtype.type(1 - beta1), weights.dtype.type(1 - beta2), weights.dtype.type(beta2)
    shrink, tiny = weights.dtype.type(1 - rate * decay), weights.dtype.type(epsilon)
    for k in range(len(weights)):
        g = gradient[k]
        first[k] += (g - first[k]) * fresh1
        second[k] = second[k] * kept2 + g * g * fresh2
        weights[k] = weights[k] * shrink - stride * first[k] / (np.sqrt(second[k]) * scale + tiny)
