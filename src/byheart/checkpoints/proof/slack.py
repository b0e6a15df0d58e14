"""Named error terms of the proof: one registry, so that a test can remove each term and must notice it.

A rule never adds a bare error: it calls `term(name, value)`. `weakened` scales a term, for the mutation gate only.
To add a rule: register its terms here, call `term` where the rule widens its bounds, and add a check of the same name
to `tests/checkpoints/proof/test_slack.py`, in which a simulator rounds as badly as the error model allows.
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
    Slack("sum of a linear map", "gamma(n) sum |w x|", "each of the n float32 additions errs by u times its result"),
    Slack("sum of a unit", "gamma(n) (S + |total|) / 2", "no partial sum exceeds (S + |total|) / 2"),
    Slack("store of a shared channel", "(unit + 2u) |x| + tiny", "several parts add up before one store rounds"),
    Slack("root of a norm", "2^-20 / sqrt(mean square + eps)", "rsqrt has a relative error of 2^-20"),
    Slack("leak of a copy", "(3 leak (1 + 2 unit) + 2^-20) |v|", "the other positions' softmax weights add to leak"),
    Slack("products of a rotation", "2 u (|a| + |b|)", "cos, sin and the four products are stored"),
    Slack("sums of a rotation", "min(u |(a, b)|, 2 min(|a|, |b|))", "the two sums are stored"),
    Slack("store of a score", "unit + 2u, twice unless the scale is a power of two", "a score is stored, and scaled"),
    Slack("angle of a position", "n theta 2u |q|", "float32 rounds the angle of a far position"),
    Slack("frequency of a rotation", "2^-22 theta d |q| |k|", "an inverse frequency has a relative error of 2^-22"),
    Slack("grid of distances", "sum theta |q| |k| step / 2", "between two grid points a score moves by its slope"),
    Slack("shares of several winners", "(2 gamma(n) + unit) |v|", "n softmax weights are stored, and summed twice"),
    Slack("store of a logit", "(unit + 2u) |logit|", "logits are stored in the type"),
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
