"""The engines agree to the last bit on random networks over integers and dyadics of any length."""

from __future__ import annotations

import random

import pytest

from byheart.exact import Number, dyadic, engine, limbs, reference
from byheart.exact.number import Values
from byheart.exact.reference import Block, Map, Row, Step


def random_number(rng: random.Random, digits: int) -> Number:
    kind = rng.random()
    if kind < 0.4:
        return rng.choice([1, -1, 2, -2, 4, 3, 64, -65])
    if kind < 0.6:
        return rng.choice([1, -1]) << rng.randrange(300)
    mantissa = rng.randint(-(10**digits), 10**digits) or 1
    return dyadic(mantissa, -rng.randrange(200)) if kind < 0.8 else mantissa


def random_row(rng: random.Random, width: int, digits: int) -> Row:
    columns = sorted(rng.sample(range(width), rng.randint(0, min(width, 4))))
    return tuple((j, random_number(rng, digits)) for j in columns)


def random_steps(rng: random.Random, width: int, depth: int, digits: int) -> list[Step]:
    steps: list[Step] = []
    for _ in range(depth):
        if rng.random() < 0.5:
            rows = tuple(random_row(rng, width, digits) for _ in range(rng.randint(1, 6)))
            bias = tuple(random_number(rng, digits) if rng.random() < 0.5 else 0 for _ in rows)
            steps.append(Map(rows, bias, rng.random() < 0.7))
            width = len(rows)
        else:
            hidden = rng.randint(0, 8) if rng.random() < 0.9 else 80
            rows1 = tuple(random_row(rng, width, digits) for _ in range(hidden))
            bias1 = tuple(random_number(rng, digits) for _ in rows1)
            rows2 = tuple(random_row(rng, hidden, digits) if hidden else () for _ in range(width))
            bias2 = tuple(random_number(rng, digits) if rng.random() < 0.3 else 0 for _ in rows2)
            steps.append(Block(rows1, bias1, rows2, bias2))
    return steps


def random_values(rng: random.Random, width: int, count: int) -> Values:
    size = 10 ** rng.choice([1, 5, 40, 300])
    rows = [[rng.randint(-size, size) for _ in range(width)] for _ in range(count)]
    return Values.of(rows, rng.choice([1, 3, 8, 56, 2**70, 2**70 * 15]))


def equal(left: Values, right: Values) -> bool:
    return left.count == right.count and all(left.row(i) == right.row(i) for i in range(left.count))


@pytest.mark.parametrize("seed", range(60))
def test_limbs_equal_the_reference(seed: int) -> None:
    rng = random.Random(seed)
    width = rng.randint(1, 5)
    steps = random_steps(rng, width, rng.randint(1, 5), rng.choice([1, 3, 20, 60]))
    values = random_values(rng, width, rng.choice([1, 3, 300]))
    assert equal(reference.run(steps, values), limbs.run(steps, values))


@pytest.mark.parametrize("seed", range(30))
def test_breakpoints_equal_the_reference(seed: int) -> None:
    rng = random.Random(seed)
    hidden = rng.randint(1, 60)
    block = Block(
        tuple(((1, random_number(rng, 20)),) for _ in range(hidden)),
        tuple(random_number(rng, 20) for _ in range(hidden)),
        tuple(random_row(rng, hidden, 5) for _ in range(2)),
        (random_number(rng, 5), 0),
    )
    values = random_values(rng, 2, 50)
    assert equal(reference.run([block], values), engine.run_breakpoints(block, values))


def test_breakpoints_at_their_kinks() -> None:
    """Inputs exactly on a kink, one below and one above, for rising and falling units with equal kinks."""
    block = Block(
        (((0, 2),), ((0, -2),), ((0, 2),), ((0, -3),)), (-6, 6, -6, 10), (((0, 1), (1, 5), (2, -7), (3, 1)),), (4,)
    )
    values = Values.of([[k] for k in range(-2, 9)])
    assert equal(reference.run([block], values), engine.run_breakpoints(block, values))


def test_a_deep_chain_of_folds() -> None:
    """Values of a thousand bits through blocks whose interval bounds explode although the values do not."""
    rng = random.Random(3)
    steps: list[Step] = [Block((((0, 1),),), (-(1 << p),), (((0, -2),),), (0,)) for p in range(999, 0, -1)]
    values = Values.of([[rng.getrandbits(1000)] for _ in range(5)])
    assert equal(reference.run(steps, values), limbs.run(steps, values))


def test_the_engine_chooses_and_stays_equal() -> None:
    rng = random.Random(11)
    wide = Block(
        tuple(((0, 3 + 2 * u),) for u in range(100)),
        tuple(-(u * u) for u in range(100)),
        (tuple((u, 1 - 2 * (u % 2)) for u in range(100)),),
        (7,),
    )
    steps: list[Step] = [Map((((0, 5),),), (1,), True), wide, *random_steps(rng, 1, 2, 3)]
    values = Values.of([[rng.randint(-(10**6), 10**6)] for _ in range(700)])
    assert equal(reference.run(steps, values), engine.run(steps, values))


def test_an_interrupted_run_stops_cleanly() -> None:
    class Stop:
        def advance(self, count: int = 1) -> None:
            raise KeyboardInterrupt

    values = Values.of([[k] for k in range(2000)])
    with pytest.raises(KeyboardInterrupt):
        limbs.run([Map((((0, 5),),), (1,), True)], values, Stop())
