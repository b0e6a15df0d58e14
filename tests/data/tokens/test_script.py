"""Documents as token ids: places, what follows them, and the record of an experiment."""

from __future__ import annotations

import numpy as np
import pytest

from byheart.data.tokens.script import Absent, Edits, Script
from byheart.errors import DataError

SCRIPT = Script(
    ((1, 7, 8, 7, 2), (1, 7, 9, 2)),
    weights=(1, 3),
    names=("a", "b"),
    edits=(None, Edits("a", ((2, 8, 9),))),
    absent=(Absent("c", (1, 9, 2), "held out", weight=2),),
)


def test_places_are_the_positions_that_a_token_follows():
    assert SCRIPT.places == 7 and SCRIPT.tokens.tolist() == [1, 7, 8, 7, 1, 7, 9]
    assert SCRIPT.followers.tolist() == [7, 8, 7, 2, 7, 9, 2]
    assert [str(SCRIPT.place(k)) for k in (3, 4)] == ["document 0, position 3", "document 1, position 0"]
    assert SCRIPT.place_weights.tolist() == [1] * 4 + [3] * 3


def test_looking_back_stops_at_the_start_of_a_document():
    numbers = np.arange(7)
    assert SCRIPT.back(numbers, 2).tolist() == [0, 0, 0, 1, 4, 4, 4]
    assert SCRIPT.far_back(numbers, 2).tolist() == [0, 1, 0, 1, 4, 5, 4]


def test_equal_prefixes_have_equal_numbers():
    found = SCRIPT.prefixes()
    assert found[0] == found[4] and found[1] == found[5] and len(set(found.tolist())) == 5
    assert Script(((1, 5, 2),)).prefixes().tolist() == [0, 1]


def test_a_record_comes_back():
    again = Script.from_json(SCRIPT.to_json(), SCRIPT.absent_json())
    assert again.to_json() == SCRIPT.to_json() and again.absent == SCRIPT.absent
    assert again.fingerprint == SCRIPT.fingerprint
    assert Script(SCRIPT.documents, (1, 2)).fingerprint != SCRIPT.fingerprint
    roles = [(entry["role"], entry["memorized"]) for entry in SCRIPT.roles()]
    assert roles == [("member", True), ("corrupted", True), ("held out", False)]


@pytest.mark.parametrize(
    ("documents", "options", "words"),
    [
        ((), {}, "no document to memorize"),
        (((1, 2),), {}, "document 0 is empty"),
        (((1, 5, 2),), {"weights": (0,)}, "the weight of document 0 is 0"),
        (((1, 5, 2),), {"weights": (1, 1)}, "one weight and one name each"),
    ],
)
def test_mistakes_are_named(documents, options, words):
    with pytest.raises(DataError, match=words):
        Script(documents, **options)
