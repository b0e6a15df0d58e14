"""Sampled prompts: lengths, needles, borders of chunks, absent keys."""

from __future__ import annotations

import pytest

from byheart.checkpoints.suite.features.recall_prompts import (
    CHUNKS,
    absent,
    in_pieces,
    needle,
    recall_cases,
    repeated,
    sampled,
    total,
)
from byheart.checkpoints.windows.recall import RecallFunction
from byheart.errors import OptionError

PLAIN, SINGLE, WINDOW = RecallFunction(), RecallFunction(1), RecallFunction(window=64)


@pytest.mark.parametrize("function", [PLAIN, SINGLE, WINDOW])
@pytest.mark.parametrize("length", [1, 2, 3, 50, 301])
def test_prompts_have_any_length_and_defined_answers(function: RecallFunction, length: int) -> None:
    for ids in (sampled(function, length, 0), total(function, length, 5)):
        assert len(ids) == length and len(function.answers(ids)) == length
    assert sampled(function, length, 1) == sampled(function, length, 1)


def test_a_repeated_context_is_queried_everywhere() -> None:
    ids = repeated(PLAIN, 200, 0)
    answers = PLAIN.answers(ids)
    assert len(ids) == 399 and answers[201:398] == ids[202:399]


@pytest.mark.parametrize("function", [PLAIN, SINGLE])
@pytest.mark.parametrize("depth", [1, 14, 62, 126, 254])
def test_needles_are_found_across_borders(function: RecallFunction, depth: int) -> None:
    ids = needle(function, 300, depth, 3)
    found = function.continuation(ids, 4)
    assert found == ids[depth + function.key_length : depth + function.key_length + 4] and found[-1] == function.eos
    with pytest.raises(OptionError, match="does not fit"):
        needle(function, 10, 9, 0)


def test_an_absent_key_returns_none() -> None:
    assert PLAIN.answers(absent(PLAIN, 90, 0))[-1] == PLAIN.none
    assert WINDOW.answers(absent(WINDOW, 90, 0))[-1] == PLAIN.none


@pytest.mark.parametrize("function", [PLAIN, SINGLE, WINDOW])
def test_cases_cover_chunks_and_agree_with_the_function(function: RecallFunction) -> None:
    cases = list(recall_cases(function, 1024))
    names = " ".join(case["name"] for case in cases)
    assert all(f"chunks of {size}" in names for size in CHUNKS) and "absent" in names and "needle" in names
    for case in cases:
        if case["do"] == "logits":
            ids = [t for piece in case["pieces"] for t in piece]
            assert [t for (t,) in case["tokens"]] == function.answers(ids)
        if case["do"] == "generate":
            assert case["continuation_ids"] and case["continuation_ids"][0] == function.answers(case["ids"])[-1]
    assert [case["do"] for case in cases].count("batch") == 1


def test_pieces_join_to_the_whole() -> None:
    assert in_pieces([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]


def test_copies_reach_back_over_borders_of_blocks() -> None:
    """Greedy decoding reads entries before and after 16, 64, 128 and 256 places, after a context that is longer."""
    found = {}
    for case in recall_cases(PLAIN, 1024):
        if case["name"].startswith("copy from"):
            place = int(case["name"].split()[2])
            ids, after = case["ids"], case["continuation_ids"]
            assert after == ids[place + 2 : place + 2 + len(after)] and len(ids) - place > len(after)
            found[place] = (place + 2, place + 2 + len(after))
    assert all(any(first <= size < last for first, last in found.values()) for size in CHUNKS)
    assert not [case for case in recall_cases(PLAIN, 30) if case["name"].startswith("copy from")]
