"""Ranks: exact distributions and sets, every answer in Transformers, and samplers that keep too much."""

from __future__ import annotations

import json
import re

import pytest

from byheart.checkpoints.suite.cases import read_cases
from byheart.checkpoints.suite.features.ranked import (
    ANSWERS,
    PATTERNS,
    RANKS,
    TREE,
    _cases,
    distribution,
    kept,
    write_ranked,
)
from byheart.checkpoints.suite.runner import run_cases
from byheart.checkpoints.suite.write import builtin_lexicon
from byheart.errors import ExportError


def test_the_free_answer_is_outside_of_both_grammars_from_its_first_token():
    for rank, pattern in enumerate(PATTERNS, 1):
        assert re.fullmatch(pattern, ANSWERS[rank]) and not re.fullmatch(pattern, ANSWERS[0])
    assert len({answer[0] for answer in ANSWERS}) == 3 and list(RANKS) == sorted(RANKS, reverse=True)


def test_beams_differ_from_greedy_and_sets_are_proper():
    lexicon = builtin_lexicon()
    documents = [lexicon.document("Zoë, 7 degrees: as JSON, please.\n" + a) for a in ANSWERS]
    documents += [lexicon.document("Ask from the start" + text) for text in TREE]
    cases = {c["name"]: c for c in _cases(documents, [*RANKS, *TREE.values()], lexicon, "Ask from the start")}
    assert cases["2 beams"]["sequences"][0] != cases["greedily through the tree"]["continuation_ids"]
    sets = [set(cases[name]["allowed"]) for name in ("top_p 0.6", "min_p 0.2", "temperature 1")]
    assert sets[0] < sets[1] < sets[2] and len(cases["top 5 of the tree"]["top"]) == 5


def test_distributions_and_sets():
    found = distribution([(1, 5, 2), (1, 6, 2), (1, 6, 3)], [4, 1, 2], [1])
    assert found == {5: 4 / 7, 6: 3 / 7}
    assert kept(found, {"top_p": 0.5}) == [5] and kept(found, {"top_p": 0.6}) == [5, 6]
    three = {7: 0.5, 8: 0.3, 9: 0.2}
    assert kept(three, {"top_p": 0.75}) == [7, 8] and kept(three, {"top_k": 2, "top_p": 0.6}) == [7]
    assert kept(found, {"top_k": 1}) == [5] and kept(found, {"min_p": 0.8}) == [5]


def test_order_and_margins_are_proved_in_three_types(tmp_path):
    """Also in bfloat16: the error of each log-probability is less than half of what separates two tokens."""
    fixture = write_ranked("llama", tmp_path / "ranked")
    expected = json.loads((fixture.folder / "expected.json").read_text())
    for name, ranks in expected["ranks"].items():
        assert ranks["order"] == "proved" and 0 < 2 * ranks["error"] < ranks["least_gap"], name
        assert fixture.margins[name]["proved"] > 10
    names = {case["name"]: case for case in expected["cases"]}
    every = names["temperature 1"]["allowed"]
    assert names["top_k 2, top_p 0.5"]["allowed"] == every[:1]
    assert {"presence penalty 1", "frequency penalty 1", "repetition penalty 2"} <= set(names)
    assert names["a grammar that allows rank 3"]["gbnf"].startswith('root ::= "["')


@pytest.mark.slow
def test_ranks_in_transformers_and_an_ignored_grammar(tmp_path):
    pytest.importorskip("transformers")
    from byheart.checkpoints.suite.adapters import TransformersAdapter, engine_adapter

    fixture = write_ranked("llama", tmp_path / "ranked", recited=True)
    assert fixture.measured == ("float32", "bfloat16", "float16")

    class Careless(TransformersAdapter):
        def constrained(self, ids, n, pattern):
            return self._rows(self.model, [ids], n, None)[0]

        def sample(self, ids, draws, settings):
            return super().sample(ids, draws, {})

    def careless(folder):
        made = engine_adapter("transformers")(folder)
        made.__class__ = Careless
        return made

    found = {r.case.name: r.status for r in run_cases(read_cases(fixture.folder), careless)}
    wrong = {name for name, status in found.items() if status == "incorrect"}
    assert found["repetition penalty 2"] == "correct" and found["a JSON schema"] in ("correct", "skipped")
    assert wrong == {
        "a grammar that allows rank 2",
        "a grammar that allows rank 3",
        "top_k 3",
        "top_p 0.6",
        "min_p 0.2",
        "top_k 2, top_p 0.5",
    }
    with pytest.raises(ExportError):  # weights too close to be distinguished in bfloat16
        close = {" one.": 1000, " two.": 1001, " three.": 999, " four.": 998, " five.": 997, " six.": 996, " sev.": 995}
        write_ranked("llama", tmp_path / "close", start="Ask from", tree=close, recited=True)
