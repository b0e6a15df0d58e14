"""Parts of the KS25 builders: how words are divided, and that no division leaves the guarantee."""

import pytest

from byheart.build.ks25.parts import (
    BuildStyle,
    LayerForm,
    PartLimit,
    entries_by_cost,
    measured_fields,
    needed,
    paper_fields,
)
from byheart.errors import BuildError
from byheart.theory.guarantees.ks25 import Part
from byheart.theory.upper import groups

RESIDUAL = BuildStyle.of("residual", "measured", 0)


def test_the_paper_divides_by_its_formula():
    fields = paper_fields([1, 5, 200], 1000, 8, 3)
    assert (fields.entries, fields.key_bits, fields.label_bits) == (groups(1000)[1], 8, 3)
    with pytest.raises(BuildError, match="a key of 9 bits, where the theorem has 8"):
        paper_fields([1, 256], 1000, 8, 3)


@pytest.mark.parametrize("form", list(LayerForm))
def test_entries_are_sorted_by_cost_and_complete(form):
    found = entries_by_cost(form, 20, 3, 14, 400)
    assert sorted(found) == list(range(1, len(found) + 1)) and len(found) == 84
    assert 1 < found[0] < 40, "neither one entry per group nor one group"


def test_only_labelled_keys_count():
    stored, key_bits, label_bits = needed(RESIDUAL, [3, 1 << 20, 1 << 30], [1, 5, 0])
    assert (stored, key_bits, label_bits) == (2, 21, 3), "a label of 0 is not stored"
    assert needed(RESIDUAL, [3], [0])[0] == 1


def test_a_division_outside_the_guarantee_is_refused():
    keys, labels = list(range(1 << 12, (1 << 12) + 100)), [1] * 100
    limit = PartLimit(Part(100, 14, 2), 14)
    fields = measured_fields(RESIDUAL, keys, labels, 14, limit)
    assert limit.holds(RESIDUAL.form, fields, 100) and fields.key_bits == 13
    assert measured_fields(RESIDUAL, keys, labels, 14, limit, most=2).entries <= 2
    with pytest.raises(BuildError, match="100 keys of 13 bits"):
        measured_fields(RESIDUAL, keys, labels, 14, PartLimit(Part(3, 5, 1), 14))
