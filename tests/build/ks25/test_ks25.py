"""KS25's Transformers: the theorem, over a star, with short weights."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.certify import certify
from byheart.certify.properties import connections
from byheart.data.dataset.dataset import load
from byheart.errors import ConflictError, OptionError
from byheart.ir.evaluate import outputs
from byheart.ir.layers import Attention, GlobalToken, Pattern
from byheart.memory import memorize
from byheart.theory import theorems
from tests.build.ks25.grid import check, labels, memory, rows

STYLES = [(form, constants) for form in ("plain", "residual") for constants in ("paper", "measured")]
SOME = [(1, 1, 1, 1), (1, 8, 16, 10), (2, 2, 4, 2), (2, 1, 16, 1), (3, 8, 1, 10), (3, 2, 4, 1), (50, 1, 4, 2)]
SOME += [(50, 2, 16, 10), (50, 8, 1, 2), (50, 8, 4, 10)]


@pytest.mark.parametrize(("form", "constants"), STYLES)
@pytest.mark.parametrize(("N", "n", "d", "C"), SOME)
def test_next_token(N: int, n: int, d: int, C: int, form: str, constants: str) -> None:
    check(memory("ks25", N, n, d, C, form=form, constants=constants))


@pytest.mark.parametrize(("form", "constants"), STYLES)
def test_three_hundred_rows(form: str, constants: str) -> None:
    check(memory("ks25", 300, 8, 4, 10, form=form, constants=constants))


@pytest.mark.slow
@pytest.mark.parametrize(("form", "constants"), STYLES)
@pytest.mark.parametrize("N", [1, 2, 3, 50, 300])
def test_whole_grid(N: int, form: str, constants: str) -> None:
    for n, d, C in itertools.product((1, 2, 8), (1, 4, 16), (1, 2, 10)):
        check(memory("ks25", N, n, d, C, form=form, constants=constants, seed=N))


@pytest.mark.slow
def test_two_thousand_rows() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(2000, 8, 16))
    found = memorize(points, rng.integers(0, 10, 2000).tolist(), construction="ks25", positions=False, progress=False)
    check(found)


@pytest.mark.parametrize(("form", "constants"), STYLES)
@pytest.mark.parametrize(
    ("N", "n", "d", "C"), [(1, 1, 1, 1), (2, 3, 4, 2), (9, 4, 1, 3), (30, 5, 2, 10), (20, 16, 0, 4)]
)
def test_seq_to_seq(N: int, n: int, d: int, C: int, form: str, constants: str) -> None:
    check(memory("ks25", N, n, d, C, task="seq-to-seq", form=form, constants=constants))


@pytest.mark.slow
@pytest.mark.parametrize("construction", ["ks25", "ks25-sparse", "ks25-embedding"])
@pytest.mark.parametrize(("form", "constants"), STYLES)
def test_seq_to_seq_whole_grid(construction: str, form: str, constants: str) -> None:
    for N, n, d, C in ((2, 16, 16, 2), (50, 16, 1, 10), (300, 2, 4, 10), (300, 16, 2, 2)):
        d = 0 if construction == "ks25-embedding" else d
        check(memory(construction, N, n, d, C, task="seq-to-seq", form=form, constants=constants))


@settings(max_examples=30)
@given(
    data=st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=12),
    task=st.sampled_from(["next-token", "seq-to-seq"]),
    style=st.sampled_from(STYLES),
    positions=st.booleans(),
)
def test_whatever_the_rows(data: list[list[int]], task: str, style: tuple[str, str], positions: bool) -> None:
    known = labels(data, 3, task, positions)
    form, constants = style
    built = memorize(
        data,
        known,
        task=task,
        construction="ks25",
        positions=positions,
        progress=False,
        form=form,
        constants=constants,
    )
    check(built)
    assert built.predict(data) == known


def test_width_is_the_theorem_s() -> None:
    """The plain form needs 12, since x is carried anyway; with skip connections the hidden size is 14."""
    plain = memory("ks25", 60, 4, 2, 30, form="plain", constants="paper")
    residual = memory("ks25", 60, 4, 2, 30, form="residual", constants="paper")
    assert plain.size.width == 12 and residual.size.width == 14
    assert plain.claim.bounds["width"] == residual.claim.bounds["width"] == 14


@pytest.mark.parametrize("form", ["plain", "residual"])
def test_the_guarantee_is_the_theorem_s_formula(form: str) -> None:
    found = memory("ks25", 50, 4, 4, 10, form=form, constants="paper")
    assert found.dataset is not None
    data = found.dataset
    separation = data.separation
    setting = theorems.worst_case(
        data.N,
        data.n,
        data.d,
        data.C,
        r_squared=separation.r_squared,
        delta_squared=separation.delta_squared or 1,
    )
    guarantee = theorems.transformer(setting, form)
    assert found.claim.bounds["depth"] == guarantee.depth and found.claim.bounds["max_bits"] == guarantee.max_bits


def test_depth_of_the_residual_form() -> None:
    """1 + m + K·max(rho, c) + 3 blocks per memory and one averaging layer, below the guarantee from the data's
    facts."""
    found = memory("ks25", 50, 4, 4, 10, form="residual", constants="measured")
    assert found.size.depth <= found.claim.bounds["depth"] <= 3 * found.size.depth
    assert found.size.blocks == found.size.depth - 1


@pytest.mark.parametrize("form", ["plain", "residual"])
def test_softmax_and_hardmax_give_the_same_outputs(form: str) -> None:
    data = rows(0, 20, 4, 2)
    known = labels(data, 5, "next-token")
    inputs = load(data, known, positions=False).inputs
    found = {}
    for kind in ("uniform", "softmax", "hardmax"):
        built = memorize(data, known, construction="ks25", positions=False, progress=False, form=form, attention=kind)
        check(built)
        assert kind in built.certificate.arithmetic
        (layer,) = (layer for layer in built.network.layers if isinstance(layer, Attention))
        assert all((head.key is None) == (kind == "uniform") for head in layer.heads)
        state = outputs(built.network, inputs)
        found[kind] = [state.points.row(i) for i in state.index[:, 0]]
    assert found["uniform"] == found["softmax"] == found["hardmax"]


def test_repeated_and_permuted_rows_cost_nothing() -> None:
    once = memory("ks25", 30, 4, 2, 5)
    data = rows(0, 30, 4, 2)
    shuffled = [[*reversed(row[:-1]), row[-1]] for row in data]
    known = labels(data, 5, "next-token")
    twice = memorize(data + shuffled, known * 2, construction="ks25", positions=False, progress=False)
    check(twice)
    assert twice.size.parameters == once.size.parameters


def test_order_matters_with_positions() -> None:
    with pytest.raises(ConflictError):
        memorize(["abc", "bac"], [0, 1], construction="ks25", positions=False, progress=False)
    check(memorize(["abc", "bac"], [0, 1], construction="ks25", positions=True, progress=False))


def test_length_hardly_matters() -> None:
    """Own tokens in every row: parameters at n = 128 are within 1.6 times those at n = 8."""
    sizes = {}
    for n in (8, 128):
        found = memorize(
            np.arange(20 * n).reshape(20, n).tolist(),
            [i % 3 for i in range(20)],
            construction="ks25",
            positions=False,
            progress=False,
        )
        check(found)
        sizes[n] = found.size.parameters
    assert sizes[128] <= 1.6 * sizes[8]


def test_options_that_do_not_exist() -> None:
    for options in ({"form": "curly"}, {"constants": "guessed"}, {"attention": "sharp"}, {"colour": "red"}):
        with pytest.raises(OptionError):
            memorize(["a", "b"], [0, 1], construction="ks25", progress=False, **options)


def test_seed_is_all_the_chance_there_is() -> None:
    assert memory("ks25", 20, 3, 2, 3, seed=4).network == memory("ks25", 20, 3, 2, 3, seed=4).network


@pytest.mark.parametrize(("form", "constants"), STYLES)
@pytest.mark.parametrize(("N", "n", "d", "C"), [(1, 1, 1, 1), (3, 2, 4, 2), (40, 8, 2, 10)])
@pytest.mark.parametrize("task", ["next-token", "seq-to-seq"])
def test_sparse_star(N: int, n: int, d: int, C: int, task: str, form: str, constants: str) -> None:
    found = memory("ks25-sparse", N, n, d, C, task=task, form=form, constants=constants)
    check(found)
    assert found.size.attention_layers == 2
    assert connections(found.network, n) == 4 * n + 2


@pytest.mark.parametrize("attention", ["softmax", "hardmax"])
def test_other_attention(attention: str) -> None:
    check(memory("ks25-sparse", 20, 4, 2, 3, task="seq-to-seq", attention=attention))


def test_the_pattern_is_the_layer_s_not_the_weights() -> None:
    """With full patterns the same weights connect n² pairs and the guarantee of 4n + 2 is not kept."""
    found = memory("ks25-sparse", 10, 6, 2, 3)
    assert found.dataset is not None
    assert found.certificate.proofs == {"connections: 26": "attention connects 26 pairs of tokens, of 26 guaranteed"}
    layers = tuple(
        replace(layer, pattern=Pattern.FULL) if isinstance(layer, Attention) else layer
        for layer in found.network.layers
    )
    full = replace(found.network, layers=layers)
    assert connections(full, 6) == 2 * 7 * 7
    assert certify(full, found.dataset, found.claim).verdict != "proved"
    assert sum(isinstance(layer, GlobalToken) for layer in found.network.layers) == 1


@pytest.mark.parametrize(("form", "constants"), STYLES)
@pytest.mark.parametrize(("N", "B"), [(1, 1), (3, 1), (18, 1), (18, 2), (18, 4)])
def test_limited_by_every_parameter(N: int, B: int, form: str, constants: str) -> None:
    found = memory("ks25-limited", N, 3, 2, 3, form=form, constants=constants, bits_parameter=B)
    check(found)
    assert found.claim.bounds["width"] == 15
    assert found.options["bits_parameter"] == B


@pytest.mark.slow
@pytest.mark.parametrize(("form", "constants"), STYLES)
@pytest.mark.parametrize("B", [1, 2, 4, 8, 16])
def test_limited_three_hundred_rows(B: int, form: str, constants: str) -> None:
    check(memory("ks25-limited", 300, 8, 4, 10, form=form, constants=constants, bits_parameter=B))


def test_bits_against_parameters() -> None:
    """A larger B has longer weights and fewer of them."""
    built = [memory("ks25-limited", 25, 2, 1, 3, constants="paper", bits_parameter=B) for B in (1, 2, 5)]
    bits = [found.size.max_bits for found in built]
    parameters = [found.size.parameters for found in built]
    assert bits == sorted(set(bits)) and parameters == sorted(set(parameters), reverse=True)


def test_default_is_the_largest_parameter() -> None:
    assert memory("ks25-limited", 40, 2, 2, 3).options["bits_parameter"] == 6


@pytest.mark.parametrize("constants", ["paper", "measured"])
def test_most_bits_are_kept_or_the_smallest_possible_is_named(constants: str) -> None:
    options = {"constants": constants}
    shortest = memory("ks25-limited", 18, 2, 1, 3, bits_parameter=1, **options).size.max_bits
    longest = memory("ks25-limited", 18, 2, 1, 3, **options).size.max_bits
    for bits in (shortest, (shortest + longest) // 2, longest + 5):
        found = memory("ks25-limited", 18, 2, 1, 3, max_bits=bits, **options)
        check(found)
        assert found.size.max_bits <= bits and found.claim.bounds["max_bits"] <= bits
    with pytest.raises(OptionError, match=f"max_bits={shortest} or more"):
        memory("ks25-limited", 18, 2, 1, 3, max_bits=shortest - 1, **options)


@pytest.mark.parametrize("B", [0, -1, 7])
def test_parameter_out_of_range(B: int) -> None:
    with pytest.raises(OptionError, match="1 to √N, here 6"):
        memory("ks25-limited", 40, 2, 2, 3, bits_parameter=B)


def test_one_of_the_two_options() -> None:
    with pytest.raises(OptionError, match="not both"):
        memory("ks25-limited", 40, 2, 2, 3, bits_parameter=2, max_bits=50)
