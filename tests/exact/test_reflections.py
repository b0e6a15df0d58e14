"""Chains of folds against the reference engine, number by number."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from byheart.exact import dyadic, engine, reference, reflections
from byheart.exact.number import Values
from byheart.exact.reference import Block, Map

NUMBERS = st.one_of(st.integers(-50, 50), st.integers(-(1 << 200), 1 << 200))
FOLDS = st.tuples(st.sampled_from([(1, -2), (2, -1), (-2, 1), (-1, 2)]), NUMBERS, st.one_of(st.just(0), NUMBERS))


def block(fold: tuple[tuple[int, int], int, int]) -> Block:
    (w, o), b, shift = fold
    return Block((((0, w),),), (b,), (((0, o),),), (shift,))


@settings(max_examples=200, deadline=None)
@given(st.lists(FOLDS, min_size=1, max_size=12), st.lists(NUMBERS, min_size=1, max_size=8), st.integers(1, 24))
@example([((2, -1), -10, 0)], [5, 6], 1)  # at the threshold nothing is reflected
@example([((2, -1), -(1 << 112), 0)] * 3, [(1 << 111) + 1, 1 << 111, -(1 << 113)], 1)
def test_equal_to_the_reference(folds, numbers, denominator) -> None:
    steps = [block(fold) for fold in folds]
    assert all(step.reflects for step in steps)
    values = Values.of([[x] for x in numbers], denominator)
    found, wanted = reflections.run(steps, values), reference.run(steps, values)
    assert [found.row(i) for i in range(len(numbers))] == [wanted.row(i) for i in range(len(numbers))]


def test_what_does_not_reflect() -> None:
    assert not Block((((0, 2),),), (1,), (((0, 1),),), (0,)).reflects  # stretches
    assert not Block((((0, 2),),), (dyadic(1, -1),), (((0, -1),),), (0,)).reflects  # not whole
    assert not Block((((0, 2),), ((0, 2),)), (1, 1), (((0, -1),),), (0,)).reflects  # two units


def test_the_engine_takes_it_between_other_steps() -> None:
    steps = [
        Map((((0, 3),),), (1,), False),
        *(block(((2, -1), -(1 << (70 - k)), 0)) for k in range(60)),
        Map((((0, 1),), ((0, dyadic(-3, -2)),)), (dyadic(5, -1), 0), False),
    ]
    values = Values.of([[k * 12345678901234567] for k in range(500)], 3)
    found, wanted = engine.run(steps, values), reference.run(steps, values)
    assert all(found.row(i) == wanted.row(i) for i in range(500))
