"""The inner loop of training: residual blocks of width two, forwards and backwards, tile by tile.

The models of KS25's eq. (165) are so narrow (m = 2) that a library call per layer is nearly all overhead. Here a tile
of `LANES` tokens runs through every block while it sits in the first-level cache, and the compiler makes one vector
instruction of eight lanes. Nothing is stored but the stream between blocks (the tape); hidden units are recomputed on
the way back.

    stream of a tile: (blocks + 1, 2, LANES)      block: x ← x + W₂·relu(W₁x + b₁) + b₂      (eq. (3))

Every function works in float32 and float64; float64 is for tests against the readable model.

Recomputing a unit takes two multiplications, reading it back would take a trip to memory. Per token and unit the way
forwards takes four multiplications and the way back ten; per token and block memory sees two numbers. The innermost
loop always runs over lanes, with the weights of one unit in registers: hence the order of the loops.
"""

from __future__ import annotations

import numba
import numpy as np

LANES = 128  # tokens per tile: the stream of a tile is one kilobyte

# Sums may be reordered, so that they run in vector lanes; NaN and infinity keep their meaning (a diverged run is seen).
FAST = {"reassoc", "contract", "arcp", "nsz"}


@numba.njit(inline="always", fastmath=FAST)
def blocks_forward(tape, W1, b1, W2, b2):
    """Fills tape[tile, 1:] from tape[tile, 0]. Shapes: tape (tiles, L+1, 2, LANES), W1 (L, q, 2), W2 (L, 2, q)."""
    zero = tape.dtype.type(0)  # a plain 0 would lift float32 to float64
    for tile in range(tape.shape[0]):
        for block in range(W1.shape[0]):
            x, y = tape[tile, block], tape[tile, block + 1]
            c0, c1 = b2[block, 0], b2[block, 1]
            for t in range(LANES):
                y[0, t] = x[0, t] + c0
                y[1, t] = x[1, t] + c1
            for j in range(W1.shape[1]):
                w0, w1, b = W1[block, j, 0], W1[block, j, 1], b1[block, j]
                u0, u1 = W2[block, 0, j], W2[block, 1, j]
                for t in range(LANES):
                    z = w0 * x[0, t] + w1 * x[1, t] + b
                    h = zero if z < zero else z  # a NaN passes
                    y[0, t] += u0 * h
                    y[1, t] += u1 * h


@numba.njit(inline="always", fastmath=FAST)
def blocks_backward(tape, slope, W1, b1, W2, dW1, db1, dW2, db2):
    """Adds the gradients of the weights to dW1 … db2; `slope` (tiles, 2, LANES) enters as ∂loss/∂output and leaves
    as ∂loss/∂input."""
    zero = tape.dtype.type(0)
    carried = np.empty((2, LANES), tape.dtype)
    for tile in range(tape.shape[0]):
        g = slope[tile]
        for block in range(W1.shape[0] - 1, -1, -1):
            x = tape[tile, block]
            s0 = s1 = zero
            for t in range(LANES):
                s0 += g[0, t]
                s1 += g[1, t]
                carried[0, t] = g[0, t]
                carried[1, t] = g[1, t]
            db2[block, 0] += s0
            db2[block, 1] += s1
            for j in range(W1.shape[1]):
                w0, w1, b = W1[block, j, 0], W1[block, j, 1], b1[block, j]
                u0, u1 = W2[block, 0, j], W2[block, 1, j]
                a0 = a1 = ab = v0 = v1 = zero
                for t in range(LANES):
                    z = w0 * x[0, t] + w1 * x[1, t] + b
                    h = zero if z < zero else z
                    d = u0 * g[0, t] + u1 * g[1, t]
                    d = d if z > zero else zero  # at the kink the slope is 0, as in torch
                    v0 += h * g[0, t]
                    v1 += h * g[1, t]
                    a0 += d * x[0, t]
                    a1 += d * x[1, t]
                    ab += d
                    carried[0, t] += w0 * d
                    carried[1, t] += w1 * d
                dW1[block, j, 0] += a0
                dW1[block, j, 1] += a1
                db1[block, j] += ab
                dW2[block, 0, j] += v0
                dW2[block, 1, j] += v1
            for t in range(LANES):
                g[0, t] = carried[0, t]
                g[1, t] = carried[1, t]
