"""The guarantees of KS25's theorems for whole networks: Theorems B.1, D.1, E.1, F.1, Corollary 4.1 and Remark 4.5.

Each function is the sum of its theorem's parts: a token memory φ̃, attention, a label memory. `constants` of the
paper are kept except one: Lemma B.2's shift has a gap, and the repaired lemma gives token labels up to
N(N−1)/2 + 1 instead of 4N³√π, which is smaller.

A `Setting` contains their inputs from the data; `worst_case` computes it from N, n, d, C, r and δ alone.

    >>> transformer(worst_case(N=1000, n=8, d=4, C=10, r_squared=9))
    Guarantee(width=14, depth=3863, parameters=811169, max_bits=803)
    >>> transformer(worst_case(N=1000, n=8, d=4, C=10, r_squared=9, every_token=True)).depth
    8297
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import Any

from byheart.errors import OptionError
from byheart.paper import Ref, implements
from byheart.theory.rounding import PI_UP, Exact
from byheart.theory.upper import (
    PLAIN_WIDTH,
    STREAM,
    Guarantee,
    PointSet,
    feed_forward_memory,
    limited_memory,
)

TEST = "tests/theory/test_theorems.py"
# Widths of Theorems B.1 and F.1.
TRANSFORMER_WIDTH, LIMITED_WIDTH = 14, 15
PLAIN_STREAM = 3  # (φ̃(x), F(x), id), eq. (50)
HEAD = 3  # head size of eq. (52)


@dataclass(frozen=True)
class Setting:
    """The numbers a theorem is about; makes the clouds of its two memories.

    N sequences of n tokens of dimension d, C classes, r² and δ² of the tokens, distinct labelled contexts, distinct
    tokens.
    """

    N: int
    n: int
    d: int
    C: int
    r_squared: Exact
    delta_squared: Exact
    contexts: int
    points: int

    def __post_init__(self) -> None:
        for name in ("N", "n", "d", "C", "contexts", "points"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} = {getattr(self, name)}: it counts something and is at least 1")

    @property
    def tokens(self) -> PointSet:
        """The distinct tokens: range R₁ = 20 r V² δ⁻¹ √(πd), V = nN at most."""
        return PointSet(self.points, self.d, self.r_squared, self.delta_squared)

    @property
    def attended(self) -> PointSet:
        """Attention's output: norms at most 20 r n² N³ δ⁻¹ √(πd), distances at least 1/n, eq. (55) and (56)."""
        norm = 400 * self.tokens.spread_squared * self.n**4 * self.N**6 * PI_UP * self.d
        return PointSet(self.contexts, 3, norm, Fraction(1, self.n**2))


def worst_case(
    N: int,
    n: int,
    d: int,
    C: int,
    *,
    r_squared: Exact = 1,
    delta_squared: Exact = 1,
    every_token: bool = False,
    contexts: int | None = None,
) -> Setting:
    """As many distinct tokens as there can be, and as many contexts: one per sequence, or one per token of each."""
    most = n * N if every_token else N
    return Setting(N, n, d, C, r_squared, delta_squared, most if contexts is None else contexts, n * N)


def token_labels(N: int) -> int:
    """C_φ: the largest label that the repaired Lemma B.2 gives a token, N(N−1)/2 + 1.

    >>> token_labels(1), token_labels(4)
    (1, 7)
    """
    return N * (N - 1) // 2 + 1


def attention_layer(n: int, form: str, layers: int = 1) -> Guarantee:
    """Attention with one head of size 3: keys, queries, values and output, whether they are used or not."""
    stream = PLAIN_STREAM if form == "plain" else STREAM
    return Guarantee(max(stream, HEAD), layers, layers * 4 * HEAD * stream, (2 * n + 2).bit_length())


def output_map(width: int) -> Guarantee:
    """E_out: one weight per number of the stream, and a bias."""
    return Guarantee(1, 0, width + 1, 1)


@implements(
    Ref("KS25", "Theorem B.1"),
    statement="next-token labels with width 14 and the depth and bits of two memories and one attention layer",
    test=TEST,
)
@implements(Ref("KS25", "Theorem 4.1"), statement="the explicit size of the next-token Transformer", test=TEST)
@implements(
    Ref("KS25", "Corollary 4.1"),
    statement="labels for every token: the label memory stores nN contexts, width 14",
    test=TEST,
)
def transformer(s: Setting, form: str = "plain", *, balanced: bool = False) -> Guarantee:
    """Theorem B.1: φ̃ by Lemma C.1 with (R₁, C_φ), uniform attention, f₂ by Lemma C.1 with (R₂, C).

    Corollary 4.1 is the same sum: f₂ distinguishes nN contexts while φ̃ still serves N multisets. `balanced`: footnote
    2, O(√(N log(nN))) layers.

    >>> long = worst_case(N=1000, n=2**64, d=4, C=10)
    >>> transformer(long).depth, transformer(long, balanced=True).depth
    (12923, 5636)
    """
    return _around(s, form, attention_layer(s.n, form), balanced)


@implements(
    Ref("KS25", "Remark 4.3"),
    statement="Õ(d + √N) parameters: the input map has one row of d weights per number of the stream, and everything "
    "else sees d only in the length of keys, log √d",
    test=TEST,
)
def input_and_rest(s: Setting, form: str = "plain") -> tuple[int, int]:
    """(parameters that are multiplied by d, all others) of Theorem B.1; the paper prints E_out : R^m → R^d, read R.

    >>> [input_and_rest(worst_case(N=10**4, n=8, d=d, C=2), "residual") for d in (1, 16, 256)]
    [(10, 1288517), (160, 1322565), (2560, 1356613)]
    """
    whole = transformer(s, form).parameters
    entrance = (TRANSFORMER_WIDTH if form == "plain" else STREAM) * s.d
    return entrance, whole - entrance


@implements(
    Ref("KS25", "Remark 4.5"),
    statement="two attention layers and a global token replace n² connections by 4n + 2",
    test=TEST,
)
def sparse(s: Setting, form: str = "plain") -> Guarantee:
    """Corollary 4.1 with two attention layers, the global token's stream and one layer that rebuilds the id."""
    stream = PLAIN_STREAM if form == "plain" else STREAM
    glue = Guarantee(stream, 1, 2 * stream * stream + 3 * stream, (2 * s.n + 2).bit_length())
    return _around(s, form, attention_layer(s.n, form, layers=2).then(glue))


@implements(
    Ref("KS25", "Theorem F.1"),
    statement="at most about B·max(log R, log C)/√log B bits per weight, width 15, Õ(N/B) layers",
    test=TEST,
)
def limited_bits(s: Setting, B: int, form: str = "plain") -> Guarantee:
    """Theorem F.1: both memories by Lemma F.1."""
    if not 1 <= B <= isqrt(s.N):
        raise OptionError(f"B = {B} for N = {s.N} sequences: give 1 <= B <= √N, here at most {isqrt(s.N)}")
    token = limited_memory(s.tokens, s.N, token_labels(s.N), B, form=form, width=LIMITED_WIDTH)
    label = limited_memory(s.attended, s.contexts, s.C, B, form=form, width=LIMITED_WIDTH)
    return token.then(attention_layer(s.n, form), label, output_map(LIMITED_WIDTH))


@implements(
    Ref("KS25", "Theorem D.1"),
    statement="multisets of at most M elements: width 12, sum pooling, two memories",
    test=TEST,
)
def deep_set(s: Setting, form: str = "plain") -> Guarantee:
    """Theorem D.1 with M = n: φ̃ with (R_φ, C_φ), the sum, ρ̃ with R_ρ = 80 M N⁵ π."""
    sums = PointSet(s.N, 1, 16 * s.n**2 * s.N**6 * PI_UP, 1)
    token = feed_forward_memory(s.tokens, s.N, token_labels(s.N), form=form)
    return token.then(feed_forward_memory(sums, s.N, s.C, form=form), output_map(PLAIN_WIDTH))


@implements(
    Ref("KS25", "Theorem E.1"),
    statement="token ids through a table of 3ω numbers, then attention and one memory",
    test=TEST,
)
def with_embedding(s: Setting, omega: int, form: str = "plain") -> Guarantee:
    """Theorem E.1 with r = δ = 1, which it leaves open: R = 200√3 n² N⁵ ω π."""
    stream = PLAIN_STREAM if form == "plain" else STREAM
    bits = max(token_labels(s.N).bit_length(), omega.bit_length())
    attended = PointSet(s.contexts, 3, 100 * s.n**2 * s.N**6 * omega**2 * PI_UP, Fraction(1, s.n**2))
    label = feed_forward_memory(attended, s.contexts, s.C, form=form, width=TRANSFORMER_WIDTH)
    table = Guarantee(stream, 0, stream * omega, bits)
    return table.then(attention_layer(s.n, form), label, output_map(TRANSFORMER_WIDTH))


def _around(s: Setting, form: str, attention: Guarantee, balanced: bool = False) -> Guarantee:
    """The token memory before, and the label memory after this attention."""
    how: dict[str, Any] = {"form": form, "width": TRANSFORMER_WIDTH, "balanced": balanced}
    token = feed_forward_memory(s.tokens, s.N, token_labels(s.N), **how)
    label = feed_forward_memory(s.attended, s.contexts, s.C, **how)
    return token.then(attention, label, output_map(TRANSFORMER_WIDTH))
