"""Rules: how far one operation of an engine may be from the exact one. Every term is registered in `slack.py`.

No other module of the proof mentions a constant of the error model: a caller passes sizes and gets an error, or passes
an interval and gets a wider one. To add a rule, write a function here (what an engine may do, in one sentence),
register its terms, and add a check of each term to `tests/checkpoints/proof/test_slack.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from byheart.checkpoints.proof.slack import term
from byheart.checkpoints.proof.storage import (
    FREQUENCY_ERROR,
    FUNCTION_ERROR,
    OWN,
    TRIG_ERROR,
    U32,
    UNDERFLOW,
    Array,
    Interval,
    Storage,
    gamma,
)

SMALLEST = 2.0**-14  # the least normal number of float16


def own(size: Any) -> Any:
    """The checker's own float64 operations."""
    return term("own arithmetic", OWN * size)


def widened(lo: Array, hi: Array) -> Interval:
    """Ends that the checker computed itself."""
    return lo - own(np.abs(lo)), hi + own(np.abs(hi))


def dot(terms: Array, total: Array) -> Array:
    """A sum of `terms` products in float32, in any order; `total` is the sum of their absolute values."""
    return np.asarray(term("sum of a linear map", gamma(terms) * total) + underflow(terms))


def underflow(terms: Array | float) -> Any:
    """Products that are flushed to zero."""
    return term("underflow of products", UNDERFLOW * terms)


def partial_dot(terms: Array, size: Array, total: Array) -> Array:
    """A sum of products, whose exact value is at most `total`, of inputs that were kept in float32 after three
    roundings: by the norm's factor, its weight and its bias. That of the product is one of gamma's.

    Each of the n - 1 additions errs by u times its result, the sum of some of the terms. What some terms add up to is
    at most the larger of the positive and the negative terms' totals, (S + |total|) / 2 for the absolute sum S.
    """
    partial = (size + np.minimum(total, size)) / 2
    sums = term("sum of a unit", gamma(terms) * partial) * (1 + 2.0**-10)
    return np.asarray(sums + term("inputs of a sum", 3 * U32 * size) + own(1 + size) + underflow(terms))


def adapter_stores(whole: Array, added: Array, scale: float, wide: Array, times: Array, store: Storage) -> Array:
    """W x + scale B (A x), in which W x, A x, its multiple, B (A x) and its multiple may be stored, each by itself.

    `whole` and `added` bound both terms; `wide` is the absolute sum of each row of B, `times` how often the second term
    is rounded at most.
    """
    parts = store.unit * (whole + times * added) * (1 + 8 * store.unit)
    small = store.tiny * (3 + scale + (1 + scale) * wide) * (1 + 8 * store.unit)
    return np.asarray(term("stores of an adapter", parts + small))


def short(size: Array, step: Array, store: Storage) -> Array:
    """Whether all multiples of a power of two up to `size` are numbers of the type; float16 may flush smaller ones."""
    return np.asarray((size * store.unit <= step) & (step >= SMALLEST))


def kept_values(terms: Array, size: Array) -> Array:
    """Values of attention that are kept in float32, before the norm's factor: sums, and inputs of several roundings."""
    return dot(terms, size) + term("inputs of a value", 5 * U32 * size)


def kept_output(terms: Array, size: Array) -> Array:
    """Outputs of heads that are kept in float32, through the last matrix of attention."""
    return dot(terms, size) + term("inputs of an output", 3 * U32 * size)


def offset_error(size: Array) -> Array:
    """A bias that is added to values which are kept in float32."""
    return np.asarray(term("bias of a value", 4 * U32 * size))


def mean_error(count: int, size: Any) -> Any:
    """The mean of a vector, times its length; `size` is the sum of absolute values."""
    return term("mean of a norm", gamma(count) * size)


def inverse_root(least: Array, most: Array, count: int, eps: float, mean: Array | None) -> Interval:
    """1 / sqrt(mean square + eps) for a sum of squares in [least, most].

    With `mean` (the size of the mean that LayerNorm subtracts): the variance, in two passes or in one. In one pass,
    E[x^2] and the square of the mean both err by gamma times E[x^2] = variance + mean^2.
    """
    slack = gamma(count + 4)
    share = term("epsilon of a norm", 2.0**-23 * (1 + 2.0**-10))
    ends = []
    for total, sign in ((least, -1.0), (most, 1.0)):  # a smaller sum errs by less
        error = term("sum of squares", slack * total / count)
        if mean is not None:
            error = error + term("variance in one pass", slack * (total / count + 4 * mean**2))
        ends.append(np.maximum(total / count + sign * (error + underflow(1)), 0.0) + eps * (1 + sign * share))
    return root_of(ends[0], ends[1])


def root_of(low: Array, high: Array) -> Interval:
    """1 / sqrt of a number in [low, high]."""
    root = term("root of a norm", FUNCTION_ERROR)
    return 1 / np.sqrt(high) * (1 - root), 1 / np.sqrt(low) * (1 + root)


def norm_underflow(weight: Array, factor: float) -> Array:
    """x - mean, its product with the factor and that with the weight may be flushed to zero; in units of x."""
    share = np.divide(1.0, np.abs(weight), out=np.zeros_like(weight), where=weight != 0)
    return np.asarray(term("underflow of a norm", UNDERFLOW * (1 + (1 + share) / factor)))


def shared_store(size: Array, store: Storage) -> Array:
    """One store of a channel to which several parts add up, or a float32 that is flushed to zero."""
    return np.asarray(term("store of a shared channel", (store.unit + 2 * U32) * size + store.tiny + UNDERFLOW))


def shared_norm(size: Array, weight: Array, store: Storage) -> Array:
    """Up to three stores of a normed channel to which several parts add up; the first comes before the weight."""
    stores = 3 * store.unit * size * (1 + 4 * store.unit) + (2 + np.abs(weight)) * store.tiny
    return np.asarray(term("stores of a normed channel", stores))


def leak_error(leak: float, size: Array) -> Array:
    """A head that copies, where others than the copied place have at most `leak` of the exact weight.

    Rounding sums of the softmax and storing at most double twice what the copied place's weight lacks (1 is
    representable), and double each other weight. A sum to which a small term is added errs by at most that term.
    """
    return np.asarray(term("leak of a copy", 8 * leak * size) + term("softmax of a copy", FUNCTION_ERROR * size))


def mixture_error(places: int, size: Array, store: Storage, share: float = 1.0) -> Array:
    """A head that mixes `places` positions: sums of the softmax and of the values, exponentials, stored weights.

    All weights together are at most `share`, which a sink makes less than 1. A store errs by at most the weight itself.
    """
    weights = store.unit * share + min(places * store.tiny, share)
    sums = term("sums of a mixture", 2 * gamma(places + 4) * share * size)
    return np.asarray(
        sums + term("stored weights of a mixture", weights * size + store.tiny)
        + term("softmax of a mixture", (2 + 2.0**-7) * FUNCTION_ERROR * share * size)
    )  # fmt: skip


def softmax_share(low: Array, high: Array) -> Interval:
    """A softmax weight in [low, high], computed from sums of exponentials."""
    wide = term("share of a softmax", 4 * FUNCTION_ERROR)
    return low * (1 - wide), np.minimum(high * (1 + wide), 1.0)


def spilled(exact: float) -> float:
    """What the places that a head does not read weigh together, relative to the one that it reads."""
    return float(exact * (1 + term("exponentials of a head", 2 * FUNCTION_ERROR)))


def multiplier(scale: float) -> float:
    """A number of config.json as a float32 constant."""
    return float(term("multiplier", 2 * U32 * abs(float(np.float32(scale)))))


def summed_experts(sizes: Array, fired: Array, used: int, store: Storage) -> Array:
    """Partial sums over the chosen experts, by channel.

    An engine adds the experts' outputs one after the other, in any order, and may store every partial sum. The first
    sum adds to zero, the last one is the caller's. Each of the others errs by the type's unit of the partial sum, or by
    the smaller addend, since the partial sum before is a number of the type. With R the sum of all addends but the
    largest, the smaller addends sum to at most 2 R.

    Args:
        sizes: (experts, symbols, channels): bound of what each expert always adds, zero where it is not chosen.
        fired: (channels,): bound of what the one window adds that fires.
        used: How many experts serve a token.
        store: The type.
    """
    total, largest = sizes.sum(0), sizes.max(0)
    rest = (total - largest).max(0) + np.minimum(fired, largest.max(0))
    unit, second = store.unit + 2 * U32, 1 + 8 * store.unit
    steps = max(used - 2, 0)
    lost = np.minimum(steps * unit * (total.max(0) + fired), 2 * rest) * second + steps * store.tiny
    return np.asarray(term("partial sums of experts", lost if steps else np.zeros_like(fired)))


def rotation_error(first: Array, second: Array, store: Storage) -> Array:
    """Length of the error of a rotated pair (a, b), by what is stored.

    A pair turned by an angle is (a c - b s, a s + b c). Storing c, s and the four products moves it by at most 2 u
    times (|a c| + |b s|, |a s| + |b c|), whose length is at most |a| + |b|. Storing the two sums moves it by u times
    its length; but adding a small number to a stored one errs by at most the small one, so also by at most
    2 min(|a|, |b|). Second order: the factor 1 + 8 u.
    """
    u = store.unit + 2 * U32
    sums = np.minimum(u * np.hypot(first, second), 2 * np.minimum(first, second))
    stores = term("stores of a rotation", 2 * u * (first + second) + sums)
    return np.asarray(stores * (1 + 8 * u) + term("underflow of a rotation", 4 * store.tiny))


def angle_error(length: Any, theta: Array, size: Array) -> Array:
    """cos and sin at an angle that was rounded to float32, by their implementations, for a pair of length `size`.

    An angle that is off by x moves the pair by at most x times its length, errors of cos and sin by their own length.
    """
    rounded = term("rounding of an angle", length * theta * U32 * (1 + 2.0**-10))
    return np.asarray((rounded + term("cosine and sine", 1.5 * TRIG_ERROR)) * size)


def frequency_error(distance: Any, theta: Array) -> Any:
    """By how much an angle between two places is off, for an inverse frequency that is off."""
    return term("inverse frequency", FREQUENCY_ERROR * distance * theta)


def grid_error(slope: Any, step: float) -> Any:
    """A score between two distances of a grid, `step` apart, that moves by at most `slope` per place."""
    return term("grid of distances", slope * step / 2)


def score_sum(head_dim: int, size: Any) -> Any:
    """The float32 sum of a score's products."""
    return term("sum of a score", gamma(head_dim + 2) * size)


def score_stores(scale: float, store: Storage) -> tuple[float, float]:
    """Relative errors of a stored score and of a scaled query. A power of two scales without error; otherwise a score
    may be stored before and after scaling, or the query be scaled and stored."""
    exact = np.log2(scale) == np.rint(np.log2(scale))
    u = term("store of a score", store.unit + 2 * U32)
    return (u, 0.0) if exact else (2 * u, u)


def shifted_score(spread: Any, store: Storage) -> Any:
    """A score from which the largest one (of places and the sink) was subtracted, `spread` apart, stored."""
    return term("store of a shifted score", (store.unit + 2 * U32) * spread)


def absorbed_score(rank: int, size: Any, store: Storage) -> Any:
    """A score whose unrotated part is (query W) latent, W an up-projection, instead of query (W latent).

    `size` is sum |q| |W| |c| over all three. The product of query and projection is a float32 sum, which is stored;
    then comes the sum over the latent.
    """
    unit = store.unit + 2 * U32
    return term("absorbed score", (gamma(rank) + gamma(rank) + unit) * (1 + 4 * unit) * size)


def absorbed_value(size: Array, store: Storage) -> Array:
    """The mixed latents of a head, stored before they are projected to a value."""
    return np.asarray(term("store of a mixed latent", (store.unit + 2 * U32) * size + store.tiny))


def score_underflow(store: Storage) -> float:
    return float(term("underflow of a score", store.tiny))


def masked_score(total: float, store: Storage) -> float:
    """All roundings of a score at distance 0 together: rotations of query and key, stores, the sum."""
    u = store.unit + 2 * U32
    return float(term("score of a masked row", 8 * u * (1 + 8 * u) * total))


def padding_stores(count: int, size: Array, store: Storage) -> Array:
    """Some roundings of a number of a row of padding, one after the other."""
    unit = store.unit + 2 * U32
    return np.asarray(term("stores of a padding row", count * (unit * (1 + 8 * unit) * size + store.tiny)))


def padding_sum(terms: Array, total: Array) -> Array:
    """A linear map of a row of padding, before its result is stored."""
    return np.asarray(term("sum of a padding row", gamma(terms) * total))


def padding_floor(size: Array, store: Storage, stepwise: bool) -> Array:
    """What remains of an activation far below zero, times the other factor of its product. A chain of stored tensors
    leaves a store of tanh, times half of its argument."""
    return np.asarray(term("floor of a padding row", (6 * store.unit * stepwise + 2.0**-13) * size))


def padding_variance(count: int, square: float, mean: float) -> float:
    """By how much a variance that is computed in one pass may be too small."""
    return float(term("variance of a padding row", gamma(count + 4) * (square + 5 * mean**2)))


def single_precision(head_dim: int) -> float:
    """Relative: matrix products that the checker itself computes in float32."""
    return float(term("checker in single precision", U32 * (head_dim + 64)))


def sigmoid_error() -> float:
    return float(term("sigmoid", FUNCTION_ERROR))


def tanh_error() -> float:
    return float(term("tanh of a chain", FUNCTION_ERROR))


def silu_error(value: Array) -> Array:
    """A sigmoid and a product, in one step."""
    return np.asarray(term("silu", (FUNCTION_ERROR + 4 * U32) * np.abs(value)))


def scaled_sigmoid(argument: Array, value: Array) -> Array:
    """x sigmoid(a x): the constant and its product with x are rounded, which shifts the sigmoid's argument."""
    return np.asarray(term("argument of a scaled sigmoid", 2 * (1 + 2.0**-8) * U32 * np.abs(argument * value)))


HALF_OF_ONE = FUNCTION_ERROR / 2 + 2 * U32  # of x (1 + erf) / 2: erf errs by 2^-20, its argument by a few u


def gelu_error(x: Array, value: Array, exact_from: float) -> Array:
    """1 + erf and 1 + tanh cancel on the negative side, until they are exactly 0 below `-exact_from`."""
    near = np.where(x > -exact_from, HALF_OF_ONE * np.abs(x) + 4 * U32 * np.abs(value), np.abs(value))
    return np.asarray(term("gelu", near))


def interior_error(lo: Array, hi: Array, exact_from: float) -> Array:
    """An activation somewhere in an interval that reaches below zero: half of 1 + erf or 1 + tanh, times x."""
    size = np.maximum(np.minimum(np.abs(lo), exact_from), np.abs(hi))
    return np.asarray(term("interior of an activation", HALF_OF_ONE * size))


def product_error(stores: Array, store: Storage) -> Array:
    """Relative: act(gate) up after some stores of its factors, and its functions."""
    stored = term("stores of a product", stores * store.unit * (1 + 8 * store.unit))
    return np.asarray(stored + term("functions of a product", 2 * FUNCTION_ERROR))


def silent_input(top: Array, store: Storage) -> Array:
    """The stored pre-activation of a unit that does not fire."""
    return np.asarray(top + term("store of a silent input", (store.unit + 2 * U32) * np.abs(top)))


def silent_product(size: Array, up: Array | float, store: Storage) -> Array:
    """The product of a unit that does not fire, after up to four stores; `up` bounds its other factor.

    Below the normal range a store errs by `tiny`, but at most doubles a number. Sigmoids that do not become zero there
    belong to pre-activations above -18 in float16.
    """
    small = np.minimum(store.tiny * (1 + 19 * up), 7 * size)
    return np.asarray(
        size * (1 + term("stores of a silent unit", 8 * store.unit)) + term("underflow of a silent unit", small)
    )


def fired_sum(units: Array | int, size: Array) -> Array:
    """The sum of an MLP's last matrix over the units that fire; the others are `silent_sum`'s."""
    return np.asarray(term("sum of fired units", gamma(np.asarray(units) + 8) * size))


def silent_sum(size: Array) -> Array:
    """Units that do not fire: what they add, and again as much for the roundings of adding small terms."""
    return np.asarray(term("silent units", 2.5 * size))


def router_weights(least: Array, most: Array) -> Interval:
    """1 / (1 + x) for a sum x of exponentials in [least, most]: a router's softmax and its division, in float32."""
    wide = term("weights of a router", FUNCTION_ERROR)
    return (1 - wide) / (1 + most * (1 + 4 * wide)), (1 + wide) / (1 + least * (1 - 4 * wide))


def router_logit(sums: Array, largest: Array, bias: Array | None, store: Storage) -> Array:
    """A router's logit: its sum, and a store; with a bias, one before it is added and one after."""
    size = largest + sums
    stored = size if bias is None else 2 * size + np.abs(bias)
    return np.asarray(sums + term("store of a router's logit", store.unit * stored))


def expert_sum(experts: int, size: Array) -> Array:
    """The float32 sum of the experts' weighted outputs."""
    return np.asarray(term("sum of experts", gamma(experts) * size))


def centred_error(size: Array) -> Array:
    """x - mean in float32, where the mean itself is accounted for elsewhere."""
    return np.asarray(term("centring of the last norm", 4 * U32 * size))


def logit_sum(terms: Array, total: Array, absolute: Array, count: int, kept: bool) -> Array:
    """A logit's float32 sum; `kept`: of a normed stream whose own roundings in float32 are not in its bounds."""
    partial = (total + np.minimum(absolute, total)) / 2 * (1 + 2.0**-10)
    inputs = term("inputs of a logit", 5 * U32 * total) if kept else 0.0
    return np.asarray(term("sum of a logit", gamma(terms) * partial) + inputs + underflow(count))


def logit_store(size: Array, other: Array, store: Storage) -> Array:
    """Two stored logits whose difference is bounded."""
    u = store.unit + 2 * U32
    return np.asarray(term("store of a logit", u * (size + other) + 2 * store.tiny))
