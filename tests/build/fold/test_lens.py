"""Tight clusters at any places: two of them to a line, and the folds are fine where they are sent."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from byheart.build.fold import build_label_memory
from byheart.build.fold.block import run_blocks
from byheart.build.fold.lens import FinePlace, FoldChain, clusters, fine_chain, focus, spread_chain


def anywhere(count: int, size: int, within: int, bits: int, seed: int) -> tuple[list[int], list[int]]:
    rng = random.Random(seed)
    ids: set[int] = set()
    while len(ids) < count:
        start = rng.getrandbits(bits)
        ids.update(start + x for x in rng.sample(range(within), size))
    return sorted(ids), [rng.randrange(2) for _ in ids]


@pytest.mark.parametrize(("size", "within", "bits"), [(2, 2, 46), (2, 200, 66), (4, 64, 46), (4, 64, 200)])
@pytest.mark.parametrize("count", [32, 100])
def test_clusters_anywhere_cost_at_most_half_as_much_again(count: int, size: int, within: int, bits: int) -> None:
    ids, labels = anywhere(count, size, within, bits, seed=count + size)
    plain = build_label_memory(random.Random(1).sample(range(1 << 46), count), labels, 2)
    memory = build_label_memory(ids, labels, 2)
    assert all(memory.label(x) == y for x, y in zip(ids, labels, strict=True))
    assert memory.parameters <= 1.5 * plain.parameters, (memory.parameters, plain.parameters, memory.note)


def test_the_label_itself_is_read_too() -> None:
    ids, labels = anywhere(60, 4, 64, 100, seed=3)
    memory = build_label_memory(ids, labels, 2, head="value", effort="quick")
    assert memory.note.startswith("lens")
    assert [memory.label(x) for x in ids] == labels


@pytest.mark.parametrize(
    "chain", [spread_chain(5, 0.5, 1, 1e6), fine_chain(1, 4, 0.4, 1, 1e6), fine_chain(3, 3, 0.6, 0, 1e9)]
)
def test_labels_change_at_the_edges_and_nowhere_else(chain: FoldChain) -> None:
    folds = chain.blocks(1)
    ends = [chain.edges[0] - 9, *chain.edges, chain.edges[-1] + 9]
    for k, (a, b) in enumerate(pairwise(ends)):
        for z in {a + 1, (a + b) // 2, b - 1}:
            assert (run_blocks(folds, z) < 0) == (k % 2 == 0), (k, z)
    assert sum(len(place.edges) for place in chain.places) == len(chain.edges)


def test_an_offset_gives_every_id_its_label() -> None:
    place = FinePlace(0, np.array([0.0, 3e9, 4e9, 9e9]), True)
    heights, wanted = np.array([0.0, 1e9, 6e9]), np.array([False, True, False])
    found = place.offset(heights, wanted, 1.0)
    assert found is not None and place.trapped(found + heights).tolist() == wanted.tolist()
    assert place.offset(heights / 1e9, wanted, 1.0) is None, "no two edges are as close as these ids"


def test_ids_without_clusters_are_left_alone() -> None:
    ids, labels = list(range(64)), np.arange(64) % 2
    assert list(clusters(ids, labels)) == [] and focus(ids, labels, 200, 1e6) is None


@pytest.mark.parametrize("bits", [380, 460, 1200])
def test_clusters_that_are_farther_apart_than_floats_reach(bits: int) -> None:
    ids, labels = anywhere(24, 4, 64, bits, seed=bits)
    memory = build_label_memory(ids, labels, 2, effort="quick")
    assert [memory.label(x) for x in ids] == labels
    assert (focus(ids, np.array(labels), 1000, 1e6) is None) == (bits > 400)
