"""Named error terms of the proof: one registry, so that a test can remove each term and must fail.

A rule (`rounding.py`) never adds a bare error: it calls `term(name, value)`. `weakened` scales a term, for the mutation
gate only. To add a rule: register its terms here, and add a check of each to `tests/checkpoints/proof/test_slack.py`,
in which a simulator rounds as badly as the error model allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from byheart.errors import OptionError


@dataclass(frozen=True)
class Slack:
    """An error term: `formula` as the code computes it, `why` in one line."""

    name: str
    formula: str
    why: str


SLACKS = (
    Slack(
        "own arithmetic", "2^-48 |x|", "up to 31 of the checker's own float64 operations, of which each errs by 2^-53"
    ),
    Slack("rounding in float32", "2u |x|", "one rounding to nearest, and the checker's own arithmetic"),
    Slack("underflow in float32", "|x| below 2^-126", "flushed to zero, or rounded to a multiple of 2^-149"),
    Slack("sum of a linear map", "gamma(n) sum |w x|", "each of the n float32 additions errs by u times its result"),
    Slack("underflow of products", "2^-126 n", "each product may be flushed to zero"),
    Slack("sum of a unit", "gamma(n) (S + |total|) / 2", "no partial sum exceeds (S + |total|) / 2"),
    Slack("stores of an adapter", "unit (|W x| + k |s B A x|) + (3 + s + (1 + s) |B|) tiny", "k is 1, 4 or 5 stores"),
    Slack("inputs of a sum", "3u S", "three roundings of a kept input; that of the product is one of gamma's"),
    Slack("inputs of a value", "5u S", "roundings of kept inputs and of the head's sum over places"),
    Slack("inputs of an output", "3u S", "roundings of heads' outputs that are kept in float32"),
    Slack("bias of a value", "4u |b|", "a bias is added to values that are kept in float32"),
    Slack("mean of a norm", "gamma(n) sum |x|", "a float32 sum of n values, then a division"),
    Slack("sum of squares", "gamma(n + 4) E[x^2]", "a float32 sum of n squares, then a division and eps"),
    Slack("variance in one pass", "gamma(n + 4) (E[x^2] + 4 mean^2)", "E[x^2] and the squared mean err by gamma"),
    Slack("epsilon of a norm", "2^-23 eps", "eps is rounded to float32"),
    Slack("root of a norm", "2^-20 / sqrt(mean square + eps)", "rsqrt has a relative error of 2^-20"),
    Slack("underflow of a norm", "2^-126 (1 + (1 + 1 / |w|) / factor)", "x - mean and two products may be flushed"),
    Slack("store of a shared channel", "(unit + 2u) |x| + tiny + 2^-126", "several parts add up before one store"),
    Slack("stores of a normed channel", "3 unit (1 + 4 unit) |x| + (2 + |w|) tiny", "stored up to three times"),
    Slack("leak of a copy", "8 leak |v|", "roundings double twice what the weight lacks, and each other weight"),
    Slack("softmax of a copy", "2^-20 |v|", "exp and the division have a relative error"),
    Slack("sums of a mixture", "2 gamma(n + 4) p |v|", "float32 sums of n exponentials and of n weighted values"),
    Slack(
        "stored weights of a mixture",
        "(unit p + min(n tiny, p)) |v| + tiny",
        "each stored weight errs by unit or tiny; p is what all weights add up to, 1 without a sink",
    ),
    Slack(
        "softmax of a mixture", "2^-19 (1 + 2^-8) p |v|", "exponentials, up to their mean, and divisions err by 2^-20"
    ),
    Slack("share of a softmax", "2^-18 p", "exponentials and the division have relative errors"),
    Slack("exponentials of a head", "2^-19 leak", "exponentials have a relative error of 2^-20"),
    Slack(
        "stores of a rotation",
        "2 unit (|a| + |b|) + min(unit |(a, b)|, 2 min(|a|, |b|))",
        "cos, sin, the four products, and the two sums are stored",
    ),
    Slack("underflow of a rotation", "4 tiny", "four products are stored below the normal range"),
    Slack("rounding of an angle", "u t theta", "position times frequency is rounded to float32"),
    Slack("cosine and sine", "1.5 2^-22 |(a, b)|", "cos and sin err by 2^-22 each"),
    Slack("inverse frequency", "2^-22 d theta", "relative, of the frequency"),
    Slack("sum of a score", "gamma(head_dim + 2) sum |q k|", "a float32 sum of head_dim products"),
    Slack("multiplier", "2u |m|", "an engine's float32 constant may be the neighbour of the nearest one"),
    Slack(
        "partial sums of experts",
        "min((k - 2) unit S, 2 R)",
        "k experts are added one after the other, each partial"
        " sum may be stored; R is the sum of all addends but the largest",
    ),
    Slack("store of a score", "unit + 2u, twice unless the scale is a power of two", "a score is stored, and scaled"),
    Slack("store of a shifted score", "(unit + 2u) |l - largest|", "engines with sinks subtract the largest score"),
    Slack(
        "absorbed score", "(2 gamma(rank) + unit + 2u) sum |q W c|", "the query is multiplied by W first, and stored"
    ),
    Slack("store of a mixed latent", "(unit + 2u) |c| + tiny", "latents are mixed and stored before their projection"),
    Slack("underflow of a score", "tiny", "a score is stored below the normal range"),
    Slack("score of a masked row", "8 (unit + 2u) (1 + 8 unit) sum |q k|", "all roundings of a score at distance 0"),
    Slack("stores of a padding row", "k (unit |x| + tiny)", "k roundings, one after the other"),
    Slack("sum of a padding row", "gamma(n) sum |w x|", "each of the n float32 additions errs by u times its result"),
    Slack("floor of a padding row", "2^-13 |up|, and 6 unit |up| for a chain", "what an activation leaves below zero"),
    Slack("variance of a padding row", "gamma(n + 4) (E[x^2] + 5 mean^2)", "E[x^2] and the squared mean err by gamma"),
    Slack("checker in single precision", "u (head_dim + 64)", "the checker's own float32 matrix products"),
    Slack("sigmoid", "2^-20 p", "relative, stored by itself"),
    Slack("tanh of a chain", "2^-20 |tanh|", "relative, below 10"),
    Slack("silu", "(2^-20 + 4u) |f|", "a sigmoid and a product in one step"),
    Slack(
        "argument of a scaled sigmoid",
        "2u (1 + 2^-8) |a x f|",
        "a and a x are rounded; a sigmoid's logarithm has slope 1",
    ),
    Slack("gelu", "(2^-21 + 2u) |x| + 4u |f|, |f| far below", "half of 1 + erf or 1 + tanh, which become 0"),
    Slack("interior of an activation", "(2^-21 + 2u) |x|", "the error inside an interval exceeds that at its ends"),
    Slack("stores of a product", "count unit (1 + 8 unit)", "gate and up are stored, sigmoid and activation may be"),
    Slack("functions of a product", "2^-19 |p|", "an activation in one step, roundings in float32"),
    Slack("store of a silent input", "(unit + 2u) |g|", "the pre-activation is stored"),
    Slack("stores of a silent unit", "8 unit |p|", "activation, up and product are stored"),
    Slack("underflow of a silent unit", "min(tiny (1 + 19 |up|), 7 |p|)", "sigmoid, activation and product are stored"),
    Slack("sum of fired units", "gamma(n + 8) sum |w p|", "a float32 sum over the units that fire"),
    Slack("silent units", "2.5 sum |w p|", "what they add, and the rounding when a small term is added"),
    Slack("weights of a router", "2^-18 exp(l), then 2^-20 p", "exponentials, and two divisions by their sums"),
    Slack("store of a router's logit", "unit |l|", "a logit is stored before the softmax"),
    Slack("sum of experts", "gamma(n) |x|", "weighted outputs are added in float32"),
    Slack("centring of the last norm", "4u (|x| + |mean|)", "x - mean in float32"),
    Slack("sum of a logit", "gamma(n) (S + |total|) / 2", "no partial sum exceeds (S + |total|) / 2"),
    Slack("inputs of a logit", "5u S, of a kept stream", "roundings of a stream kept in float32"),
    Slack("store of a logit", "(unit + 2u) |l| + tiny, twice", "both logits of a difference are stored"),
    Slack("softplus", "2^-19 |f|", "an exponential, a sum and a logarithm"),
    Slack("softplus by a sum", "(1 + 2^-10) min(2^-24, f)", "1 + e^x is rounded before the logarithm is taken"),
    Slack("sigmoid of a write", "2^-20 p", "the share that is written, or a gate, from a sum of exponentials"),
    Slack("exponent of a decay", "2^-19 |x|", "exp of the stored logarithm and two products"),
    Slack("sum of exponents", "gamma(n) (n + 1) |x|", "two sums over a chunk: n additions, of results up to n |x|"),
    Slack("decay", "2^-20 p", "exp, of exponents that are not nearly 0"),
    Slack("length of a key", "(gamma(n) + 2^-19) |k|", "a sum of n squares, a root, products"),
    Slack("read of a state", "gamma(2 n + 3 chunk + 16) |q| |k| |v|", "sums over keys and over the places of a chunk"),
    Slack("steps of a state", "gamma(2 n + 3 chunk + 16) w |S|", "what each write adds errs; w is all that is written"),
    Slack("drift of a state", "gamma(n + chunk + 16) |S| per step", "a decay other than 1 rounds the whole state"),
    Slack("sums of a scan", "gamma(n + 2 chunk + 16) sum |C B dt x|", "sums over the state and the places of a chunk"),
    Slack("grid of distances", "sum theta |q| |k| step / 2", "between two grid points a score moves by its slope"),
)
_NAMES = {slack.name for slack in SLACKS}
_SCALE: dict[str, float] = {}


def term(name: str, value: Any) -> Any:
    """An error term under its registered name.

    >>> float(term("root of a norm", 0.5))
    0.5
    """
    if name not in _NAMES:
        raise OptionError(f"{name!r} is not a registered error term")
    return value * _SCALE[name] if name in _SCALE else value


@contextmanager
def weakened(name: str, factor: float) -> Iterator[None]:
    """Multiply one term by a factor inside the block: proofs made there are void.

    >>> with weakened("root of a norm", 0.0):
    ...     float(term("root of a norm", 0.5))
    0.0
    """
    if name not in _NAMES:
        raise OptionError(f"{name!r} is not a registered error term")
    _SCALE[name] = factor
    try:
        yield
    finally:
        del _SCALE[name]
