from __future__ import annotations

import pytest

from byheart.errors import OptionError
from tests.build.ks25.grid import check, memory
from tests.build.ks25.test_construction import STYLES


@pytest.mark.parametrize(("form", "constants"), STYLES)
@pytest.mark.parametrize(("N", "B"), [(1, 1), (3, 1), (18, 1), (18, 2), (18, 4)])
def test_every_parameter(N: int, B: int, form: str, constants: str) -> None:
    found = memory("ks25-limited", N, 3, 2, 3, form=form, constants=constants, bits_parameter=B)
    check(found)
    assert found.claim.bounds["width"] == 15
    assert found.options["bits_parameter"] == B


@pytest.mark.slow
@pytest.mark.parametrize(("form", "constants"), STYLES)
@pytest.mark.parametrize("B", [1, 2, 4, 8, 16])
def test_three_hundred_rows(B: int, form: str, constants: str) -> None:
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
