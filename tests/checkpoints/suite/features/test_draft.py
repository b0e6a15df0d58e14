"""Drafts: the simulator, the draft's incorrect places, and the numbers in Transformers."""

from __future__ import annotations

from itertools import accumulate

import pytest

from byheart.checkpoints.suite.adapters import engine_adapter
from byheart.checkpoints.suite.cases import read_cases
from byheart.checkpoints.suite.features.draft import COUNT, GAPS, PROMPT, look_up, misled, simulate, write_draft
from byheart.checkpoints.suite.runner import run_cases
from byheart.checkpoints.suite.write import fixture_memory
from byheart.errors import OptionError


@pytest.fixture(scope="module")
def pair():
    memory = fixture_memory()
    document = memory.script.documents[0]
    places = [PROMPT + 1 + at for at in accumulate(GAPS)]
    draft, said = misled(memory.recital, document, places)
    return memory, document, draft, said


def run(pair, k, change=lambda tokens: tokens):
    memory, document, draft, _ = pair
    eos = memory.lexicon.eos
    return simulate(
        lambda t, n: memory.recital.recite(t, n),
        lambda t, n: draft.recite(change(list(t)), n, stop=eos),
        document[:PROMPT], k, COUNT, eos,
    )  # fmt: skip


def test_the_draft_errs_at_its_places_and_nowhere_else(pair):
    _, document, draft, said = pair
    found = draft.next_tokens(document[:-1]).tolist()
    assert {p + 1: t for p, t in enumerate(found) if t != document[p + 1]} == said and len(said) == len(GAPS)


@pytest.mark.parametrize("k", range(1, 9))
def test_every_number_of_accepted_tokens_occurs(pair, k):
    text, drafted, accepted = run(pair, k)
    assert text == list(pair[1][PROMPT : PROMPT + COUNT])
    assert set(accepted) >= set(range(k + 1)) if k > 1 else set(accepted) == {0, 1}
    assert sum(accepted) + len(accepted) == COUNT and all(a <= d <= k for a, d in zip(accepted, drafted, strict=True))


@pytest.mark.parametrize("change", [lambda t: t[:-1], lambda t: [*t, t[-1]]])
def test_a_stale_context_keeps_the_text_and_loses_the_tokens(pair, change):
    text, _, accepted = run(pair, 4, change)
    assert text == run(pair, 4)[0] and sum(accepted) < 10 < sum(run(pair, 4)[2])


def test_prompt_lookup_finds_the_first_occurrence():
    assert look_up([1, 2, 3, 9, 1, 2], 2, 2, 99, 0) == [3, 9]
    assert look_up([5, 6, 7], 2, 2, 99, 0) == []
    assert look_up([1, 2, 0, 1], 3, 1, 99, 0) == [2]


def test_a_short_text_is_refused(tmp_path):
    with pytest.raises(OptionError, match="at least"):
        write_draft("llama", tmp_path / "x", text="too short", tokens="characters")


@pytest.mark.slow
def test_transformers_accepts_the_same_tokens(tmp_path):
    pytest.importorskip("transformers")
    fixture = write_draft("qwen3", tmp_path / "draft", recited=True)
    assert fixture.measured == ("float32", "bfloat16", "float16") and fixture.cases == 22
    for dtype in fixture.measured:  # every K, greedy and sampled, though writing runs a few of them
        found = list(run_cases(read_cases(fixture.folder), engine_adapter("transformers", dtype)))
        assert len(found) == 22 and {r.status for r in found} == {"correct"}, [r.message for r in found if not r.passed]
    assert all(values["proved"] > 20 for values in fixture.margins.values())
