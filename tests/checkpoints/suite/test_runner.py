"""Running cases: what counts as correct, incorrect, skipped and error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from byheart.checkpoints.suite import runner
from byheart.checkpoints.suite.cases import SuiteCase, read_cases
from byheart.checkpoints.suite.runner import COARSE, all_cases, run_case, run_cases, run_suite
from tests.checkpoints.suite.conftest import ToyEngine


def case(small_fixture, verb, **content):
    expected = read_cases(small_fixture)[0].expected
    return SuiteCase("toy", "llama", "a case", verb, small_fixture, {"ids": [1, 2], **content}, expected)


class Fixed:
    """An adapter that returns one value from every method."""

    dtype = "float32"

    def __init__(self, value):
        self.value = value

    def __getattr__(self, name):
        if name.startswith("__") or name == "close":
            raise AttributeError(name)
        return lambda *args: self.value


def test_the_toy_engine_passes_and_a_broken_one_does_not(small_fixture):
    assert all(r.status == "correct" for r in run_cases(all_cases(small_fixture), ToyEngine))

    class Broken(ToyEngine):
        def generate(self, ids, n):
            return super().generate(ids[:-1], n)

    assert all(r.status == "incorrect" for r in run_cases(read_cases(small_fixture)[:3], Broken))


@pytest.mark.parametrize(
    ("answer", "status", "correct", "where"),
    [
        ([5, 6, 7], "correct", 3, None),
        ([5, 6, 8], "incorrect", 2, "token 2 of 3"),
        ([5, 6], "incorrect", 2, "token 2 of 3"),
        ([5, 6, 7, 8], "incorrect", 2, "token 3 of 3"),
        ([], "incorrect", 0, "token 0 of 3"),
    ],
)
def test_ids_and_their_number_are_compared(small_fixture, answer, status, correct, where):
    result = run_case(case(small_fixture, "generate", continuation_ids=[5, 6, 7]), Fixed(answer))
    assert (result.status, result.correct, result.first and result.first.where) == (status, correct, where)


def test_an_incorrect_sensor_names_approximations_and_coarse_skips_it(small_fixture, monkeypatch):
    """Only incorrect sensors get the message; `coarse` runs everything else."""
    plain, sensor = (case(small_fixture, "generate", continuation_ids=[5], sensor=flag) for flag in (False, True))
    assert [run_case(one, Fixed([6])).reason for one in (plain, sensor)] == ["", COARSE]
    assert run_case(sensor, Fixed([5])).reason == "" and COARSE in run_case(sensor, Fixed([6])).message
    monkeypatch.setattr(runner, "all_cases", lambda folder: [plain, sensor])
    for coarse, count in ((False, 2), (True, 1)):
        report = run_suite(
            [small_fixture], lambda _: lambda folder: Fixed([5]), ["float32"], engine="toy", coarse=coarse
        )
        assert len(report.results) == count


def test_a_text_is_compared_by_the_expected_text(small_fixture):
    one = case(small_fixture, "generate", continuation_ids=[5, 6], continuation="ab")
    assert run_case(one, Fixed("ab")).status == "correct"
    assert "character 1" in run_case(one, Fixed("ax")).message


def test_the_steps_of_a_draft_are_compared(small_fixture):
    one = case(small_fixture, "draft", continuation_ids=[5], draft="d", count=1, k=2, drafted=[2, 2], accepted=[1, 0])
    assert run_case(one, Fixed(([5], [2, 2], [1, 0]))).status == "correct"
    assert run_case(one, Fixed(([5], None, None))).status == "correct"  # counts that the engine does not return
    assert "accepted tokens of step 1" in run_case(one, Fixed(([5], [2, 2], [1, 1]))).message


def test_sets_order_values_and_beams_are_compared(small_fixture):
    sampled = case(small_fixture, "sample", draws=4, settings={}, allowed=[3, 4])
    assert run_case(sampled, Fixed([3, 4, 3, 4])).status == "correct"
    assert run_case(sampled, Fixed([3, 4, 5, 4])).status == "incorrect"
    assert "never occur" in run_case(sampled, Fixed([3, 3, 3, 3])).message
    ranked = case(small_fixture, "logprobs", top=[[3, -0.5], [4, -1.5]], tolerance={"float32": 0.01})
    assert run_case(ranked, Fixed([(3, -0.505), (4, -1.5)])).status == "correct"
    assert "rank token 0" in run_case(ranked, Fixed([(4, -0.5), (3, -1.5)])).message
    assert "log-probability" in run_case(ranked, Fixed([(3, -0.55), (4, -1.5)])).message
    beams = case(small_fixture, "beams", count=2, width=2, sequences=[[3], [4]])
    assert run_case(beams, Fixed([[3], [4]])).status == "correct"
    assert run_case(beams, Fixed([[3]])).status == "incorrect"


def test_logits_off_by_more_than_the_tolerance_are_incorrect(small_fixture):
    one = case(small_fixture, "logits", pieces=[[1, 2]], tokens=[[5, 0], [6, 0]], logits=[[8.0, 0.0], [8.0, 0.0]])
    rows = np.zeros((2, 40))
    rows[0, 5] = rows[1, 6] = 8.0
    assert run_case(one, Fixed(rows)).status == "correct"
    rows[1, 6] = 8.5
    assert "logit after prefix 2" in run_case(one, Fixed(rows)).message
    rows[1, 6] = np.nan
    assert run_case(one, Fixed(rows)).status == "incorrect"


def test_what_an_engine_lacks_is_skipped_and_what_it_raises_fails(small_fixture):
    class Crashing:
        def generate(self, ids, n):
            raise RuntimeError("out of memory")

    one = case(small_fixture, "generate", continuation_ids=[5])
    assert run_case(one, object()).status == "skipped"
    found = run_case(one, Crashing())
    assert found.status == "error" and "out of memory" in found.reason and not found.passed


def test_a_suite_in_which_nothing_ran_is_not_correct(small_fixture):
    class Mute:
        def __init__(self, folder: Path) -> None:
            self.chat = lambda *_: ""

    report = run_suite([small_fixture], lambda _: Mute, ["x"], engine="mute")
    assert report.verdict == "skipped" and {row.kind for row in report.rows} == {"recital", "serving"}


@pytest.mark.parametrize(
    ("verb", "content", "good", "bad"),
    [
        ("streamed", {"messages": [], "answer": "Zoë"}, ["Zo", "ë"], ["Zo", "\ufffd"]),
        ("streamed", {"messages": [], "answer": "Zoë"}, "Zoë", ["Zoë", "!"]),
        ("schema", {"schema": {}, "continuation_ids": [5, 6]}, [5, 6], [5, 7]),
        ("penalized", {"settings": {}, "continuation_ids": [5]}, [5], [6]),
        (
            "draft_sampled",
            {"draft": "d", "count": 2, "k": 1, "temperature": 1.0, "continuation_ids": [5, 6], "drafted": [1],
             "accepted": [1]},
            ([5, 6], [1], [1]),
            ([5, 6], [1], [0]),
        ),
    ],
)  # fmt: skip
def test_further_verbs_tell_correct_from_incorrect(small_fixture, verb, content, good, bad):
    one = case(small_fixture, verb, **content)
    assert run_case(one, Fixed(good)).status == "correct"
    assert run_case(one, Fixed(bad)).status == "incorrect"
