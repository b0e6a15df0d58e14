"""Compiled steps: weights as digits, values that are only carried, registers that are free again."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.exact import as_fraction, dyadic
from byheart.exact.program import LIMB, WIDE, _digits, compile_steps, limbs_of
from byheart.exact.reference import Block, Map

NUMBERS = st.builds(dyadic, st.integers(-(1 << 200), 1 << 200), st.integers(-150, 150))


@given(NUMBERS)
def test_the_digits_of_a_weight_add_up_to_it(weight):
    found = sum(
        (Fraction(digit) * Fraction(2) ** (LIMB * limb + shift) for digit, limb, shift, _, _ in _digits(weight)),
        Fraction(0),
    )
    assert found == as_fraction(weight)


@given(NUMBERS, st.integers(1, 1 << 70))
def test_the_limbs_of_a_constant_add_up_to_it(number, unit):
    start, limbs = limbs_of(number, unit)
    assert sum(Fraction(limb) * Fraction(2) ** (LIMB * (start + k)) for k, limb in enumerate(limbs)) == (
        as_fraction(number) * unit
    )
    assert all(0 <= limb < 1 << LIMB for limb in limbs[:-1])
    assert not limbs or limbs == [limbs[0]] or limbs[0] != 0, "zeros at the low end are not stored"


def test_a_value_that_is_only_carried_costs_nothing():
    swap = Map((((1, 1),), ((0, 1),)), (0, 0), False)
    program = compile_steps([swap], 2)
    assert len(program.target) == 0 and program.outputs == program.inputs[::-1]


def test_relu_is_needed_unless_the_value_is_known_not_to_be_negative():
    carry = Map((((0, 1),),), (0,), True)
    assert len(compile_steps([carry], 1).target) == 1
    assert len(compile_steps([carry, carry, carry], 1).target) == 1


@pytest.mark.parametrize("hidden", [3, WIDE + 1, 10 * WIDE])
def test_registers_do_not_grow_with_a_wide_block(hidden):
    rows1 = tuple((((0, k + 1), (1, 1))) for k in range(hidden))
    block = Block(rows1, (1,) * hidden, (tuple((k, 1) for k in range(hidden)), ()), (0, 0))
    program = compile_steps([block, block], 2)
    assert program.registers <= 2 + (hidden + 2 if hidden <= WIDE else 4)
    assert len(program.target) >= 2 * hidden
