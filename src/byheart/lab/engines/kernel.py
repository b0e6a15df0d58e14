"""The fast engine for eq. (165): any width, attention and labels, in compiled loops on one core.

The models are so narrow (m = 2 in the paper) that a library call per layer is nearly all overhead. Four things make
this engine fast, none of which changes the mathematics:
- F1 and E_in look at one token at a time, so a word that occurs a hundred times is computed once;
- only tokens that are read leave the attention layer, so with one label per sequence F2 sees N tokens and not N·n;
- a tile of `LANES` tokens runs through every block of a stack while it sits in the first-level cache, and the compiler
  makes one vector instruction of eight lanes; hidden units are recomputed on the way back, not stored;
- whole epochs run in compiled code: forwards, backwards, AdamW, again, without coming back to Python in between.

    stack: (tiles, m, LANES) -> (tiles, m, LANES)        block: x ← x + W₂·relu(W₁x + b₁) + b₂      (eq. (3))

Token k is lane k % LANES of tile k // LANES. The streams between the blocks (the tape) are kept for all tiles where
they fit in `TAPE` bytes. Where they do not, one tile's tape is used for all and the tile runs forwards again on the
way back: a third more arithmetic. Every innermost loop runs over lanes with one weight in a register, and m = 2 is
written out, which is two to three times as fast as the loops for any m.

Uniform attention needs one mean per sequence and no table of n² shares. A score of softmax or hardmax belongs to a pair
of words, not of positions: all V² are computed once, with their exponentials, and a sequence looks its weights up.
Exponentials are taken below the largest score of a query over *all* words, in float64. Where a sequence contains no
word near it, so that the weights vanish, its own largest score is taken. Gradients are gathered for pairs of words too,
and pass through W_Q and W_K at the end.

    words X (V, m)      P = (X·W_Qᵀ)·(X·W_Kᵀ)ᵀ (V, V)      out of token q in a row: x_q + W_O·W_V·Σ_k p_k x_k

Losses are added up in float64, so that sums of thousands of small terms still show progress near the end of a run.

The parts are written into the whole before it is compiled (`inline="always"`): a part that is compiled separately may
be bound instead of the copy inside the whole, depending on which parts a process compiled and which came from the
cache, and the two add in different orders. A resumed run must repeat an uninterrupted one to the last bit. For the
same reason all of it is in one file: numba's cache looks for changes in the file of the whole alone.
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

# Tokens per tile. Tuned by hand: the stream of a tile is one kilobyte at m = 2.
LANES = 128
# Bytes of a stack's tape up to which all tiles keep theirs. Tuned by hand: half a gigabyte for both stacks.
TAPE = 1 << 28
# A sum of looked-up exponentials below this has lost its digits.
VANISHED = 1e-290
# Sums may be reordered, so that they run in vector lanes; NaN and infinity keep their meaning (a diverged run is seen).
FAST = {"reassoc", "contract", "arcp", "nsz"}
# None: numba then compiles averaging alone, in half the time.
_HARD = {"uniform": None, "softmax": False, "hardmax": True}


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
        dtype = np.dtype(dtype or (np.float64 if training.precision == "float64" else np.float32))
        start = dict(start or initial_uniform(model, problem, training.seed, identity=training.identity))
        if model.attention == "uniform":  # never used, and without gradient: the compiled loop has one shape
            start |= {name: np.zeros((model.s, model.m)) for name in ("WK", "WQ")}
        self.weights, self.gradient = Flat(start, dtype), Flat(start, dtype)
        vector = self.weights.vector
        paces = {name: np.full(w.shape, training.pace(name, model.blocks)) for name, w in start.items()}
        self.master = vector.copy()  # the optimizer's copy
        self.rounded = training.precision == "bfloat16"
        if self.rounded:
            round_weights(self.master, vector)
        else:
            self.master = vector
        moments = np.zeros_like(vector), np.zeros_like(vector)
        self.vectors = (vector, self.gradient.vector, *moments, Flat(paces, dtype).vector, self.master)

        index = problem.index.astype(np.int32)
        read = index if problem.labels.ndim == 2 else np.ascontiguousarray(index[:, problem.read : problem.read + 1])
        labels = np.ascontiguousarray(problem.labels, dtype=np.int64).reshape(-1)
        points, squared = _tiles(problem.points, dtype), problem.loss != CROSS_ENTROPY
        self.data = points, index, read, labels, squared
        self.hard = _HARD[model.attention]

        # of both stacks: inputs, outputs and slopes of all tokens, and the tape
        V, m = problem.tokens, model.m
        counts = [-(-tokens // LANES) for tokens in (V, read.size)]
        self.streams = tuple(tuple(np.zeros((tiles, m, LANES), dtype) for tiles in counts) for _ in range(3))
        tile = (model.blocks + 1) * m * LANES * dtype.itemsize
        kept = [tiles if tiles * tile <= TAPE else 1 for tiles in counts]
        self.tapes = tuple(np.zeros((tiles, model.blocks + 1, m, LANES), dtype) for tiles in kept)
        pairs = V if model.attention != "uniform" else 0
        self.room = (
            np.zeros((V, m), dtype),  # the words after F1
            np.zeros((V, m), dtype),  # and their slopes
            np.zeros((pairs, pairs)),  # scores
            np.zeros((pairs, pairs)),  # their exponentials
            np.zeros((pairs, pairs)),  # slopes of the scores
            np.zeros((read.size, m), dtype),  # sums Σ p_k x_k
        )

    def epochs(self, count: int) -> Curve:
        """Run `count` steps.

        Args:
            count: How many.

        Returns:
            (count, 2): loss and accuracy before each step.
        """
        plan = self.training
        curve = np.empty((count, 2))
        rates = np.array([plan.rate_at(self.step + i) for i in range(count)])
        constants = (plan.beta1, plan.beta2, plan.epsilon, plan.decay, plan.clip, self.rounded)
        views = _views(self.weights), _views(self.gradient)
        places = self.streams, self.tapes, self.room
        run_epochs(self.hard, self.data, *views, *places, self.vectors, self.step, rates, constants, curve)
        self.step += count
        return curve

    def learned(self) -> Weights:
        """Return the weights that the optimizer steps from: those of bfloat16 before they are rounded."""
        return self.weights.copy(self.master)


def _views(flat: Flat) -> tuple[Any, ...]:
    stacks = tuple(tuple(flat[f"{name}.{part}"] for part in ("W1", "b1", "W2", "b2")) for name in ("F1", "F2"))
    return flat["E_in"], stacks, *(flat[name] for name in ("WV", "WO", "WK", "WQ", "E_out"))


def _tiles(points: npt.NDArray[np.float64] | None, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Vectors (V, d) as (tiles, d, LANES), zeros beyond the last; (1, 0, 0) for unit vectors."""
    if points is None:
        return np.zeros((1, 0, 0), dtype)
    tiles = -(-len(points) // LANES)
    wide = np.zeros((tiles * LANES, points.shape[1]), dtype)
    wide[: len(points)] = points
    return np.ascontiguousarray(wide.reshape(tiles, LANES, -1).transpose(0, 2, 1))


@numba.njit(cache=True, nogil=True, fastmath=FAST)
def run_epochs(hard, data, weights, gradient, streams, tapes, room, vectors, step, rates, constants, curve):
    """One epoch per entry of `rates`; curve[i] ← (loss, accuracy) before step i.

    hard: whether attention takes the largest scores alone; None where it averages. data: points, index, the tokens that
    are read, labels, whether the error is squared. weights and gradient: E_in,
    (F1, F2) of W1, b1, W2, b2 each, WV, WO, WK, WQ, E_out. streams: inputs, outputs and slopes of both stacks.
    room: words and their slopes, scores, exponentials, slopes of scores, and sums of attention. vectors: the weights
    and the gradient as flat vectors, the two moments, the paces of the rate, and the weights that the optimizer steps
    from when they are not the same (bfloat16). constants: β₁, β₂, ε, the weight decay, the longest gradient (0: any),
    whether weights are rounded.
    """
    points, index, read, labels, squared = data
    E_in, F, WV, WO, WK, WQ, E_out = weights
    dE_in, dF, dWV, dWO, dWK, dWQ, dE_out = gradient
    source, out, slopes = streams
    X, dX, P, E, dP, mixed = room
    flat, slope, first, second, paces, master = vectors
    beta1, beta2, epsilon, decay, clip, rounded = constants
    dtype = tapes[0].dtype
    carried = np.empty((X.shape[1], LANES), dtype)
    h, d = np.empty(LANES, dtype), np.empty(LANES, dtype)
    dA = np.empty((X.shape[1], X.shape[1]))
    soft, used = np.zeros(index.shape[1]), np.zeros(index.shape[1])
    Q, K = np.empty((X.shape[0], WQ.shape[0])), np.empty((X.shape[0], WK.shape[0]))
    for i in range(len(rates)):
        slope[:] = 0
        dA[:] = 0
        A = product(WO, WV)
        embed(points, E_in, source[0])
        # A loop over the stacks: each part is written into the whole once, and compiled in half the time.
        for stack in range(2):
            stack_forward(source[stack], tapes[stack], h, F[stack], out[stack])
            if stack == 0:
                rows_of(out[0], X)
                if hard is None:
                    average(X, index, read, A, mixed, source[1])
                else:
                    times(X, WQ, Q)
                    times(X, WK, K)
                    scores_of(Q, K, P, E)
                    attend(hard, X, index, read, P, E, A, mixed, source[1], soft, used)
        curve[i] = score(out[1], E_out, labels, squared, slopes[1], dE_out)
        for back in range(2):
            stack = 1 - back
            stack_backward(source[stack], tapes[stack], carried, h, d, F[stack], dF[stack], slopes[stack])
            if stack == 1:
                if hard is None:
                    average_backward(slopes[1], index, read, A, mixed, dX, dA)
                else:
                    attend_backward(hard, slopes[1], X, index, read, P, E, A, mixed, dX, dP, dA, soft, used)
                    scores_backward(X, Q, K, WQ, WK, dP, dX, dWQ, dWK)
                product_backward(WO, WV, dA, dWO, dWV)
                tiles_of(dX, slopes[0])
        embed_backward(points, slopes[0], dE_in)
        if clip > 0:
            shorten(slope, clip)
        adamw(master, slope, first, second, paces, step + i + 1, rates[i], beta1, beta2, epsilon, decay)
        if rounded:
            round_weights(master, flat)


@numba.njit(inline="always", fastmath=FAST)
def stack_forward(source, tapes, h, F, out):
    """out ← F(source), tile by tile."""
    for tile in range(source.shape[0]):
        tape = tapes[tile if tapes.shape[0] > 1 else 0]
        tape[0] = source[tile]
        tile_forward(tape, F[0], F[1], F[2], F[3], h)
        out[tile] = tape[-1]


@numba.njit(inline="always", fastmath=FAST)
def stack_backward(source, tapes, carried, h, d, F, dF, slope):
    """Add to dF; `slope` enters as ∂loss/∂F(source) and leaves as ∂loss/∂source."""
    for tile in range(source.shape[0]):
        tape = tapes[tile if tapes.shape[0] > 1 else 0]
        if tapes.shape[0] < source.shape[0]:
            tape[0] = source[tile]
            tile_forward(tape, F[0], F[1], F[2], F[3], h)
        if tape.shape[1] == 2:
            pair_backward(tape, slope[tile], carried, F[0], F[1], F[2], dF[0], dF[1], dF[2], dF[3])
        else:
            tile_backward(tape, slope[tile], carried, h, d, F[0], F[1], F[2], dF[0], dF[1], dF[2], dF[3])


@numba.njit(inline="always", fastmath=FAST)
def tile_forward(tape, W1, b1, W2, b2, h):
    """Fill tape[1:] from tape[0]; tape (L+1, m, LANES), W1 (L, q, m), W2 (L, m, q)."""
    zero = tape.dtype.type(0)  # a plain 0 would lift float32 to float64
    pair = tape.shape[1] == 2
    for block in range(W1.shape[0]):
        x, y = tape[block], tape[block + 1]
        for r in range(W1.shape[2]):
            c = b2[block, r]
            for t in range(LANES):
                y[r, t] = x[r, t] + c
        for j in range(W1.shape[1]):
            if pair:
                w0, w1, b = W1[block, j, 0], W1[block, j, 1], b1[block, j]
                u0, u1 = W2[block, 0, j], W2[block, 1, j]
                for t in range(LANES):
                    z = w0 * x[0, t] + w1 * x[1, t] + b
                    z = zero if z < zero else z  # a NaN passes
                    y[0, t] += u0 * z
                    y[1, t] += u1 * z
                continue
            hidden_unit(x, W1[block, j], b1[block, j], h)
            for t in range(LANES):
                h[t] = zero if h[t] < zero else h[t]
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
def pair_backward(tape, g, carried, W1, b1, W2, dW1, db1, dW2, db2):
    """`tile_backward` with m = 2 written out."""
    zero = tape.dtype.type(0)
    for block in range(W1.shape[0] - 1, -1, -1):
        x = tape[block]
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
def tile_backward(tape, g, carried, h, d, W1, b1, W2, dW1, db1, dW2, db2):
    """Add the gradients of the weights; g (m, LANES) enters as ∂loss/∂output and leaves as ∂loss/∂input."""
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
    """dE_in += ∂loss/∂E_in, where `slope` (tiles, m, LANES) is ∂loss/∂(E_in·points)."""
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


@numba.njit(inline="always", fastmath=FAST)
def product(WO, WV):
    """W_O·W_V, (m, m), by hand: linking a library for it costs seconds of compilation."""
    A = np.zeros((WO.shape[0], WV.shape[1]), WO.dtype)
    for k in range(WV.shape[0]):
        for r in range(WO.shape[0]):
            for c in range(WV.shape[1]):
                A[r, c] += WO[r, k] * WV[k, c]
    return A


@numba.njit(inline="always")
def product_backward(WO, WV, dA, dWO, dWV):
    """The way back through `product`; adds to dWO and dWV."""
    for k in range(WV.shape[0]):
        for r in range(len(dA)):
            for c in range(len(dA)):
                dWO[r, k] += dA[r, c] * WV[k, c]
                dWV[k, c] += WO[r, k] * dA[r, c]


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
def weigh(hard, own, row, P, E, soft, used):
    """The weights of a token in its row: `used` on the way there, `soft` for the slopes (they differ for hardmax)."""
    n = len(row)
    total = 0.0
    top = -np.inf
    for k in range(n):
        soft[k] = E[own, row[k]]
        total += soft[k]
        top = max(top, P[own, row[k]])
    if not total > VANISHED:  # and for NaN
        total = 0.0
        for k in range(n):
            soft[k] = np.exp(P[own, row[k]] - top)
            total += soft[k]
    largest = 0
    for k in range(n):
        soft[k] /= total
        largest += P[own, row[k]] == top
    for k in range(n):
        used[k] = (P[own, row[k]] == top) / largest if hard else soft[k]


@numba.njit(inline="always", fastmath=FAST)
def average(X, index, read, A, mixed, after):
    """Uniform attention, eq. (39): after ← x_q + A·mean of the row for every token q that is read."""
    m, n = X.shape[1], index.shape[1]
    for i in range(index.shape[0]):
        for a in range(read.shape[1]):
            place = i * read.shape[1] + a
            for r in range(m):
                if a:  # the mean is the same for all tokens of a row
                    mixed[place, r] = mixed[place - 1, r]
                    continue
                total = X.dtype.type(0)
                for k in range(n):
                    total += X[index[i, k], r]
                mixed[place, r] = total / X.dtype.type(n)
            add_image(X[read[i, a]], A, mixed[place], after, place)


@numba.njit(inline="always", fastmath=FAST)
def average_backward(slope, index, read, A, mixed, dX, dA):
    """The way back through `average`: overwrites dX, adds to dA."""
    m, n = dX.shape[1], index.shape[1]
    dX[:] = 0
    back = np.empty(m, dX.dtype)
    for i in range(index.shape[0]):
        back[:] = 0
        for a in range(read.shape[1]):
            place = i * read.shape[1] + a
            for r in range(m):
                g = slope[place // LANES, r, place % LANES]
                dX[read[i, a], r] += g
                for c in range(m):
                    dA[r, c] += g * mixed[place, c]
                    back[c] += A[r, c] * g
        for r in range(m):
            each = back[r] / dX.dtype.type(n)
            for k in range(n):
                dX[index[i, k], r] += each


@numba.njit(inline="always", fastmath=FAST)
def add_image(x, A, mixed, after, place):
    """Token `place` of `after` ← x + A·mixed."""
    for r in range(len(A)):
        value = x[r]
        for c in range(len(A)):
            value += A[r, c] * mixed[c]
        after[place // LANES, r, place % LANES] = value


@numba.njit(inline="always", fastmath=FAST)
def attend(hard, X, index, read, P, E, A, mixed, after, soft, used):
    """after ← x_q + A·Σ p_k x_k for every token q that is read; `mixed` keeps the sums."""
    for i in range(index.shape[0]):
        for a in range(read.shape[1]):
            place, own = i * read.shape[1] + a, read[i, a]
            weigh(hard, own, index[i], P, E, soft, used)
            mixed[place] = 0
            for k in range(index.shape[1]):
                for r in range(X.shape[1]):
                    mixed[place, r] += used[k] * X[index[i, k], r]
            add_image(X[own], A, mixed[place], after, place)


@numba.njit(inline="always", fastmath=FAST)
def attend_backward(hard, slope, X, index, read, P, E, A, mixed, dX, dP, dA, soft, used):
    """The way back through `attend`: overwrites dX and dP, adds to dA."""
    m, n = X.shape[1], index.shape[1]
    dX[:] = 0
    dP[:] = 0
    back, turns = np.empty(m), np.empty(n)
    for i in range(index.shape[0]):
        for a in range(read.shape[1]):
            place, own = i * read.shape[1] + a, read[i, a]
            back[:] = 0
            for r in range(m):
                g = slope[place // LANES, r, place % LANES]
                dX[own, r] += g
                for c in range(m):
                    dA[r, c] += g * mixed[place, c]
                    back[c] += A[r, c] * g
            weigh(hard, own, index[i], P, E, soft, used)
            mean = 0.0
            for k in range(n):
                turn = 0.0
                for r in range(m):
                    dX[index[i, k], r] += used[k] * back[r]
                    turn += back[r] * X[index[i, k], r]
                turns[k] = turn
                mean += soft[k] * turn
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
            loss += top - logits[labels[i]]  # before exp, which may round a hopeless answer to zero
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


@numba.njit
def round_weights(master, weights):
    """weights ← master with eight significant bits, to nearest and to even: the numbers of bfloat16, in float32."""
    bits, out = master.view(np.uint32), weights.view(np.uint32)
    for k in range(len(bits)):
        out[k] = (bits[k] + np.uint32(0x7FFF) + ((bits[k] >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)


@numba.njit(inline="always")
def shorten(gradient, longest):
    """Scale the gradient down to length `longest`, as torch.nn.utils.clip_grad_norm_ does."""
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
