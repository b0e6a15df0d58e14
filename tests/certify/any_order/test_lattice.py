"""Float sums in a type of six bits: what the rules call exact is exact in every order, and errors hold the rest."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest

from byheart.certify.any_order.lattice import (
    EMPTY,
    ZERO,
    Channel,
    FloatFormat,
    InputFacts,
    Link,
    NotShown,
    Tally,
    channel,
    common_unit,
    facts_of,
    join,
    linear_lattice,
    power_of_two_part,
    rounded_up,
)
from byheart.data.dataset.dataset import load
from byheart.errors import DataError
from byheart.exact.number import Values, dyadic
from byheart.ir.network import Inputs
from tests.certify.any_order.toy import TOY, Overflow, ToyEngine, drawn, fits, numbers, rounded

ONE = Fraction(1)
HALF = FloatFormat("float16", 11, -14, 16)


def test_the_oracle_rounds_as_numpy_does() -> None:
    rng = random.Random(0)
    for _ in range(3000):
        x = Fraction(rng.randint(-(1 << 30), 1 << 30)) * Fraction(2) ** rng.randint(-58, -16)
        assert rounded(x, HALF) == Fraction(float(np.float16(float(x))))
    with pytest.raises(Overflow):
        rounded(Fraction(65520), HALF)
    assert rounded(Fraction(1, 1 << 15), HALF, flush=True) == 0


def test_a_type_holds_its_normal_numbers_and_no_others() -> None:
    normal = {Fraction(m) * Fraction(2) ** e for m in range(32, 64) for e in range(-9, 5)}
    for m in range(1, 140):
        for e in range(-12, 9):
            value = Fraction(m) * Fraction(2) ** e
            assert TOY.holds(dyadic(m, e)) == TOY.holds(dyadic(-m, e)) == (value in normal), (m, e)
    assert TOY.holds(0) and (TOY.least, TOY.bound) == (min(normal), max(normal) * 64 / 63)


def test_sums_fit_if_every_multiple_of_their_lattice_is_a_float() -> None:
    tally = Tally(TOY)
    for k in range(-7, 10):
        step = Fraction(2) ** k
        for n in (1, 2, 3, 15, 31, 32, 33, 62, 63, 64, 65, 66, 127, 128):
            multiples = [step * m for m in range(1, n + 1)]
            fine = all(TOY.least <= x < TOY.bound for x in multiples) and all(rounded(x) == x for x in multiples)
            assert tally.fits(step, step * n) == fine, (step, n)
    assert not tally.fits(None, ONE) and tally.fits(Fraction(64), Fraction(1023))
    assert not tally.fits(ZERO, ZERO)


@pytest.mark.parametrize("seed", range(4))
def test_sums_of_floats_stay_within_their_error(seed: int) -> None:
    """Terms of all sizes, off by what they carry, in every kind of order."""
    rng, exact = random.Random(seed), 0
    for _ in range(1500):
        tally, engine = Tally(TOY), ToyEngine(rng)
        terms = [(numbers(rng), drawn(rng, {})) for _ in range(rng.randint(1, 5))]
        total = sum((abs(w) * d.channel.largest for w, d in terms), ZERO)
        carried = sum((abs(w) * d.channel.error for w, d in terms), ZERO)
        unit = common_unit(*(abs(w) * d.channel.unit for w, d in terms))
        try:
            error = tally.error("here", total, unit, carried, len(terms))
            shown = engine.sum([(w, d.float) for w, d in terms])
        except NotShown:
            continue
        assert abs(shown - sum(w * d.value for w, d in terms)) <= error
        exact += not error
    assert exact > 100


@pytest.mark.parametrize("carried", [ZERO, Fraction(1, 16), Fraction(9)])
@pytest.mark.parametrize("size", [Fraction(1, 1 << 12), ONE, Fraction(20)])
def test_an_engine_that_rounds_all_it_may_in_one_direction_stays_within_the_error(
    size: Fraction, carried: Fraction
) -> None:
    """(a op b)(1 + d) + e at every operation, d = 2^-6 and e the least normal number: products, sums, the last cut."""

    def up(x: Fraction) -> Fraction:
        return x * (1 + Fraction(1, 64)) + TOY.least

    for count in range(1, 15):
        terms = [size, *[size / 1024] * (count - 1)]  # every partial sum is almost the total
        total = up(terms[0] + carried)
        for term in terms[1:]:
            total = up(total + up(term))
        try:
            error = Tally(TOY).error("here", sum(terms), Fraction(1, 3), carried, count)
        except NotShown:
            assert size + carried > 20
            continue
        assert carried < up(total) - sum(terms) <= error


def test_every_order_of_a_sum_at_the_limit_is_exact_and_one_unit_more_is_not() -> None:
    """64 units are the most that six bits hold: 33 + 30 + 1, and not 33 + 31 + 1."""
    for terms, fine in (((33, 30, 1), True), ((33, -30, 1), True), ((33, 31, 1), False), ((64, 1), False)):
        error = Tally(TOY).error("here", Fraction(sum(map(abs, terms))), ONE, ZERO, len(terms))
        assert (not error) == fine
        found = set()
        for order in permutations(map(Fraction, terms)):
            total = ZERO
            for term in order:
                total = rounded(total + term)
            found.add(total)
        assert found == {Fraction(sum(terms))} or not fine
        assert all(abs(x - sum(terms)) <= error for x in found)


def test_the_end_of_the_range_ends_the_proof() -> None:
    tally = Tally(TOY)
    tally.finite("here", TOY.bound / 2)
    for call in (
        lambda: tally.finite("here", TOY.bound / 2 + ONE),
        lambda: tally.error("here", TOY.bound / 2 - ONE, Fraction(1, 64), TOY.bound / 8, 1),
        lambda: tally.scaled("here", TOY.bound / 2, ONE),
        lambda: tally.rounding("here", TOY.bound / 2 - ONE, ZERO, 16),
    ):
        with pytest.raises(NotShown, match="overflow toy"):
            call()
    assert tally.rounding("here", ONE, ZERO, 16) > 0
    with pytest.raises(NotShown, match="too many terms"):
        tally.rounding("here", ONE, ZERO, 17)


def test_a_power_of_two_may_lose_a_float_to_underflow() -> None:
    """Kept, flushed or rounded: the error is at most the least normal number more."""
    for flush in (False, True):
        for k in range(1, 16):
            x = Fraction(k, 256)
            for power in (1, 2, 8, 64):
                shown = rounded(x / power, flush=flush)
                assert abs(shown - x / power) <= Tally(TOY).scaled("here", x / power, ZERO)
    assert Tally(TOY).scaled("here", ONE, Fraction(1, 3)) == Fraction(1, 3) + TOY.least


def test_the_tally_keeps_the_worst_sum_and_the_first_few_that_round() -> None:
    tally = Tally(TOY)
    tally.error("small", Fraction(3), ONE, ZERO, 2)
    tally.error("large", Fraction(5), Fraction(1, 2), ZERO, 2)
    tally.error("equal", Fraction(10), ONE, ZERO, 2)
    assert (tally.worst, tally.worst_place) == (10, "large")
    tally.note("nothing", Fraction(100), None)
    tally.note("finer", Fraction(4), Fraction(1, 4))
    assert (tally.worst, tally.worst_place) == (16, "finer")
    for k in range(6):
        tally.error(f"at {k}", Fraction(4), Fraction(1, 3), ZERO, 2)
    tally.error("later", Fraction(4), ONE, ONE, 2)
    assert tally.worst == 16 and len(tally.rounded) == 4 and tally.rounded[0].startswith("at 0: a sum on no power")
    assert Tally(TOY).error("zeros", ZERO, ZERO, ZERO, 3) == 0
    other = Tally(TOY)
    other.error("here", Fraction(80), ONE, ZERO, 2)
    other.error("there", ONE, ONE, ONE, 2)
    assert other.rounded == ["here: a sum of 2^6.32 units", "there: inexact terms"]
    assert (other.new_name(), other.new_name()) == (1, 2)


def test_errors_are_rounded_up_in_few_bits() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        error = Fraction(rng.randint(1, 1 << rng.randint(1, 200)), rng.randint(1, 1 << rng.randint(1, 200)))
        found = rounded_up(error, 8)
        assert error <= found <= error * Fraction(65, 64)
        assert found.numerator.bit_length() <= 10 or found.denominator == 1
    assert rounded_up(Fraction(3 << 90)) == 3 << 90


def test_channels_describe_what_they_can_hold() -> None:
    link = Link(1, Fraction(1, 3), Fraction(-2))
    held = Channel(Fraction(-4), Fraction(3), ONE, links=(link,))
    assert held.unit == Fraction(1, 3) and held.largest == 4
    assert channel(ZERO, ONE, ZERO) == EMPTY and channel(ZERO, ONE, ZERO, links=(link,)).links == (link,)
    single = channel(Fraction(-6), Fraction(-6), ONE)
    assert single.rest == 6 and single.constant and not channel(ZERO, ONE, ONE).constant
    assert not Channel(ONE, ONE, ONE, Fraction(1, 9)).constant
    assert (
        Channel(ONE, Fraction(2), ONE, ONE).never_negative
        and not Channel(ONE, Fraction(2), ONE, ONE * 2).never_negative
    )
    assert Channel(-ONE, ONE, ONE, ONE, positive=True).never_negative and not Channel(-ONE, ONE, ONE).never_negative


@pytest.mark.parametrize("seed", range(2))
def test_joined_channels_hold_what_either_holds(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(1500):
        unknowns: dict[int, Fraction] = {}
        several = [drawn(rng, unknowns) for _ in range(rng.randint(1, 3))]
        found = join([d.channel for d in several])
        for one in several:
            assert not fits(found, one.value, one.float, unknowns), (found, one)


@pytest.mark.parametrize("seed", range(2))
def test_lattices_of_sums_remember_shared_unknowns(seed: int) -> None:
    """Three times a third is whole: k tokens times their mean."""
    rng, whole = random.Random(seed), 0
    for _ in range(1500):
        unknowns: dict[int, Fraction] = {}
        terms = [(Fraction(rng.randint(-6, 6), 2), drawn(rng, unknowns)) for _ in range(4)]
        constant = numbers(rng)
        rest, links = linear_lattice([(w, d.channel) for w, d in terms], constant)
        exact = constant + sum(w * d.value for w, d in terms)
        left = exact - sum((link.coefficient * link.unit * unknowns[link.name] for link in links), ZERO)
        assert (left / rest).denominator == 1 if rest else not left
        assert all(link.coefficient for link in links) and len({link.name for link in links}) == len(links)
        whole += any(d.channel.links for _, d in terms) and not links
    assert whole > 20


def test_units_and_powers_of_two() -> None:
    assert common_unit(Fraction(1, 3), Fraction(1, 2)) == Fraction(1, 6) and common_unit(ZERO, ONE) == 1
    for k in range(1, 200):
        unit = Fraction(k, 16)
        found = power_of_two_part(unit)
        assert found is not None and (unit / found).numerator % 2 == 1 and (unit / found).denominator == 1
    assert power_of_two_part(Fraction(1, 6)) is None


def facts(length: int = 2, ragged: bool = False, positions: bool = False) -> InputFacts:
    code = channel(Fraction(-1), Fraction(3), Fraction(1, 2))
    place = channel(ZERO, Fraction(length - 1), ONE)
    return InputFacts(length, ragged, (code, place) if positions else (code,), positions)


ROWS: tuple[tuple[InputFacts, list[list[list[Fraction | int]]], bool], ...] = (
    (facts(), [[[1], [Fraction(3, 2)]]], True),
    (facts(), [[[-1], [3]]], True),
    (facts(), [[[1]]], False),
    (facts(ragged=True), [[[1]], [[1], [0]]], True),
    (facts(ragged=True), [[[1], [0], [0]]], False),
    (facts(), [[[Fraction(7, 2)], [0]]], False),
    (facts(), [[[Fraction(-3, 2)], [0]]], False),
    (facts(), [[[Fraction(1, 4)], [0]]], False),
    (facts(positions=True), [[[1, 0], [1, 1]]], True),
    (facts(positions=True), [[[1, 1], [1, 0]]], False),
    (facts(positions=True), [[[1, 0], [1, 0]]], False),
    (facts(), [[[1, 0], [1, 1]]], False),
    (InputFacts(1, False, (EMPTY,)), [[[0]]], True),
    (InputFacts(1, False, (EMPTY,)), [[[1]]], False),
    (InputFacts(1, False, (channel(ZERO, ZERO, ONE),)), [[[0]]], True),
    (facts(ragged=True), [], True),
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_rows_are_allowed_if_all_their_numbers_are(number: int) -> None:
    given, rows, allowed = ROWS[number]
    points = [[Fraction(x) for x in token] for row in rows for token in row] or [[ZERO] * len(given.coordinates)]
    width, at, index = max((len(row) for row in rows), default=1), 0, []
    for row in rows:
        index.append([*range(at, at + len(row)), *([-1] * (width - len(row)))])
        at += len(row)
    values = Values.of([[int(4 * x) for x in point] for point in points], 4)
    places = np.array(index, dtype=np.int64).reshape(len(rows), width)
    assert given.allow(Inputs(values, places)) == allowed


def test_facts_cover_symbols_vectors_positions_and_padding() -> None:
    words = load(["abc", "ab"], [[0, 1, 0], [0, 1]], task="causal", positions=True)
    found = facts_of(words.encoder, words.inputs)
    symbols = len(words.encoder.symbols or ())
    assert found.ragged and found.positions and found.length == 3 and found.allow(words.inputs)
    assert [(c.low, c.high) for c in found.coordinates] == [(0, symbols), (0, 2)]
    assert found.absent is not None and [c.low for c in found.absent] == [-1, 0]
    wider = found.with_absent()
    assert wider.absent is None and wider.coordinates[0].low == -1 and wider.with_absent() is wider
    assert found.at(1)[-1] == channel(ONE, ONE, ONE) and found.at(1)[0] == found.coordinates[0]
    plain = load(["abc", "abb"], [0, 1], positions=False)
    other = facts_of(plain.encoder, None)
    assert not other.ragged and other.absent is None and other.at(2) == other.coordinates
    vectors = load([[(0.5, -2.0), (1.5, 4.0)], [(2.0, 1.0)]], [0, 1], task="set", positions=False)
    box = facts_of(vectors.encoder, vectors.inputs)
    assert box.allow(vectors.inputs) and box.absent is not None and [c.low for c in box.absent] == [0, 0]
    assert [(c.high, c.unit) for c in box.coordinates] == [(2, Fraction(1, 2)), (4, 1)]
    assert box.coordinates[0].low <= Fraction(1, 2) and box.coordinates[1].low == -2
    with pytest.raises(DataError, match="only from the data"):
        facts_of(vectors.encoder, None)


@pytest.mark.parametrize("change", [lambda f: f, lambda f: f.with_absent()])
def test_facts_without_absent_tokens_stay_as_they_are(change: Callable[[InputFacts], InputFacts]) -> None:
    assert change(facts()) == facts()
