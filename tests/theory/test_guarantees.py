"""Budgets of parameters: what the builders plan stays below what is guaranteed, over many more shapes than are built.

`native` decides its shape before it draws anything, so its plans can be compared without building: K up to a million,
every way of bringing tokens together, both float types, fingerprints, and ids that had to be lengthened.
"""

from __future__ import annotations

import itertools

import pytest

import byheart
from byheart.build.native.construction import PATIENCE, _front_parameters
from byheart.build.native.layout import Layout, float_type
from byheart.build.native.plan import MOST_WORDS, Need, choose, smallest_capacity
from byheart.build.native.tokens import sizing
from byheart.errors import BuildError
from byheart.exact.number import Values
from byheart.theory.guarantees import ks25, table1
from byheart.theory.guarantees.compact import CompactFacts, compact_budget
from byheart.theory.guarantees.native import (
    MANTISSA,
    SPARE_BITS,
    WORD_BITS,
    Mixing,
    NativeFacts,
    cheapest_bucket_bits,
    fullest,
    native_budget,
    words_per_bit,
)

MIXINGS = [(Mixing.FULL, False), (Mixing.FULL, True), (Mixing.POOL, False), (Mixing.PREFIX_SUM, True)]
MIXINGS += [(Mixing.PREFIX_MEAN, False)]
MANY_KEYS = (*range(1, 40), 100, 150, 300, 1000, 2000, 5000, 10**4, 30_000, 10**5, 300_000, 10**6)


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


def reference(facts: NativeFacts, dtype: str, spare: int, capacity: dict[tuple[int, int, int], int]) -> int | None:
    """Parameters of one shape that the planner considers, at the budget's own b and Z: its plan is not larger."""
    kind, t = float_type(dtype), facts.targets
    try:
        size = sizing(kind, facts.mixing, facts.length, facts.positions, facts.contexts, spare)
    except BuildError:
        return None
    b = cheapest_bucket_bits(facts)
    words, key = words_per_bit(facts, b), (facts.contexts, b, t)
    if key not in capacity:
        capacity[key] = smallest_capacity(facts.contexts, b, t, PATIENCE)
    least = -(-capacity[key] // (kind.longest_word - 1))
    assert least <= words <= min(MOST_WORDS, least + 12) and t * words >= size.chains, facts
    levels = max(2, -(-capacity[key] // words) + 1)
    shape = Layout(kind, 1, t - 1, b, words, levels, size.chains, size.warmup, size.scale)
    return shape.parameters + _front_parameters(facts.mixing, facts.length, shape) + facts.ids * shape.width


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("keys", [(1, 2, 9, 60, 700), pytest.param(MANY_KEYS, marks=pytest.mark.slow)])
def test_plans_stay_below_the_budget(dtype, keys):
    capacity: dict[tuple[int, int, int], int] = {}
    shares = []
    for mixing, positions in MIXINGS:
        for n in (1, 3, 8, 28) if mixing is Mixing.PREFIX_MEAN else (1, 3, 8, 100, 3000):
            for K, t, ids in itertools.product(keys, (1, 2, 9, 33), (0, 100, 50_000)):
                facts = NativeFacts(MANTISSA[dtype], mixing, positions, K, t, n, ids)
                found = [reference(facts, dtype, spare, capacity) for spare in (0, SPARE_BITS)]
                shares += [size / native_budget(facts) for size in found if size is not None]
                assert not shares or shares[-1] <= 1, facts
    assert max(shares) <= 1 and max(shares) > 0.9, "a budget that is never nearly used means nothing"


@pytest.mark.parametrize("mixing", [Mixing.FULL, Mixing.PREFIX_SUM])
def test_the_planner_is_not_worse_than_the_reference(mixing):
    facts = NativeFacts(53, mixing, True, 700, 3, 9, 400)
    plan = planned("float64", mixing, True, 9, 700, 3, 0, 400)
    assert plan is not None and plan <= (reference(facts, "float64", 0, {}) or 0) <= native_budget(facts)


def test_large_plans_with_fingerprints_stay_below_the_budget():
    """The first formula, 40(t + 1)√K + …, was broken here: 688,225 of 496,640, and 109,891 of 83,734."""
    for keys, targets, n in ((100_000, 33, 1), (1_000_000, 1, 100)):
        plan = planned("float64", Mixing.FULL, False, n, keys, targets, 0)
        assert plan is not None
        assert plan <= native_budget(NativeFacts(53, Mixing.FULL, False, keys, targets, n)) <= 2 * plan


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
        assert memory.certificate.verdict == "proved" and memory.certificate.guarantee == "kept"


def test_speed_guarantees_no_size():
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


def test_what_sums_tell_apart_is_not_guaranteed_a_hash():
    """A few random rows take about half of what is guaranteed; it was a sixth when every guarantee had a token hash."""
    rows = [tuple((31 * k * k + 17 * k * j + j**3) % 997 for j in range(5)) for k in range(60)]
    labels = [k * k % 7 % 2 for k in range(60)]
    memory = byheart.memorize(rows, labels, positions=False, progress=False, head="logits", effort="quick")
    assert memory.certificate.guarantee == "kept"
    assert memory.claim.bounds["parameters"] < 3 * memory.size.parameters


@pytest.mark.parametrize("rows", [["a"], ["ab", "ba"]])
def test_the_guarantee_of_few_rows_is_a_line_through_them(rows):
    memory = byheart.memorize(rows, list(range(len(rows))), progress=False, head="value", abstain_bits=0)
    assert memory.certificate.guarantee == "kept" and memory.claim.bounds["parameters"] <= 50


@pytest.mark.parametrize("rows", [["a"], ["ab", "ba"], ["abc", "bca", "cab"]])
def test_few_rows_may_abstain_with_many_bits(rows):
    """Forty bits were refused: the walk is at least so long that it may end anywhere, which no term allowed for."""
    memory = byheart.memorize(rows, [0] * len(rows), progress=False, abstain_bits=40, effort="quick")
    assert (memory.certificate.verdict, memory.certificate.guarantee) == ("proved", "kept")


@pytest.mark.parametrize("form", ["plain", "residual"])
@pytest.mark.parametrize(("count", "bits"), [(1, 1), (7, 1), (150, 3)])
def test_the_cheapest_cut_of_park21_is_found_by_trying_all(form, count, bits):
    """The group with the fewest parameters; a shorter list of groups is never cheaper."""
    best = table1.cheapest_cut(count, bits, form)
    assert 1 <= best.group <= count
    every = [table1.cheapest_cut(count, bits, form, [group]) for group in range(1, count + 1)]
    assert best in every and best.places >= 1
    assert table1.table_length(count, best.group) == best.group * count + 1
    assert table1.longest_table(count, best.group) > table1.table_length(count, best.group)


@pytest.mark.parametrize(
    ("contexts", "n", "dimension", "heads"),
    [(1, 8, 8, 1), (100, 1, 8, 1), (100, 8, 8, 15), (100, 2, 8, 99), (100, 8, 1, 99), (15, 8, 8, 2)],
)
def test_heads_of_mahdavi24_store_rank_less_one_contexts(contexts, n, dimension, heads):
    assert table1.head_count(contexts, n, dimension) == heads


@pytest.mark.parametrize("form", ["plain", "residual"])
def test_entries_of_ks25_are_the_best_of_a_wider_search(form):
    from byheart.theory.upper import explicit_memory

    def cost(entries, K):
        return explicit_memory(-(-entries // K), K, 20, 2, form=form, width=14).parameters

    for entries in (1, 10, 300):
        found = ks25.cheapest(entries, 20, 2, form, 14)
        assert cost(entries, found) == min(cost(entries, K) for K in range(1, entries + 2))


@pytest.mark.parametrize("form", ["plain", "residual"])
def test_the_least_depth_is_the_least(form):
    need = (500, 20, 2)
    least = ks25.least_depth(need, form)
    assert ks25.lanes_within(least, *need, form) is not None
    assert all(ks25.lanes_within(depth, *need, form) is None for depth in range(1, least))
    bounds = [ks25.lanes_guarantee(depth, 2, 3, form, 9) for depth in (least, 2 * least)]
    assert bounds[0]["parameters"] < bounds[1]["parameters"] and bounds[0]["width"] == bounds[1]["width"] == 28
    assert str(least) in str(ks25.too_shallow(3, "a memory", least))


def test_a_grid_shortens_keys_only_where_points_lie_on_one():
    small = Values.of([[0, 0], [0, 1], [1, 0]])
    assert ks25.grid_key_bits(small) == 4, "2·(2·2) + 2 = 10 has four bits"
    scaled = Values.of([[0, 0], [0, 1 << 60], [1 << 60, 0]])
    assert ks25.grid_key_bits(scaled) == 4, "the unit of the grid does not count"
    assert ks25.grid_key_bits(Values.of([[0, 0], [1, 1 << 400]])) is None
