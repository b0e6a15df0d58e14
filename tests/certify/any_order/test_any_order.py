"""The proof of exactness: it must never show what is false, and must show what the constructions need."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import byheart
from byheart.build.native.front import mean_attention, snap_blocks
from byheart.build.native.hashing import HashChain, chain_scale
from byheart.build.native.layout import FLOAT64, Layout
from byheart.build.native.memory import BucketWords, memory_blocks, store
from byheart.certify import certify
from byheart.certify.any_order.lattice import (
    FORMATS,
    InputFacts,
    NotShown,
    Tally,
    channel,
    common_unit,
    facts_of,
    join,
    power_of_two_part,
)
from byheart.certify.any_order.proof import LatticeWalk, _mean, prove_any_order
from byheart.exact import dyadic
from byheart.ir.layers import Affine, Kind, Matrix, Pattern, Residual
from byheart.ir.network import Decode, Network, Read, Readout
from tests.build.native.test_memory import evaluate
from tests.certify.any_order.permuted import permuted

ONE = Fraction(1)


def box(*ranges: tuple[int, int]) -> tuple:
    return tuple(channel(Fraction(low), Fraction(high), ONE) for low, high in ranges)


def network(layers, read=Read.LAST) -> Network:
    width = layers[-1].width_out
    answer = Affine(Matrix.of([{0: 1}], width))
    return Network((*layers, answer), read, Readout(Decode.VALUE, 2))


weights = st.builds(lambda m, e, s: s * m << e, st.integers(0, 7), st.integers(0, 18), st.sampled_from([1, -1]))


@st.composite
def stacks(draw):
    """Two or three residual blocks on a stream of two, with weights that come near 2^24 together."""
    blocks = []
    for _ in range(draw(st.integers(1, 3))):
        hidden = draw(st.integers(1, 3))
        matrix = lambda r, c: Matrix.of_dense([[draw(weights) for _ in range(c)] for _ in range(r)])  # noqa: E731
        blocks.append(
            Residual(matrix(hidden, 2), tuple(draw(weights) for _ in range(hidden)), matrix(2, hidden), (0, 0))
        )
    return blocks


@settings(max_examples=150, deadline=None)
@given(stacks(), st.integers(0, 40), st.integers(0, 10**6))
def test_a_proved_network_never_rounds(blocks, high, seed):
    """Soundness: float32 in a random order equals the exact value on every tried input."""
    proof = prove_any_order(network(blocks), InputFacts(1, False, box((0, high), (-high, 3))), "float32")
    if not proof.proved:
        return
    rng = np.random.default_rng(seed)
    inputs = np.stack([rng.integers(0, high + 1, 20), rng.integers(-high, 4, 20)])
    with np.errstate(over="ignore", invalid="ignore"):
        found = evaluate(blocks, inputs, "float32", rng)
    for column, start in enumerate(inputs.T.tolist()):
        exact = [Fraction(v) for v in start]
        for block in blocks:
            hidden = [
                max(Fraction(0), sum(w * exact[j] for j, w in row) + bias)
                for row, bias in zip(block.weight1.rows, block.bias1, strict=True)
            ]
            exact = [x + sum(w * hidden[a] for a, w in row) for x, row in zip(exact, block.weight2.rows, strict=True)]
        assert Fraction(float(found[0, column])) == exact[0]  # the answer; the other channel is not read


def memory(levels: int, seed: int = 0):
    """A memory with words of this many levels, on ids below 2^36."""
    bits = 37
    layout = Layout(FLOAT64, 1, 0, 1, 1, levels, 1, 6, chain_scale(53, bits))
    rng = np.random.default_rng(1)
    ids = np.unique(
        rng.integers(0, 1 << 36, (2 * levels - 8, 1)), axis=0
    )  # full buckets, so that words use all their bits
    for attempt in range(2000):
        chain = HashChain(random.Random(attempt).randrange(1 << 36, 1 << 37) | 1, layout.scale)
        stored = store(layout, [chain], ids, rng.integers(0, 2, len(ids)))
        if isinstance(stored, BucketWords):
            break
    blocks = [block for _, part in memory_blocks(layout, [chain], stored) for block in part]
    entry = Affine(Matrix.of([{0: 1 << layout.scale}, {}, {}], 1))
    answer = Affine(Matrix.of([{layout.bucket_channel: 1}], layout.width))
    return Network((entry, *blocks, answer), Read.LAST, Readout(Decode.VALUE, 2)), InputFacts(
        1, False, box((0, 1 << 36))
    )


def test_words_of_44_levels_are_proved_and_longer_ones_are_not():
    found = prove_any_order(*memory(44))
    assert found.proved and 51 < found.bits <= 53 and "layer" in found.where
    longer = prove_any_order(*memory(52))
    assert not longer.proved and "may round at" in longer.reason


def test_one_weight_too_many_bits_is_noticed():
    net, facts = memory(30)
    assert prove_any_order(net, facts).proved
    place = next(i for i, layer in enumerate(net.layers) if isinstance(layer, Residual) and layer.weight2.rows[-1])
    block = net.layers[place]
    rows = [dict(row) for row in block.weight2.rows]
    rows[-1] = {k: w + dyadic(1, -40) for k, w in rows[-1].items()}
    spoiled = replace(block, weight2=Matrix.of(rows, block.hidden))
    layers = (*net.layers[:place], spoiled, *net.layers[place + 1 :])
    assert not prove_any_order(replace(net, layers=layers), facts).proved


def test_the_order_of_units_does_not_change_the_bound():
    net, facts = memory(40)
    assert prove_any_order(permuted(net, 5), facts).bound == prove_any_order(net, facts).bound


@pytest.mark.parametrize("n", [2, 3, 8, 49, 64, 100])
def test_a_mean_needs_the_snap_unless_n_is_a_power_of_two(n):
    entry = Affine(Matrix.of([{0: 1}, {}], 1))
    attention = mean_attention(2, Pattern.FULL, [0], [0], n)
    facts = InputFacts(n, False, box((0, 1 << 36)))
    plain = prove_any_order(network([entry, attention]), facts)
    snapped = prove_any_order(network([entry, attention, *snap_blocks(2, FLOAT64, [0], 0)]), facts)
    assert snapped.proved
    assert plain.proved == (n & (n - 1) == 0)
    wide = InputFacts(n, False, box((0, 1 << 50)))
    assert not prove_any_order(network([entry, attention, *snap_blocks(2, FLOAT64, [0], 0)]), wide).proved


def test_attention_with_scores_is_undecided():
    entry = Affine(Matrix.of([{0: 1}, {}], 1))
    attention = mean_attention(2, Pattern.FULL, [0], [0], 1)
    (head,) = attention.heads
    scored = replace(attention, heads=(replace(head, key=Matrix.of([{0: 1}], 2), query=Matrix.of([{0: 1}], 2)),))
    found = prove_any_order(network([entry, scored]), InputFacts(2, False, box((0, 3))))
    assert not found.proved and "scores" in found.sentence()
    found = prove_any_order(network([entry, replace(attention, kind=Kind.HARDMAX)]), InputFacts(2, False, box((0, 3))))
    assert not found.proved and "scores" in found.sentence()


@pytest.mark.parametrize("pattern", [Pattern.STAR_IN, Pattern.STAR_OUT])
def test_attention_over_other_patterns_is_undecided(pattern):
    """Not every token sees as many others: a mean over all of them is something else."""
    layer = mean_attention(2, pattern, [0], [0], 1)
    walk = LatticeWalk(
        network([Affine(Matrix.of([{0: 1}, {}], 1))]), InputFacts(2, False, box((0, 3))), Tally(FORMATS["float64"])
    )
    with pytest.raises(NotShown, match="pattern"):
        walk.layer("here", layer)


def test_a_mean_may_be_added_before_it_is_divided():
    """The mean of four numbers below 2^1022 is a float, their sum is beyond half of the range."""
    for exponent, fine in ((1000, True), (1022, False)):
        value = channel(Fraction(0), Fraction(2) ** exponent, Fraction(2) ** exponent)
        with nullcontext() if fine else pytest.raises(NotShown, match="overflow"):
            _mean(Tally(FORMATS["float64"]), "here", value, 4)


def test_the_certificate_carries_the_bound_and_where_it_is_attained():
    built = byheart.memorize(["abc", "bca", "bbb"], [0, 1, 1], construction="native", progress=False)
    (sentence,) = built.certificate.proofs.values()
    assert "at most 2^" in sentence and "attained at layer" in sentence
    assert built.claim.properties == ("exact in any order: float64",)
    false = replace(built.claim, properties=("exact in any order: float32",))
    verdict = certify(built.network, built.dataset, false)
    assert verdict.verdict == "undecided" and "not shown" in verdict.reason
    facts = facts_of(built.encoder, None)
    assert prove_any_order(built.network, facts, "float64").proved
    with pytest.raises(byheart.ByheartError, match="float16"):
        prove_any_order(built.network, facts, "float16")


def test_lattices():
    assert common_unit(Fraction(3, 4), Fraction(1, 2)) == Fraction(1, 4)
    assert power_of_two_part(Fraction(24)) == 8 and power_of_two_part(Fraction(1, 6)) is None
    both = join([channel(ONE, ONE, ONE), channel(Fraction(0), Fraction(12), Fraction(6))])
    assert (both.low, both.high, both.unit) == (0, 12, 1)
    tally = Tally(FORMATS["float32"])
    assert tally.error("here", Fraction(1 << 24), ONE, Fraction(0), 2) == 0
    assert tally.error("there", Fraction((1 << 24) + 1), ONE, Fraction(0), 2) > 0
    assert tally.worst == 1 << 24 and tally.worst_place == "here" and tally.rounded
    assert tally.error("tiny", Fraction(1, 1 << 150), Fraction(1, 1 << 150), Fraction(0), 2) > 0
