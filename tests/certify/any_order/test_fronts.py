"""The longest numbers that `native` ever plans for: its means and snaps are still proved, and are exact."""

from __future__ import annotations

from fractions import Fraction

import pytest

from byheart.build.native.front import mean_attention, prefix_sum_blocks, snap_blocks
from byheart.build.native.layout import FLOAT32, FLOAT64
from byheart.build.native.tokens import Mixing, sizing
from byheart.certify.any_order.lattice import InputFacts, channel
from byheart.certify.any_order.proof import prove_any_order
from byheart.ir.layers import Affine, Layer, Matrix, Pattern
from byheart.ir.network import Decode, Network, Read, Readout
from byheart.theory.guarantees.native import own_weight
from tests.certify.any_order.shuffled import differences

CASES = [(Mixing.FULL, n) for n in (3, 7, 49, 127)] + [(Mixing.PREFIX_SUM, n) for n in (3, 5, 17)]


@pytest.mark.parametrize("kind", [FLOAT64, FLOAT32], ids=["float64", "float32"])
@pytest.mark.parametrize(("mixing", "n"), CASES)
@pytest.mark.parametrize("keys", [10**5, 10**9])
def test_the_longest_numbers_of_a_length(kind, mixing, n, keys):
    size = sizing(kind, mixing, n, True, keys)
    unit, largest = 1 << size.scale, (1 << size.table_bits) - 1
    full = mixing is Mixing.FULL
    numbers = channel(Fraction(0), Fraction(largest), Fraction(1))
    facts = InputFacts(n, not full, (numbers, channel(Fraction(0), Fraction(n - 1), Fraction(1))), True)
    if full:
        layers: list[Layer] = [Affine(Matrix.of([{0: unit}, {}, {}], 2))]
        layers.append(mean_attention(3, Pattern.FULL, [0], [0], n * own_weight(mixing, True)))
    else:
        layers = [Affine(Matrix.of([{0: unit}, {1: 1}, {}], 2), (0, 1, 0))]
        layers.append(mean_attention(3, Pattern.CAUSAL, [0], [2], 1))
        layers += prefix_sum_blocks(3, n, 1, [2], [0], unit << size.table_bits)
    layers += snap_blocks(3, kind, [0], size.scale)
    network = Network((*layers, Affine(Matrix.of([{0: 1}], 3))), Read.EACH, Readout(Decode.VALUE, 2))
    found = prove_any_order(network, facts, kind.name)
    assert found.proved, found.sentence()
    if n <= 17:
        assert not differences(network, facts, kind.name, n, count=6)
