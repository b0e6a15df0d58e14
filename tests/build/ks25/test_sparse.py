from __future__ import annotations

from dataclasses import replace

import pytest

from byheart.certify import certify
from byheart.certify.connections import connections
from byheart.ir.layers import Attention, GlobalToken, Pattern
from tests.build.ks25.grid import check, memory
from tests.build.ks25.test_construction import STYLES


@pytest.mark.parametrize(("form", "constants"), STYLES)
@pytest.mark.parametrize(("N", "n", "d", "C"), [(1, 1, 1, 1), (3, 2, 4, 2), (40, 8, 2, 10)])
@pytest.mark.parametrize("task", ["next-token", "seq-to-seq"])
def test_star(N: int, n: int, d: int, C: int, task: str, form: str, constants: str) -> None:
    found = memory("ks25-sparse", N, n, d, C, task=task, form=form, constants=constants)
    check(found)
    assert found.size.attention_layers == 2
    assert connections(found.network, n) == 4 * n + 2


@pytest.mark.parametrize("attention", ["softmax", "hardmax"])
def test_other_attention(attention: str) -> None:
    check(memory("ks25-sparse", 20, 4, 2, 3, task="seq-to-seq", attention=attention))


def test_the_pattern_is_the_layer_s_not_the_weights() -> None:
    """With full patterns the same weights connect n² pairs and the promise of 4n + 2 is not kept."""
    found = memory("ks25-sparse", 10, 6, 2, 3)
    assert found.dataset is not None
    assert found.certificate.proofs == {"connections: 26": "attention connects 26 pairs of tokens, of 26 promised"}
    layers = tuple(
        replace(layer, pattern=Pattern.FULL) if isinstance(layer, Attention) else layer
        for layer in found.network.layers
    )
    full = replace(found.network, layers=layers)
    assert connections(full, 6) == 2 * 7 * 7
    assert certify(full, found.dataset, found.claim).verdict != "proved"
    assert sum(isinstance(layer, GlobalToken) for layer in found.network.layers) == 1
