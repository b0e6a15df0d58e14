"""Networks that look exact and are not: each once slipped through an argument about ranges, lattices or errors."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from byheart.build.native.front import mean_attention, snap_blocks
from byheart.build.native.layout import FLOAT32, FLOAT64
from byheart.certify.any_order.lattice import FORMATS, InputFacts, NotShown, Tally, channel, rounded_up
from byheart.certify.any_order.proof import prove_any_order
from byheart.errors import BudgetError
from byheart.exact import dyadic
from byheart.exact.budget import Budget, limited
from byheart.ir.layers import Affine, Embedding, Matrix, Pattern, Pool, Residual
from byheart.ir.network import Decode, Network, Read, Readout
from tests.certify.any_order.edits import diagonal
from tests.certify.any_order.shuffled import differences

ONE, ZERO = Fraction(1), Fraction(0)
KINDS = {"float64": FLOAT64, "float32": FLOAT32}


def box(*ranges: tuple[int, int]) -> tuple:
    return tuple(channel(Fraction(low), Fraction(high), ONE) for low, high in ranges)


def entry(width: int, inputs: int = 1) -> Affine:
    """Input i into channel i."""
    return Affine(Matrix.of([{k: 1} if k < inputs else {} for k in range(width)], inputs))


def answered(*layers, read=Read.LAST, classes=1 << 20, offset=0) -> Network:
    width = layers[-1].width_out
    return Network((*layers, Affine(Matrix.of([{0: 1}], width))), read, Readout(Decode.VALUE, classes, offset))


def refused(network: Network, facts: InputFacts, dtype: str, reason: str) -> None:
    """Not proved, for this reason, and rightly so: some order of evaluation differs."""
    found = prove_any_order(network, facts, dtype)
    assert not found.proved and reason in found.reason, found.sentence()
    assert differences(network, facts, dtype, 0)


PAIRS = [
    ("float64", 44, (980,)),  # 2^46 · 2^980 is beyond 2^1024
    ("float64", 44, (500, 490)),
    ("float64", 44, (-1000, -80)),  # 2^-1080 is below every float64
    ("float32", 14, (120,)),
    ("float32", 14, (-100, -60)),
]


@pytest.mark.parametrize(("dtype", "bits", "powers"), PAIRS)
def test_scales_and_their_inverses_in_front_of_the_snap(dtype, bits, powers):
    """Nothing in exact numbers; the mean's error is carried, and floats overflow, or lose everything to underflow."""
    facts = InputFacts(3, False, box((0, 1 << bits)))
    mean, snap = mean_attention(2, Pattern.FULL, [0], [0], 3), snap_blocks(2, KINDS[dtype], [0], 0)
    plain = answered(entry(2), mean, *snap)
    assert prove_any_order(plain, facts, dtype).proved and not differences(plain, facts, dtype, 0)
    scales = [diagonal(2, power) for power in (*powers, *(-power for power in reversed(powers)))]
    refused(answered(entry(2), mean, *scales, *snap), facts, dtype, "overflow" if powers[0] > 0 else "round")


@pytest.mark.parametrize(("dtype", "bits", "power"), [("float64", 44, 980), ("float32", 14, 120)])
def test_a_block_that_scales_up_and_down_in_front_of_the_snap(dtype, bits, power):
    up, down = Matrix.of([{0: 1 << power}], 2), Matrix.of([{0: dyadic(1, -power)}, {}], 1)
    layers = entry(2), mean_attention(2, Pattern.FULL, [0], [0], 3), Residual(up, (0,), down, (0, 0))
    facts = InputFacts(3, False, box((0, 1 << bits)))
    refused(answered(*layers, *snap_blocks(2, KINDS[dtype], [0], 0)), facts, dtype, "overflow")


def test_an_underflow_that_the_snap_mends():
    """2^-1060·5 keeps 14 bits, so that the snap would mend it; an engine that flushes subnormals to zero loses all."""
    facts = InputFacts(3, False, box((0, 40)))
    layers = [entry(2), mean_attention(2, Pattern.FULL, [0], [0], 3)]
    snap = snap_blocks(2, FLOAT64, [0], 0)
    gentle = answered(*layers, diagonal(2, -1000), diagonal(2, 1000), *snap)
    assert prove_any_order(gentle, facts).proved and not differences(gentle, facts, "float64", 1)
    scales = [diagonal(2, power) for power in (-1000, -60, 60, 1000)]
    refused(answered(*layers, *scales, *snap), facts, "float64", "round")


@pytest.mark.parametrize(("dtype", "power"), [("float64", 1020), ("float32", 125)])
def test_a_channel_that_nobody_reads_must_be_finite(dtype, power):
    """0 · inf is NaN, in channels that do not read the infinity."""
    spoiled = Affine(Matrix.of([{0: 1}, {0: 1 << power}], 2))
    again = Affine(Matrix.of([{0: 1}, {1: 1 << 20}], 2))
    refused(answered(entry(2), spoiled, again), InputFacts(1, False, box((0, 7))), dtype, "overflow")


@pytest.mark.parametrize("weight", [1 << 130, (1 << 24) + 1, dyadic(1, -127), dyadic(1, -160)])
def test_a_weight_that_reads_only_zeros_must_be_a_float(weight):
    network = answered(entry(2), Affine(Matrix.of([{0: 1, 1: weight}, {}], 2)))
    found = prove_any_order(network, InputFacts(1, False, box((0, 7))), "float32")
    assert not found.proved and "cannot represent" in found.reason
    biased = answered(entry(2), Affine(Matrix.of([{0: 1}, {}], 2), (0, weight)))
    assert not prove_any_order(biased, InputFacts(1, False, box((0, 7))), "float32").proved


def test_heads_that_cancel_are_added_to_the_stream_one_by_one():
    """own + (a − a) is exact, (own + a) − a is not."""
    start = Affine(Matrix.of([{0: 1}, {}], 1), (0, 1))
    layer = mean_attention(2, Pattern.FULL, [1], [0], 1 << 54)
    (head,) = layer.heads
    other = replace(head, value=Matrix.of([{1: -(1 << 54)}], 2))
    refused(answered(start, replace(layer, heads=(head, other))), InputFacts(2, False, box((0, 7))), "float64", "round")


@pytest.mark.parametrize(("dtype", "power"), [("float64", 1022), ("float32", 126)])
def test_queries_are_computed_although_the_keys_are_zero(dtype, power):
    layer = mean_attention(1, Pattern.FULL, [0], [0], 2)
    (head,) = layer.heads
    plan = replace(layer, heads=(replace(head, query=Matrix.of([{0: 1 << power}], 1)),))
    facts = InputFacts(2, False, box((0, 7)))
    refused(answered(entry(1), plan), facts, dtype, "overflow")
    harmless = replace(layer, heads=(replace(head, query=Matrix.of([{0: 1 << 30}], 1)),))
    assert prove_any_order(answered(entry(1), harmless), facts, dtype).proved


def test_absent_vectors_are_multiplied_by_zero_and_must_be_finite():
    """Tokens lie just above 2^600; 2^600 is taken away, which leaves a small number, or -2^600 where there is none."""
    near = channel(Fraction(2) ** 600, Fraction(2) ** 600 + 2**590, Fraction(2) ** 580)
    shift = Affine(Matrix.of([{0: 1}], 1), (-(1 << 600),))
    scales = [diagonal(1, power) for power in (428, -428, -580)]
    layers = (shift, *scales, mean_attention(1, Pattern.CAUSAL, [0], [0], 1))
    network = Network((*layers, Affine(Matrix.of([{0: 1}], 1))), Read.EACH, Readout(Decode.VALUE, 9))
    plain = InputFacts(2, True, (near,))
    assert prove_any_order(network, plain).proved and not differences(network, plain, "float64", 0)
    zeros = replace(plain, absent=(channel(ZERO, ZERO, ZERO),))
    refused(network, zeros, "float64", "absent")


def test_the_offset_of_the_readout_is_subtracted_in_floats():
    """2^-60 is not a class; 2^-60 + 3 is 3 in floats."""
    tiny = answered(Affine(Matrix.of([{0: dyadic(1, -60)}], 1)), classes=9, offset=-3)
    refused(tiny, InputFacts(1, False, box((0, 1))), "float64", "offset")
    large = answered(entry(1), classes=(1 << 24) + 1)
    assert "readout" in prove_any_order(large, InputFacts(1, False, box((0, 1))), "float32").reason
    assert prove_any_order(answered(entry(1), offset=-3), InputFacts(1, False, box((0, 9))), "float32").proved


def test_pooling_twice_has_no_rule():
    """The second pool sees one token, not n."""
    facts = InputFacts(3, False, box((5, 5)))
    for second in (Pool(1), mean_attention(1, Pattern.FULL, [0], [0], 1)):
        found = prove_any_order(answered(entry(1), Pool(1), second, read=Read.POOLED), facts)
        assert not found.proved and "after pooling" in found.reason


def test_every_id_needs_a_row_of_the_table():
    table = Embedding(Matrix.of([{0: 1}, {0: 2}, {0: 3}], 1))
    assert prove_any_order(answered(table), InputFacts(1, False, box((0, 2)))).proved
    for facts in (InputFacts(1, False, box((0, 3))), InputFacts(1, False, box((-1, 2)))):
        assert "3 rows" in prove_any_order(answered(table), facts).reason
    halves = InputFacts(1, False, (channel(ZERO, ONE, Fraction(1, 2)),))
    assert "whole numbers" in prove_any_order(answered(table), halves).reason


def test_inputs_that_are_no_floats_are_rounded():
    facts = InputFacts(1, False, box((0, (1 << 24) + 1)))
    unread = answered(Affine(Matrix.of([{}, {0: 1}], 1)))
    assert prove_any_order(unread, facts, "float32").proved  # nothing reads it
    read = answered(Affine(Matrix.of([{0: 1}], 1)))
    assert "may round" in prove_any_order(read, facts, "float32").reason
    huge = InputFacts(1, False, (channel(ZERO, Fraction(2) ** 128, Fraction(2) ** 120),))
    assert "overflow" in prove_any_order(unread, huge, "float32").reason


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_subnormal_lattices_are_refused(dtype):
    """Exact while subnormals are kept, wrong where an engine flushes them."""
    least = FORMATS[dtype].smallest_exponent
    network = answered(diagonal(1, least + 20), diagonal(1, -21), diagonal(1, 21), diagonal(1, -least - 20))
    refused(network, InputFacts(1, False, box((0, 1))), dtype, "round")
    kept = answered(diagonal(1, least + 20), diagonal(1, -20), diagonal(1, 20), diagonal(1, -least - 20))
    assert prove_any_order(kept, InputFacts(1, False, box((0, 1))), dtype).proved


def test_the_lemmas_of_a_sum():
    tally = Tally(FORMATS["float32"])
    tiny = Fraction(1, 1 << 30)
    assert tally.error("a zero with an error", ZERO, ONE, tiny, 1) > tiny
    assert tally.error("nothing", ZERO, ZERO, ZERO, 1) == 0
    assert tally.scaled("an error below the least normal number", ZERO, tiny) == tiny + FORMATS["float32"].least
    with pytest.raises(NotShown, match="overflow"):
        tally.error("large", Fraction(2) ** 127, Fraction(2) ** 126, tiny, 2)
    with pytest.raises(NotShown, match="too many terms"):
        tally.error("long", ONE, ONE, tiny, 1 << 24)
    for error in (Fraction(1, 3), Fraction(10**40, 7), Fraction(1, 10**40), Fraction(5)):
        assert 0 <= rounded_up(error) - error <= error / (1 << 60)


@pytest.mark.parametrize("pattern", [Pattern.CAUSAL, Pattern.FULL])
def test_what_a_file_says_about_its_length_is_part_of_its_budget(pattern):
    """Means over 1, 2, …, n tokens are each looked at: a few bytes must not keep the proof busy for hours."""
    network = answered(entry(2), mean_attention(2, pattern, [0], [0], 3), *snap_blocks(2, FLOAT64, [0], 0))
    facts = InputFacts(1 << 20, True, box((0, 9)))
    with limited(Budget(work=10**9)), pytest.raises(BudgetError, match="--max-work"):
        prove_any_order(network, facts)


def test_ids_that_meet_in_one_row_of_a_table_are_part_of_the_budget():
    """Strides (1, 1): ten million pairs of numbers for a table of a few thousand rows."""
    table = Embedding(Matrix.of([{0: 1}] * 6400, 1), (1, 1))
    facts = InputFacts(3200, False, box((0, 3200), (0, 3199)), True)
    with limited(Budget(work=10**11)), pytest.raises(BudgetError, match="--max-work"):
        prove_any_order(answered(table), facts)
