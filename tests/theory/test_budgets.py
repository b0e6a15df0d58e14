"""Budgets of parameters: what the builders plan stays below what is promised, over many more shapes than are built.

`native` decides its shape before it draws anything, so its plans can be compared without building: K up to a million,
every way of bringing tokens together, both float types, fingerprints, and ids that had to be lengthened.
"""

from __future__ import annotations

import pytest

import byheart
from byheart.build.native.construction import PATIENCE, _front_parameters
from byheart.build.native.layout import float_type
from byheart.build.native.plan import Need, choose, smallest_capacity
from byheart.build.native.tokens import sizing
from byheart.errors import BuildError
from byheart.theory.promises.compact import CompactFacts, compact_budget
from byheart.theory.promises.native import MANTISSA, SPARE_BITS, WORD_BITS, Mixing, NativeFacts, fullest, native_budget

MIXINGS = [(Mixing.FULL, False), (Mixing.FULL, True), (Mixing.POOL, False), (Mixing.PREFIX_SUM, True)]
MIXINGS += [(Mixing.PREFIX_MEAN, False)]


def planned(
    dtype: str, mixing: Mixing, positions: bool, n: int, keys: int, targets: int, spare: int, ids: int = 0
) -> int | None:
    """Parameters of the plan with a table of so many token ids; None where the float type is too small for the rows."""
    try:
        size = sizing(float_type(dtype), mixing, n, positions, keys, spare)
        need = Need(float_type(dtype), keys, 1, targets - 1, size.chains, size.warmup, size.scale)
        front = lambda layout: _front_parameters(mixing, n, layout) + ids * layout.width  # noqa: E731
        shape = choose(need, "size", PATIENCE, front)
    except BuildError:
        return None
    return shape.parameters + front(shape)


def over_budget(
    dtype: str, lengths: dict[Mixing, tuple[int, ...]], keys: list[int], targets: list[int], ids: int
) -> list[str]:
    found, shares = [], []
    for mixing, positions in MIXINGS:
        for n in lengths.get(mixing, lengths[Mixing.FULL]):
            for K in keys:
                for t in targets:
                    budget = native_budget(NativeFacts(MANTISSA[dtype], mixing, positions, K, t, n, ids))
                    for spare in (0, SPARE_BITS):
                        plan = planned(dtype, mixing, positions, n, K, t, spare, ids)
                        if plan is not None:
                            shares.append(plan / budget)
                            found += [f"{mixing}, n={n}, K={K}, t={t}: {plan} of {budget}"] * (plan > budget)
    assert shares and max(shares) > 0.5, "a budget that is never nearly used says nothing"
    return found


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_plans_stay_below_the_budget(dtype):
    assert not over_budget(dtype, {Mixing.FULL: (9,)}, [1, 700], [3], 400)


def test_large_plans_with_fingerprints_stay_below_the_budget():
    """The first formula, 40(t + 1)√K + …, was broken here: 688,225 of 496,640, and 109,891 of 83,734."""
    for keys, targets, n in ((100_000, 33, 1), (1_000_000, 1, 100)):
        plan = planned("float64", Mixing.FULL, False, n, keys, targets, 0)
        assert plan is not None
        assert plan <= native_budget(NativeFacts(53, Mixing.FULL, False, keys, targets, n)) <= 2 * plan


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("ids", [0, 50_000])  # a large table asks for a narrow stream
def test_thousands_of_plans_stay_below_the_budget(dtype, ids):
    keys = [1, 2, 3, 5, 10, 40, 100, 300, 1000, 5000, 10**4, 50_000, 10**5, 10**6]
    lengths = {Mixing.FULL: (1, 3, 8, 100, 3000), Mixing.PREFIX_MEAN: (1, 3, 8, 28)}
    assert not over_budget(dtype, lengths, keys, [1, 2, 5, 9, 17, 33], ids)


def test_the_fullest_bucket_is_bounded():
    for keys in (1, 2, 3, 7, 20, 100, 1000, 30_000):
        for bucket_bits in range(min(16, keys.bit_length()) + 1):
            for targets in (1, 40):
                found = smallest_capacity(keys, bucket_bits, targets, PATIENCE)
                assert found <= fullest(keys, bucket_bits), (keys, bucket_bits)


def test_constants_are_those_of_the_float_types():
    for name, mantissa in MANTISSA.items():
        assert float_type(name).mantissa == mantissa and float_type(name).longest_word - 1 == WORD_BITS[mantissa]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("rows", [[[(1.5, 2.0)], [(0.5, 1.0)]], [[(0.0,), (0.0,)], [(1.0,), (0.0,)], [(1.0,), (1.0,)]]])
def test_the_lowest_vector_may_have_any_label(dtype, rows):
    """Folds leave 0 where it is: its hash bits were all 0, and every label but the first was out of reach."""
    for labels in (range(len(rows)), reversed(range(len(rows)))):
        memory = byheart.memorize(rows, list(labels), construction="native", progress=False, dtype=dtype)
        assert memory.certificate.verdict == "proved" and memory.certificate.promise == "kept"


def test_speed_promises_no_size():
    memory = byheart.memorize(["ab", "ba"], [0, 1], construction="native", objective="speed", progress=False)
    assert not memory.claim.bounds and memory.claim.properties


@pytest.mark.parametrize("classes", [2, 3, 16, 300, 10**4])
def test_no_lower_bound_exceeds_what_holds_every_labelling(classes):
    """compact stores any labelling within its budget, so a bound for some labelling must lie below, for C > 2 too."""
    for contexts in (classes, 10 * classes, 10**6):
        bits = contexts.bit_length()
        facts = CompactFacts(contexts, classes, sum_bits=1, inputs=1, token_bits=bits, tokens=contexts)
        least = byheart.lower_bound(task="next-token", N=contexts, n=1, d=1, C=classes).parameters
        assert 0 < least <= min(compact_budget(facts, head=head) for head in ("value", "logits"))
