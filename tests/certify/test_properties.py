"""Further guarantees of a claim are proved by name, or not shown."""

from __future__ import annotations

import pytest

from byheart.certify.properties import connections, prove_property
from byheart.data.dataset.dataset import load
from byheart.ir.layers import Affine, Attention, GlobalToken, Head, Kind, Matrix, Pattern
from byheart.ir.network import Decode, Network, Read, Readout
from byheart.progress import SILENT

ONE = Matrix.of([{0: 1}], 1)


def network(*patterns: Pattern, hub: bool = False) -> Network:
    layers = [GlobalToken((1,))] if hub else []
    layers += [Attention(Kind.UNIFORM, pattern, (Head(ONE, ONE),)) for pattern in patterns]
    return Network((*layers, Affine(ONE)), Read.LAST, Readout(Decode.VALUE, 2))


@pytest.mark.parametrize(
    ("patterns", "hub", "pairs"),
    [
        ([Pattern.FULL], False, 16),
        ([Pattern.CAUSAL], False, 10),
        ([Pattern.FULL, Pattern.CAUSAL], False, 26),
        ([Pattern.STAR_IN], True, 4 + 5),
        ([Pattern.STAR_OUT], True, 2 * 4 + 1),
        ([Pattern.STAR_IN, Pattern.STAR_OUT], True, 18),
    ],
)
def test_connections_count_pairs_of_the_patterns(patterns, hub, pairs):
    found = network(*patterns, hub=hub)
    assert connections(found, 4) == pairs
    data = load(["abcd"], [1], positions=False)
    assert prove_property(f"connections: {pairs}", found, data, SILENT)[0]
    assert not prove_property(f"connections: {pairs - 1}", found, data, SILENT)[0]


def test_a_guarantee_without_a_prover_is_not_shown():
    shown, why = prove_property("beauty: high", network(Pattern.FULL), load(["ab"], [1]), SILENT)
    assert not shown and "no prover" in why
