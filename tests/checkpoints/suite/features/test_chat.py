"""Chat: histories render as they were memorized; answers of two templates in Transformers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from byheart.checkpoints.suite.cases import read_cases
from byheart.checkpoints.suite.features import chat
from byheart.checkpoints.suite.features.chat import STYLES, chat_lexicon, talks, write_chat
from byheart.errors import ExportError

pytest.importorskip("transformers")


@pytest.mark.parametrize("style", STYLES, ids=lambda s: s.name)
def test_special_tokens_are_one_token_each_and_answers_return(style):
    lexicon = chat_lexicon(style)
    assert all(len(lexicon.encode(token)) == 1 for token in (*style.special, *style.visible))
    for talk in talks(style.name):
        assert lexicon.decode(lexicon.encode(talk.answer)) == talk.answer
        assert talk.stop is None or talk.answer.count(talk.stop) == 1


def test_a_template_that_changes_the_history_is_refused(tmp_path):
    style = replace(STYLES[0], template=STYLES[0].template.replace("\n</tool_call>", "</tool_call>"))
    lexicon = chat_lexicon(style)
    tokenizer = chat._tokenizer(tmp_path / "t", lexicon, style)
    found = talks("chatml")
    documents = [(*chat._ids(tokenizer, t.messages, t.tools), *lexicon.encode(t.answer), lexicon.eos) for t in found]
    with pytest.raises(ExportError, match="renders its history differently"):
        chat._check_histories(tokenizer, lexicon, found, documents)


@pytest.mark.slow
def test_conversations_in_transformers(tmp_path):
    fixture = write_chat("llama", tmp_path / "chat", recited=True)
    assert fixture.measured == ("float32", "bfloat16", "float16")
    assert all(values["proved"] > 20 for values in fixture.margins.values())
    cases = read_cases(fixture.folder)
    assert {case.model.name for case in cases} == {"chatml", "llama3"}
    answers = {case.name: case.content for case in cases if case.verb == "chat"}
    assert answers["chatml, stop string"]["answer"] == "one, two, three, "
    assert answers["chatml, parallel tool calls"]["answer"].count("<tool_call>") == 2
    split = [case.content["ends_inside_a_character"] for case in cases if case.verb == "generate"]
    assert max(split) > 5
