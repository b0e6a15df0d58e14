"""Windows decide what the documents need, for texts that were not chosen."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.checkpoints.hosts.looking_back import used_frequencies
from byheart.checkpoints.hosts.rotary import frequencies, look_back
from byheart.checkpoints.hosts.scaling import built_in_yarn
from byheart.checkpoints.windows import LONGEST_NEAR, LONGEST_OFFSET, build_recital
from byheart.checkpoints.windows.far import (
    CAPPED,
    CHAINED,
    FAR_IN_NEED,
    FAR_PLACES,
    LEAST_IN_NEED,
    LEAST_LEAD,
    YARN,
    FarPlaces,
)
from byheart.checkpoints.windows.goals import goals_of, shortest_rules
from byheart.checkpoints.windows.tables import WindowTable
from byheart.data.tokens.script import Script
from byheart.errors import DataError, OptionError

BOS, EOS = 1, 2


def script_of(*texts: str, weights: tuple[int, ...] = ()) -> Script:
    return Script(tuple((BOS, *(ord(c) - 94 for c in text), EOS) for text in texts), weights)


def far_offsets(table: WindowTable) -> list[tuple[int, int]]:
    """(offset, the near place it rests on)"""
    return list(zip(table.offsets[len(table.offsets) - len(table.far) :], table.far, strict=True))


def vocabulary() -> int:
    return 32


@pytest.mark.parametrize("form", ["sparse", "windows", "rules", "full"])
@settings(max_examples=40, deadline=None)
@given(text=st.text(alphabet="abcde", min_size=1, max_size=60))
def test_any_text_is_recited_from_the_start_and_from_the_middle(form: str, text: str) -> None:
    script = script_of(text)
    built = build_recital(script, vocabulary(), 0, form=form)
    document = script.documents[0]
    assert built.recital.next_tokens(document[:-1]).tolist() == list(document[1:])
    span = built.recital.span
    for start in range(1, len(document) - span - 1):
        prompt = [BOS, 0, 3, *document[start : start + span]]  # whatever precedes
        assert built.recital.next_tokens(prompt)[-1] == document[start + span]


def test_long_repeats_are_told_apart() -> None:
    rng = random.Random(5)
    passage = "".join(rng.choice("abc") for _ in range(70))
    text = "x" + passage + "p" + passage + "q" + passage[:40]
    script = script_of(text)
    chained = build_recital(script, vocabulary(), 0, form="windows")
    assert max(o for offsets in chained.schedule for o in offsets) <= LONGEST_OFFSET
    sparse = build_recital(script, vocabulary(), 0)
    (offsets,) = sparse.schedule
    assert offsets[-1] > 60 and len(offsets) < 10
    assert all(
        o <= LONGEST_NEAR or o - k in (*FAR_PLACES, *FAR_IN_NEED) for o, k in far_offsets(sparse.recital.tables[0])
    )
    for built in (chained, sparse):
        assert (built.recital.next_tokens(script.documents[0][:-1]) == script.followers).all()


@pytest.mark.parametrize(
    "text",
    [
        "a" * 74 + "b",  # a document that begins with a ruler
        "a" * 79 + "b",
        "c" + "a" * 97 + "c" + "a" * 131 + "b",
        "abcde" * 100 + "abcde" * 100,
        "abcdefghij" * 3 + "k" + "abcdefghij" * 40,
    ],
)
def test_long_runs_and_texts_that_repeat_themselves_are_told_apart(text: str) -> None:
    script = script_of(text)
    built = build_recital(script, vocabulary(), 0)
    assert (built.recital.next_tokens(script.documents[0][:-1]) == script.followers).all()
    assert len(built.recital.tables[0].offsets) < 12


@pytest.mark.parametrize("offset", [FAR_PLACES[0], 119, FAR_PLACES[-1], FAR_IN_NEED[0], FAR_IN_NEED[-1]])
def test_heads_lead_at_far_places_in_every_architecture(offset: int) -> None:
    kinds = [(64, used_frequencies(64, 0)), (64, used_frequencies(64, 1)), (32, None)]
    for dimensions, used in kinds:
        wave = look_back(dimensions, 1e4, offset, 2048, None, used, far=True)
        assert wave.gap > (LEAST_LEAD if offset in FAR_PLACES else LEAST_IN_NEED) * 0.98
        # Engines hide what is not seen by -65504 in float16, where lower scores than -16 overflow.
        assert wave.scores([0], frequencies(dimensions, 1e4))[0] > 0


@pytest.mark.parametrize("balanced", (False, True))
@pytest.mark.parametrize("offset", (YARN.easy[0], 119, YARN.easy[-1]))
def test_heads_lead_at_the_far_places_of_yarn(offset: int, balanced: bool) -> None:
    scaling = built_in_yarn(2048, YARN.base, 64, truncated=None if balanced else False, balanced=balanced)
    for group in (0,) if balanced else (0, 1):  # DeepSeek-V3 has one key for all heads
        wave = look_back(64, YARN.base, offset, 2048, used=used_frequencies(64, group), far=True, scaling=scaling)
        assert wave.gap > LEAST_LEAD


@pytest.mark.parametrize("places", (YARN, CHAINED, CAPPED), ids=("yarn", "chained", "capped"))
def test_every_architecture_tells_long_repeats_apart_with_its_own_places(places: FarPlaces) -> None:
    rng = random.Random(5)
    passage = "".join(rng.choice("abc") for _ in range(70))
    script = script_of("x" + passage + "p" + passage + "q" + passage[:40])
    recital = build_recital(script, vocabulary(), 0, places=places).recital
    document = script.documents[0]
    assert recital.next_tokens(document[:-1]).tolist() == list(document[1:])
    *before, last = recital.tables
    assert [table.offsets for table in before] == [places.first] * bool(places.first)
    assert {o - k for o, k in far_offsets(last)} <= {*places.easy, *places.in_need}
    assert last.far == (0,) * len(last.far) or not places.first
    assert recital.next_tokens([BOS, 0, 3, *document[-1 - recital.span : -1]])[-1] == document[-1]


def test_windows_whose_newest_places_are_not_in_the_text_are_unknown() -> None:
    script = script_of("the cat sat on the mat".replace(" ", "_"))
    built = build_recital(script, vocabulary(), 0)
    assert (built.recital.tables[0].windows[:, :4] >= 0).all()
    prompt = [BOS, *(ord(c) - 94 for c in "the_bat")]
    assert built.recital.next_tokens(prompt)[-1] == 0


def test_places_beyond_the_reach_are_named() -> None:
    text = "ab" * 1100 + "c"
    named = r"document 0, position \d+ and document 0, position \d+ have different continuations, .*merge=True"
    with pytest.raises(DataError, match=named):
        build_recital(script_of(text), vocabulary(), 0)
    built = build_recital(script_of(text), vocabulary(), 0, merge=True)
    assert built.merged > 0 and built.summary()["distributions"] >= 1


def test_documents_that_share_a_prefix_get_their_distribution() -> None:
    script = script_of("abcab", "abcad", "abcad", weights=(1, 2, 3))
    built = build_recital(script, vocabulary(), 0)
    answer = built.recital.answer(int(built.recital.follow(script.documents[0][:5])[-1]))
    assert answer.weights == ((ord("b") - 94, 1), (ord("d") - 94, 5))
    assert (built.ambiguous, built.overruled) == (1, 0)


@pytest.mark.parametrize(("ambiguous", "said", "overruled"), [("first", "b", 2), ("majority", "d", 1)])
def test_one_continuation_is_chosen_and_the_others_are_counted(ambiguous: str, said: str, overruled: int) -> None:
    script = script_of("abcab", "abcad", "abcad", weights=(1, 2, 3))
    built = build_recital(script, vocabulary(), 0, ambiguous=ambiguous)
    assert built.recital.next_tokens(script.documents[0][:5])[-1] == ord(said) - 94
    assert built.overruled == overruled


def test_ambiguity_can_be_an_error() -> None:
    with pytest.raises(DataError, match="document 0, position 2 and document 1, position 2"):
        build_recital(script_of("abc", "abd"), vocabulary(), 0, ambiguous="error")
    with pytest.raises(OptionError):
        build_recital(script_of("abc"), vocabulary(), 0, form="tree")


def test_unknown_windows_answer_what_was_asked_for() -> None:
    built = build_recital(script_of("abcabd"), vocabulary(), unknown=EOS)
    assert built.recital.next_tokens([BOS, 9, 9, 9])[-1] == EOS


def test_rules_are_the_shortest_that_decide() -> None:
    script = script_of("abcabd")
    goals = goals_of(script)
    table = shortest_rules(script, goals)
    tokens, needs = script.tokens, goals.of_place
    for row in table.windows[table.windows[:, 1] >= 0]:
        shorter = row[row >= 0][:-1]
        ends = [
            i
            for i in range(len(tokens))
            if i + 1 >= len(shorter) and (tokens[i - len(shorter) + 1 : i + 1][::-1] == shorter).all()
        ]
        assert len({int(needs[i]) for i in ends}) > 1


def test_empty_documents_and_bad_weights() -> None:
    with pytest.raises(DataError, match="empty"):
        Script(((BOS, EOS),))
    with pytest.raises(DataError, match="weight"):
        Script(((BOS, 5, EOS),), weights=(0,))


@settings(max_examples=40, deadline=None)
@given(texts=st.lists(st.text(alphabet="abcde", min_size=1, max_size=90), min_size=1, max_size=3, unique=True))
def test_far_places_lose_no_answer(texts: list[str]) -> None:
    script = script_of(*texts)
    for schedule in (None, ((0, 1, 2), (0, 3))):
        try:
            built = build_recital(script, vocabulary(), 0, schedule=schedule, far=(19, 44))
        except (OptionError, DataError):
            continue
        plain = build_recital(script, vocabulary(), 0, schedule=schedule)
        for document in script.documents:
            assert built.recital.follow(document[:-1]).tolist() == plain.recital.follow(document[:-1]).tolist()
        assert len(built.recital.tables[-1].windows) == len(plain.recital.tables[-1].windows)


def test_runs_of_a_text_need_what_stands_far_back() -> None:
    text = "".join(random.Random(3).choices("abcdefghijklmnop", k=120))
    recital = build_recital(script_of(text), vocabulary(), 0, far=(19, 44, 157)).recital
    table, ids = recital.tables[-1], (BOS, *(ord(c) - 94 for c in text))
    assert table.offsets[-2:] == (19, 44), "there is no token 157 places back"
    assert recital.near_span < 19 < recital.span == 45
    same = recital.next_tokens(ids)
    other = recital.next_tokens((BOS, *[3] * 23, *ids[24:]))  # the first 24 tokens are others
    changed = [p for p in range(30, len(ids)) if same[p] != other[p]]
    assert changed
    assert all(p // 24 % 2 == 1 and other[p] == 0 for p in changed)
