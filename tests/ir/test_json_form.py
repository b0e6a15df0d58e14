"""Networks survive the way through JSON, and JSON that is not a network is refused."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.errors import FileFormatError
from byheart.exact import dyadic
from byheart.ir.json_form import network_from_json, network_to_json, number_from_json, number_to_json
from byheart.ir.layers import Affine, Attention, Embedding, GlobalToken, Head, Kind, Matrix, Pattern, Residual
from byheart.ir.network import Decode, Network, Read, Readout

HALF = dyadic(1, -1)
NETWORK = Network(
    (
        Embedding(Matrix.of([{0: 3}, {1: HALF}], 2)),
        GlobalToken((0, 1)),
        Attention(
            Kind.SOFTMAX, Pattern.STAR_IN, (Head(*(Matrix.of([{0: 1}, {1: -1}], 2),) * 2, *(Matrix.zero(2, 2),) * 2),)
        ),
        Residual(Matrix.of([{0: 1 << 200}], 2), (-HALF,), Matrix.of([{}, {0: 2}], 1), (0, 1)),
        Affine(Matrix.of([{0: 1, 1: -1}], 2), None, True),
        Affine(Matrix.of([{0: 1}], 1), (5,)),
    ),
    Read.LAST,
    Readout(Decode.VALUE, 3, 1),
    (("reading", 2), ("rest", 4)),
)


@given(st.integers(-(2**200), 2**200), st.integers(-300, 300))
def test_numbers_come_back(mantissa, exponent):
    number = dyadic(mantissa, exponent)
    assert number_from_json(json.loads(json.dumps(number_to_json(number)))) == number


def test_a_network_comes_back():
    assert network_from_json(json.loads(json.dumps(network_to_json(NETWORK)))) == NETWORK


@pytest.mark.parametrize("bad", [0.5, True, None, "12", "0x", "0x1p99999999", "0xFF", "0x1p", "--0x1", [1]])
def test_numbers_that_are_none(bad):
    with pytest.raises(FileFormatError):
        number_from_json(bad)


def _paths(value, path=()):
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from _paths(child, (*path, key))


@pytest.mark.parametrize("junk", [None, -1, "x", [], {}, 10**30, True])
def test_any_part_replaced_by_junk_is_refused_or_a_valid_network(junk):
    """No crash: either a clear error, or (where the junk happens to fit) a network that checked itself."""
    text = json.dumps(network_to_json(NETWORK))
    for path in list(_paths(json.loads(text)))[1:]:
        document = json.loads(text)
        parent = document
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = junk
        with contextlib.suppress(FileFormatError):
            network_from_json(document)
