"""Residual blocks on channels that are drawn at random: exact values, lattices, errors and signs, in toy floats."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import nullcontext
from fractions import Fraction

import numpy as np
import pytest

from byheart.certify.any_order.lattice import EMPTY, FORMATS, ZERO, Channel, Link, NotShown, Tally, channel
from byheart.certify.any_order.ranges import (
    SAFE,
    Enumerated,
    ValueTable,
    _added,
    linear,
    residual_ranges,
    table_for,
    table_ranges,
    weighted_sum,
)
from byheart.exact.number import from_fraction
from byheart.ir.layers import Matrix, Residual
from tests.certify.any_order.toy import TOY, Drawn, ToyEngine, drawn_stream, fits, numbers

ONE = Fraction(1)
Weights = list[list[Fraction]]


def matrix(rows: Weights, columns: int) -> Matrix:
    stored = [{j: from_fraction(w) for j, w in enumerate(row) if w} for row in rows]
    return Matrix.of(stored, columns)


def block(first: Weights, bias1: Sequence[Fraction], second: Weights, bias2: Sequence[Fraction]) -> Residual:
    one, two = (tuple(from_fraction(b) for b in bias) for bias in (bias1, bias2))
    return Residual(matrix(first, len(bias2)), one, matrix(second, len(bias1)), two)


def answered(
    engine: ToyEngine, first: Weights, bias1: Sequence[Fraction], second: Weights, bias2: Sequence[Fraction],
    stream: Sequence[Fraction], exactly: bool,
) -> list[Fraction]:  # fmt: skip
    """The stream after a block, exactly or as one engine adds it up."""

    def total(weights: Sequence[Fraction], values: Sequence[Fraction], more: Sequence[Fraction]) -> Fraction:
        terms = [(w, x) for w, x in zip(weights, values, strict=True) if w]
        more = [x for x in more if x]
        return sum((w * x for w, x in terms), sum(more, ZERO)) if exactly else engine.sum(terms, more)

    units = [max(ZERO, total(row, stream, [b])) for row, b in zip(first, bias1, strict=True)]
    return [total(row, units, [x, b]) for row, x, b in zip(second, stream, bias2, strict=True)]


def weight(rng: random.Random) -> Fraction:
    return ZERO if rng.random() < 0.4 else rng.choice((ONE, -ONE, Fraction(2), Fraction(1, 2), numbers(rng)))


@pytest.mark.parametrize("seed", range(3))
def test_weighted_sums_describe_their_values(seed: int) -> None:
    rng, shown = random.Random(seed), 0
    for _ in range(1500):
        unknowns: dict[int, Fraction] = {}
        stream, engine = drawn_stream(rng, 4, unknowns), ToyEngine(rng)
        weights = [weight(rng) for _ in stream]
        bias = rng.choice((ZERO, numbers(rng)))
        try:
            row = tuple((j, from_fraction(w)) for j, w in enumerate(weights) if w)
            found = weighted_sum(Tally(TOY), "here", row, from_fraction(bias), [d.channel for d in stream])
        except NotShown:
            continue
        exact = bias + sum(w * d.value for w, d in zip(weights, stream, strict=True))
        near = engine.sum([(w, d.float) for w, d in zip(weights, stream, strict=True) if w], [bias] if bias else [])
        assert not (why := fits(found.value, exact, near, unknowns)), (why, weights, bias, stream)
        assert not (why := fits(found.after_relu, max(exact, ZERO), max(near, ZERO), unknowns)), (why, found)
        assert not found.dead or near <= 0 >= exact
        assert not found.active or exact >= 0
        shown += 1
    assert shown > 900


@pytest.mark.parametrize("seed", range(4))
def test_blocks_describe_their_streams(seed: int) -> None:
    """Units that are always active, that never are, that share a channel, that clear one."""
    rng, shown = random.Random(100 + seed), 0
    for _ in range(700):
        unknowns: dict[int, Fraction] = {}
        stream, engine = drawn_stream(rng, 3, unknowns), ToyEngine(rng)
        units = rng.randint(1, 3)
        first = [[weight(rng) if rng.random() < 0.6 else ZERO for _ in stream] for _ in range(units)]
        if rng.random() < 0.3:  # one channel alone
            first = [[w if j == 1 else ZERO for j, w in enumerate(row)] for row in first]
        second = [[weight(rng) for _ in range(units)] for _ in stream]
        bias1, bias2 = ([rng.choice((ZERO, numbers(rng))) for _ in range(n)] for n in (units, 3))
        if rng.random() < 0.2:  # x - relu(x)
            first, bias1, second = [[ONE, ZERO, ZERO]], [ZERO], [[-ONE], [ONE], [ZERO]]
        layer, channels = block(first, bias1, second, bias2), [d.channel for d in stream]
        exact = answered(engine, first, bias1, second, bias2, [d.value for d in stream], True)
        try:
            found = residual_ranges(Tally(TOY), "here", layer, channels)
        except NotShown:
            continue
        near = answered(engine, first, bias1, second, bias2, [d.float for d in stream], False)
        for k in range(3):
            assert not (why := fits(found[k], exact[k], near[k], unknowns)), (why, k, first, second, bias1, bias2)
        shown += 1
    assert shown > 300


@pytest.mark.parametrize("seed", range(3))
def test_tables_of_values_describe_their_streams(seed: int) -> None:
    """Every unit reads one exact channel: the block is evaluated on each of its values."""
    rng, shown = random.Random(200 + seed), 0
    for _ in range(1500):
        unknowns: dict[int, Fraction] = {}
        stream, engine = drawn_stream(rng, 3, unknowns, errors=False), ToyEngine(rng)
        units = rng.randint(1, 3)
        first = [[ZERO, weight(rng) or ONE, ZERO] for _ in range(units)]
        writes = [d.channel.constant or k == 1 for k, d in enumerate(stream)]
        second = [[weight(rng) if own else ZERO for _ in range(units)] for own in writes]
        bias1, bias2 = ([rng.choice((ZERO, Fraction(rng.randint(-4, 4)))) for _ in range(n)] for n in (units, 3))
        bias2 = [b if own else ZERO for b, own in zip(bias2, writes, strict=True)]
        layer, channels = block(first, bias1, second, bias2), [d.channel for d in stream]
        try:
            table = table_for(layer, channels, None)
            found = table and table_ranges(Tally(TOY), "here", layer, channels, table)
        except NotShown:
            continue
        if not found:
            continue
        exact = answered(engine, first, bias1, second, bias2, [d.value for d in stream], True)
        near = answered(engine, first, bias1, second, bias2, [d.float for d in stream], False)
        for k in range(3):
            assert not (why := fits(found[0][k], exact[k], near[k], unknowns)), (why, first, second, bias1, bias2)
            assert near[k] == exact[k] or stream[k].channel.error
        place = int((stream[1].value - channels[1].low) / channels[1].unit)
        for k, column in found[1].columns.items():
            assert int(column.numbers[place]) * column.unit == exact[k]
            assert column.largest == max(map(abs, column.numbers.tolist()))
        again = table_for(layer, found[0], found[1])
        try:
            twice = again and table_ranges(Tally(TOY), "again", layer, found[0], again)
        except NotShown:
            twice = None
        if twice:
            for k, value in enumerate(answered(engine, first, bias1, second, bias2, exact, True)):
                assert not fits(twice[0][k], value, value, unknowns)
        shown += 1
    assert shown > 60


def snapped(old: Channel, bias: Fraction) -> Channel:
    """The channel after a block that adds only a bias to it."""
    layer = Residual(Matrix.zero(1, 1), (0,), Matrix.zero(1, 1), (from_fraction(bias),))
    (found,) = residual_ranges(Tally(TOY), "here", layer, [old])
    return found


def test_adding_a_large_number_snaps_an_inexact_float_onto_its_lattice() -> None:
    """Between 32 and 64 floats are whole: what is off by less than a half becomes the nearest whole number."""
    rng = random.Random(5)
    for size in (Fraction(1, 8), Fraction(1, 4), Fraction(31, 64), Fraction(511, 1024)):
        old = channel(ZERO, Fraction(4), ONE, size)
        found = snapped(old, Fraction(48))
        bound = Fraction(511, 1024)
        assert bool(found.error) == (size > bound), size
        for _ in range(50):
            value = Fraction(rng.randint(0, 4))
            off = value + rng.choice((-1, 1)) * size
            assert not fits(found, value + 48, ToyEngine(rng).round(off + 48), {})
    wide = channel(ZERO, Fraction(4), ONE, Fraction(33, 64))
    assert snapped(wide, Fraction(48)).error and not snapped(channel(ZERO, Fraction(4), ONE), Fraction(48)).error
    # Results with different neighbours; spaced by more than their lattice; on no power of two.
    for old, bias in (
        (channel(ZERO, Fraction(8), ONE, ONE / 8), Fraction(60)),
        (channel(ZERO, Fraction(4), ONE / 2, ONE / 8), Fraction(48)),
        (channel(ZERO, Fraction(4), ONE / 3, ONE / 64), Fraction(48)),
        (channel(ZERO, Fraction(4), ONE, ONE / 8), Fraction(-48)),
        (channel(ZERO, ONE / 4, ONE / 64, ONE / 256), ONE / 2),
    ):
        assert snapped(old, bias).error, (old, bias)
    assert not snapped(channel(ZERO, Fraction(16), ONE, ONE / 8), Fraction(32 + 8)).error
    kept = channel(ZERO, ONE, ONE, ONE / 8, positive=True)
    assert snapped(kept, ZERO) == kept and snapped(kept, ONE).positive and not snapped(kept, -ONE).positive
    assert not snapped(channel(-ONE, ONE, ONE, ONE / 8), ONE).positive


def test_a_float_that_is_never_negative_is_cleared_without_an_error() -> None:
    """x - relu(x), and nothing like it."""
    old = channel(ZERO, Fraction(3), ONE, ONE / 8, positive=True)

    def after(weight1: int = 1, bias1: int = 0, weight2: int = -1, bias2: int = 0, stream: Channel = old) -> Channel:
        layer = Residual(Matrix.of([{0: weight1}], 1), (bias1,), Matrix.of([{0: weight2}], 1), (bias2,))
        (found,) = residual_ranges(Tally(TOY), "here", layer, [stream])
        return found

    assert after() == EMPTY
    for changed in (after(weight1=2), after(bias1=1), after(weight2=1), after(bias2=1)):
        assert changed.error
    assert after(stream=channel(-ONE, Fraction(3), ONE, ONE / 8)).error
    twice = Residual(Matrix.of([{0: 1}, {0: 1}], 1), (0, 0), Matrix.of([{0: -1, 1: -1}], 2), (0,))
    assert residual_ranges(Tally(TOY), "here", twice, [old])[0].error


def test_a_power_of_two_rounds_nothing_of_one_inexact_float() -> None:
    inexact = channel(ZERO, Fraction(4), ONE, ONE / 8)
    for factor, exact in ((ONE / 2, True), (Fraction(-4), True), (Fraction(3), False)):
        found = linear(Tally(TOY), "here", [(factor, inexact)])
        carried = abs(factor) / 8
        assert (found.error == carried + TOY.least) == exact and found.error > carried
    assert linear(Tally(TOY), "here", [(ONE, inexact)], ONE).error > ONE / 8 + TOY.least
    assert linear(Tally(TOY), "here", [(ONE, inexact), (ONE, channel(ZERO, ONE, ONE))]).error > ONE / 8 + TOY.least


def test_zeros_add_nothing_unless_they_are_off() -> None:
    off = Channel(ZERO, ZERO, ZERO, ONE / 8)
    assert linear(Tally(TOY), "here", [(ONE, EMPTY)]).largest == 0
    assert linear(Tally(TOY), "here", [(ONE, off)]).error >= ONE / 8
    assert linear(Tally(TOY), "here", [(ONE, channel(ZERO, ONE, ONE)), (ONE, EMPTY)]).positive
    assert not linear(Tally(TOY), "here", [(-ONE, channel(ZERO, ONE, ONE))]).positive
    assert not linear(Tally(TOY), "here", [(ONE, channel(ZERO, ONE, ONE))], -ONE).positive
    assert not linear(Tally(TOY), "here", [(ONE, channel(-ONE, ONE, ONE))]).positive


def test_tables_are_refused_where_machine_integers_or_floats_do_not_hold_them() -> None:
    one = block([[ONE]], [ZERO], [[ONE]], [ZERO])
    whole = channel(ZERO, Fraction(9), ONE)
    assert table_for(one, [whole], None) is not None
    two = block([[ONE, ONE]], [ZERO], [[ONE], [ZERO]], [ZERO, ZERO])
    assert table_for(two, [whole, whole], None) is None  # a unit of two channels
    apart = block([[ONE, ZERO], [ZERO, ONE]], [ZERO, ZERO], [[ONE, ZERO], [ZERO, ZERO]], [ZERO, ZERO])
    assert table_for(apart, [whole, whole], None) is None
    for source in (
        channel(ZERO, Fraction(9), ONE, ONE / 8), EMPTY, channel(ZERO, Fraction(1 << 17), ONE),
        channel(Fraction(SAFE), Fraction(SAFE + 1), ONE), channel(ONE / 2, Fraction(9, 2), ONE),
        Channel(Fraction(-SAFE), Fraction(1 - SAFE), ONE),
    ):  # fmt: skip
        assert table_for(one, [source], None) is None, source
    assert table_for(one, [channel(ZERO, Fraction((1 << 17) - 1), ONE)], None) is not None
    other = block([[ZERO, ONE]], [ZERO], [[ONE], [ZERO]], [ZERO, ZERO])
    assert table_for(other, [whole, whole], None) is None  # it writes a channel that is not a function of the other
    assert table_for(other, [channel(ONE, ONE, ONE), whole], None) is not None
    biased = block([[ZERO, ONE]], [ZERO], [[ZERO], [ONE]], [ONE, ZERO])
    assert table_for(biased, [whole, whole], None) is None
    for value in (Fraction(-3), ZERO, Fraction(5, 2)):
        table = table_for(other, [channel(value, value, abs(value)), whole], None)
        assert table is not None
        assert {int(n) * table.columns[0].unit for n in table.columns[0].numbers} == {value}
    known = ValueTable({0: Enumerated(np.array([3, 3]), ONE)}, 2)
    found = table_for(one, [channel(Fraction(3), Fraction(3), Fraction(3))], known)
    assert found is not None and found.values == 2  # the present table goes on
    large = ValueTable({0: Enumerated(np.array([SAFE // 2, 1], dtype=np.int64), ONE)}, 2)
    for rows in (block([[Fraction(2)]], [ONE], [[ONE]], [ZERO]), block([[ONE]], [ZERO], [[ONE]], [ZERO])):
        with pytest.raises(NotShown) if rows.weight1.rows[0][0][1] == 1 else nullcontext():
            assert table_ranges(Tally(TOY), "here", rows, [whole], large) is None
    third = ValueTable({0: Enumerated(np.array([0, 1]), Fraction(1, 3))}, 2)
    assert table_ranges(Tally(TOY), "here", one, [whole], third) is None
    nothing = ValueTable({0: Enumerated(np.zeros(2, dtype=np.int64), ZERO)}, 2)
    found_nothing = table_ranges(Tally(TOY), "here", one, [EMPTY], nothing)
    assert found_nothing is None or found_nothing[0][0] == EMPTY


def test_links_of_one_unknown_add_up_to_whole_numbers() -> None:
    third = Channel(Fraction(-2), Fraction(2), ZERO, ONE / 4, False, (Link(1, Fraction(1, 3), ONE),))
    (found,) = residual_ranges(Tally(TOY), "here", block([[ONE]], [Fraction(4)], [[Fraction(2)]], [ZERO]), [third])
    assert (found.low, found.high, found.rest, found.unit) == (2, 14, 8, 1)


def test_a_unit_that_is_dead_writes_nothing() -> None:
    low = channel(Fraction(-4), -ONE, ONE, ONE / 2)
    layer = block([[ONE]], [ZERO], [[ONE]], [ZERO])
    assert residual_ranges(Tally(TOY), "here", layer, [low]) == [low]
    near = channel(Fraction(-4), ZERO, ONE, ONE / 2)  # its float may be positive
    assert residual_ranges(Tally(TOY), "here", layer, [near])[0].error > ONE / 2


def test_draws_cover_all_kinds_of_channels() -> None:
    rng, unknowns = random.Random(3), dict[int, Fraction]()
    found = [d for _ in range(200) for d in drawn_stream(rng, 3, unknowns)]
    kinds: list[tuple[Drawn, bool]] = [(d, bool(d.channel.error)) for d in found]
    assert 50 < sum(inexact for _, inexact in kinds) < 500
    assert {bool(d.channel.links) for d in found} == {bool(d.channel.positive) for d in found} == {True, False}


def test_a_table_whose_sums_wrap_around_is_left_to_the_ranges() -> None:
    """2^53 times 2^11 is 0 in machine integers: the sum of absolute terms would look like 1."""
    old, part = (Enumerated(np.array(numbers, dtype=np.int64), ONE) for numbers in ([1, 1], [0, 1 << 53]))
    tally = Tally(FORMATS["float64"])
    assert _added(tally, "here", old, [(part, Fraction(1 << 11))], ZERO) is None
    found = _added(tally, "here", old, [(old, Fraction(1 << 40))], -ONE)
    assert found is not None and found.numbers.tolist() == [1 << 40, 1 << 40]
