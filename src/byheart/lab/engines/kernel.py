"""The fast engine for eq. (165) with m = 2: compiled loops on one core, no library call per layer.

Three things make it fast, none of which changes the mathematics:
- F1 and E_in look at one token at a time, so a word that occurs a hundred times is computed once;
- only the token that is read leaves the attention layer, so F2 sees N tokens and not N·n;
- the blocks run tile by tile in the first-level cache, and whole epochs in compiled code, so small problems do not wait
  for Python.

The inner loop: residual blocks of width two, forwards and backwards, tile by tile. The models of KS25's eq. (165) are
so narrow (m = 2) that a library call per layer is nearly all overhead. Here a tile of `LANES` tokens runs through every
block while it sits in the first-level cache, and the compiler makes one vector instruction of eight lanes. Nothing is
stored but the stream between blocks (the tape); hidden units are recomputed on the way back.

    stream of a tile: (blocks + 1, 2, LANES)      block: x ← x + W₂·relu(W₁x + b₁) + b₂      (eq. (3))

Every function works in float32 and float64; float64 is for tests against the readable model.

Recomputing a unit needs two multiplications, reading it back would need a trip to memory. Per token and unit the
forward pass needs four multiplications and the backward pass ten; per token and block memory sees two numbers. The
innermost loop always runs over lanes, with the weights of one unit in registers: hence the order of the loops.

Around the blocks: E_in, uniform attention and the losses, in compiled loops too.

Streams are tiles of `LANES` tokens: token k is lane k % LANES of tile k // LANES.

Distinct tokens are embedded once, sequences point at them. Attention is read at one token only, so it needs one mean
per sequence and no table of n² shares; W_O and W_V act through their 2 × 2 product. Losses are added up in float64, so
that sums of thousands of small terms still show progress near the end of a run.

Whole epochs run in compiled code: forwards, backwards, AdamW, again, without coming back to Python in between. The
parts are written into the whole before it is compiled (`inline="always"`): a part that is compiled on its own may be
bound instead of the copy inside the whole, depending on which parts a process compiled and which came from the cache,
and the two add in different orders. A resumed run must repeat an uninterrupted one to the last bit.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from byheart.lab.config import Training, Uniform
from byheart.lab.engines.weights import Flat, Weights, initial_uniform
from byheart.lab.problem import CROSS_ENTROPY, Sequences

Curve = npt.NDArray[np.float64]  # (epochs, 2): loss and accuracy


class KernelEngine:
    """One training run; `epochs(k)` runs k steps and returns (loss, accuracy) before each."""

    def __init__(
        self,
        problem: Sequences,
        model: Uniform,
        training: Training,
        dtype: npt.DTypeLike | None = None,
        start: Weights | None = None,
    ) -> None:
        self.training, self.step = training, 0
        dtype = dtype or (np.float64 if training.precision == "float64" else np.float32)
        start = start or initial_uniform(model, problem, training.seed, identity=training.identity)
        self.weights, self.gradient = Flat(start, dtype), Flat(start, dtype)
        self.vectors = vectors_of(self.weights, self.gradient, training, model.blocks)
        self.master = self.weights.vector.copy()  # the optimizer's copy
        self.rounded = training.precision == "bfloat16"
        if self.rounded:
            round_weights(self.master, self.weights.vector)
        else:
            self.master = self.weights.vector
        self.data = batch_of(problem, dtype)
        self.streams = (
            *_streams(problem.tokens, model.blocks, dtype),
            *_streams(problem.N, model.blocks, dtype),
            np.zeros((problem.N, 2), dtype),
        )

    def epochs(self, count: int) -> Curve:
        plan = self.training
        curve = np.empty((count, 2))
        rates = np.array([plan.rate_at(self.step + i) for i in range(count)])
        constants = (plan.beta1, plan.beta2, plan.epsilon, plan.decay, plan.clip, self.rounded)
        views = views_of(self.weights), views_of(self.gradient)
        vectors = (*self.vectors, self.master)
        run_epochs(self.data, *views, self.streams, vectors, self.step, rates, constants, curve)
        self.step += count
        return curve

    def learned(self) -> Weights:
        """The weights that the optimizer steps from: those of bfloat16 before they are rounded."""
        return self.weights.copy(self.master)


def vectors_of(weights: Flat, gradient: Flat, training: Training, blocks: int) -> tuple[Any, ...]:
    """Weights and gradient as flat vectors, Adam's moments, and the factor of each weight's rate."""
    moments = np.zeros_like(weights.vector), np.zeros_like(weights.vector)
    paces = {name: np.full(w.shape, training.pace(name, blocks)) for name, w in weights.parts.items()}
    return weights.vector, gradient.vector, *moments, Flat(paces, weights.vector.dtype).vector


def batch_of(problem: Sequences, dtype: npt.DTypeLike) -> tuple[Any, ...]:
    """points in tiles, index, the position that is read, labels, whether the error is squared."""
    index, labels = problem.index.astype(np.int32), problem.labels.astype(np.int64)
    return _tiles(problem.points, dtype), index, problem.read, labels, problem.loss != CROSS_ENTROPY


def views_of(flat: Flat) -> tuple[Any, ...]:
    stacks = {name: tuple(flat[f"{name}.{part}"] for part in ("W1", "b1", "W2", "b2")) for name in ("F1", "F2")}
    return flat["E_in"], stacks["F1"], flat["WV"], flat["WO"], stacks["F2"], flat["E_out"]


def _streams(tokens: int, blocks: int, dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """A tape (tiles, blocks + 1, 2, LANES) and the slopes of its last row. Lanes beyond the data stay without slope."""
    tiles = -(-tokens // LANES)
    return np.zeros((tiles, blocks + 1, 2, LANES), dtype), np.zeros((tiles, 2, LANES), dtype)


def _tiles(points: npt.NDArray[np.float64] | None, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Vectors (V, d) as (tiles, d, LANES), zeros beyond the last; (1, 0, 0) for unit vectors."""
    if points is None:
        return np.zeros((1, 0, 0), dtype)
    tiles = -(-len(points) // LANES)
    wide = np.zeros((tiles * LANES, points.shape[1]), dtype)
    wide[: len(points)] = points
    return np.ascontiguousarray(wide.reshape(tiles, LANES, -1).transpose(0, 2, 1))


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

    before: (tiles, 2, LANES), the distinct tokens; index: (N, n), which of them a sequence contains; after: (tiles, 2,
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
    """(mean loss, share of correct answers) of logits E_out·x; slope ← ∂loss/∂x and dE_out += ∂loss/∂E_out."""
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
    """(mean squared error, share of correct signs) of the one output E_out·x; gradients as in `cross_entropy`."""
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


@numba.njit(cache=True, nogil=True, fastmath=FAST)
def run_epochs(data, weights, gradient, streams, vectors, step, rates, constants, curve):
    """One epoch per entry of `rates`; curve[i] ← (loss, accuracy) before step i.

    data: points, index, read, labels, squared. weights and gradient: E_in, F1, WV, WO, F2, E_out, where F1 and F2 are
    W1, b1, W2, b2. streams: the tapes and slopes of F1 and F2, and the means of the sequences. vectors: the weights
    and the gradient as flat vectors, the two moments, the paces of the rate, and the weights that the optimizer steps
    from when they are not the same (bfloat16); constants: β₁, β₂, ε, the weight
    decay, the longest gradient (0: any), whether weights are rounded.
    """
    points, index, read, labels, squared = data
    E_in, F1, WV, WO, F2, E_out = weights
    dE_in, dF1, dWV, dWO, dF2, dE_out = gradient
    tape1, slope1, tape2, slope2, mean = streams
    flat, slope, first, second, paces, master = vectors
    beta1, beta2, epsilon, decay, clip, rounded = constants
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
        adamw(master, slope, first, second, paces, step + i + 1, rates[i], beta1, beta2, epsilon, decay)
        if rounded:
            round_weights(master, flat)


@numba.njit
def round_weights(master, weights):
    """weights ← master with eight significant bits, to nearest and to even: the numbers of bfloat16, in float32."""
    bits, out = master.view(np.uint32), weights.view(np.uint32)
    for k in range(len(bits)):
        out[k] = (bits[k] + np.uint32(0x7FFF) + ((bits[k] >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)


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
def adamw(weights, gradient, first, second, paces, step, rate, beta1, beta2, epsilon, decay):
    """One step of AdamW (Loshchilov and Hutter, Algorithm 2) on flat vectors, as torch.optim.AdamW does."""
    stride = weights.dtype.type(rate / (1 - beta1**step))
    scale = weights.dtype.type(1 / np.sqrt(1 - beta2**step))
    fresh1, fresh2, kept2 = weights.dtype.type(1 - beta1), weights.dtype.type(1 - beta2), weights.dtype.type(beta2)
    shrink, tiny = weights.dtype.type(1 - rate * decay), weights.dtype.type(epsilon)
    for k in range(len(weights)):
        g = gradient[k]
        first[k] += (g - first[k]) * fresh1
        second[k] = second[k] * kept2 + g * g * fresh2
        weights[k] = weights[k] * shrink - stride * paces[k] * first[k] / (np.sqrt(second[k]) * scale + tiny)
