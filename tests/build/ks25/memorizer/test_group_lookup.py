from __future__ import annotations

import random
from fractions import Fraction

import pytest

from byheart.build.ks25.memorizer.key_groups import Fields, pack
from byheart.errors import BuildError
from tests.build.ks25.memorizer.lemmas import group_lookup, measured, within
from tests.naive import run


@pytest.mark.parametrize("count,entries", [(1, 1), (5, 1), (7, 3), (12, 4), (9, 20)])
def test_words_of_the_group_and_nothing_new_elsewhere(count: int, entries: int) -> None:
    rng = random.Random(count)
    points = [Fraction(x, 8) for x in sorted(rng.sample(range(16, 16 * 60, 16), count + 15))]
    points = [x + Fraction(rng.randint(0, 3), 8) * (i % 2) for i, x in enumerate(points)]
    points = [x for i, x in enumerate(points) if i == 0 or x - points[i - 1] >= 2]
    chosen = sorted(rng.sample(points, min(count, len(points))))
    fields = Fields(entries, key_bits=8, label_bits=3)
    groups = pack([int(x) for x in chosen], [rng.randint(1, 7) for _ in chosen], fields)
    gadget = group_lookup(groups)
    known = {(0, 0), *((g.key_word, g.label_word) for g in groups)}
    for x in points:
        same, u, w = run(gadget, [x])
        assert same == x and (u, w) in known
        if x in chosen:
            group = groups[chosen.index(x) // entries]
            assert (u, w) == (group.key_word, group.label_word)
    assert within(gadget, width=5, depth=3 * len(groups) + 2, bits=fields.key_word + 8)
    assert measured(gadget)[1] == 3 * len(groups)


def test_unused_places_hold_key_zero() -> None:
    (group,) = pack([9], [1], Fields(entries=3, key_bits=4, label_bits=1))
    assert group.key_word == 9 << 8 and group.label_word == 1 << 2


@pytest.mark.parametrize("keys,labels", [([3, 3], [1, 1]), ([1], [1]), ([16], [1]), ([4], [0]), ([4], [2])])
def test_what_does_not_fit_is_refused(keys: list[int], labels: list[int]) -> None:
    with pytest.raises(BuildError):
        pack(keys, labels, Fields(entries=2, key_bits=4, label_bits=1))
