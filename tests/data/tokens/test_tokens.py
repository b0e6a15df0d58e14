"""Tokenizers as values: what they split, what survives a file, what a file may not contain."""

from __future__ import annotations

import json
from html.entities import html5

import pytest

import byheart
from byheart.data.read.table import read
from byheart.data.tokens.tokenizer import Tokenizer, choose
from byheart.errors import DataError, FileFormatError, OptionError, UnknownSymbolError

TEXTS = ["to be, or not to be", "that is the question", "whether 'tis nobler in the mind", "Zürich \U0001f600"]
TRAINED = ["bpe:300", "wordpiece:60", "unigram:60"]


def test_simple_ways_of_cutting():
    assert Tokenizer("characters").cut("ab c") == ["a", "b", " ", "c"]
    assert Tokenizer("bytes").cut("é") == [0xC3, 0xA9]
    assert Tokenizer("words").cut(" to  be\n") == ["to", "be"]
    assert Tokenizer("wordpunct").cut("isn't!") == ["isn", "'", "t", "!"]
    assert Tokenizer("integers").cut("3, -4 5") == [3, -4, 5]
    with pytest.raises(DataError, match="'x' is not a whole number"):
        Tokenizer("integers").cut("3 x")


def test_lengths_are_fitted_as_in_the_papers():
    tokenizer = Tokenizer("characters", max_length=3, pad="·")
    assert ["".join(tokenizer.cut(text)) for text in ("abcd", "abc", "a")] == ["abc", "abc", "a··"]
    assert tokenizer.cut_texts(["abcd", ["x", "y"]]) == [["a", "b", "c"], ["x", "y", "·"]]


def test_joining():
    for kind in ("characters", "bytes"):
        assert Tokenizer(kind).join(Tokenizer(kind).cut(TEXTS[3])) == TEXTS[3]
    assert Tokenizer("words").join(["to", "be"]) == "to be"


@pytest.mark.parametrize("spec", TRAINED)
def test_trained_pieces(spec):
    pytest.importorskip("tokenizers")
    tokenizer = choose(spec, TEXTS)
    wider = [*TEXTS, *(f"{a} {b}" for a in html5 for b in "xy")][:200]
    assert choose(spec, wider) == choose(spec, wider), "training gives the same pieces every time"
    pieces = [tokenizer.cut(text) for text in TEXTS]
    assert len({tuple(row) for row in pieces}) == len(TEXTS)
    assert Tokenizer.from_dict(json.loads(json.dumps(tokenizer.as_dict()))) == tokenizer
    assert tokenizer.join(pieces[1]) == TEXTS[1]
    assert spec.startswith(tokenizer.kind) and ":" in str(tokenizer)


def test_bytes_of_bpe_lose_nothing():
    pytest.importorskip("tokenizers")
    tokenizer = choose("bpe:260", TEXTS)
    for text in (*TEXTS, "never seen: 漢字  \t two spaces"):
        assert tokenizer.join(tokenizer.cut(text)) == text
    with pytest.raises(OptionError, match="256 bytes alone"):
        choose("bpe:100", TEXTS)


def test_long_words_stay_different():
    pytest.importorskip("tokenizers")
    tokenizer = choose("wordpiece:60", [*TEXTS, "a" * 200 + "b", "a" * 200 + "c"])
    assert tokenizer.cut("a" * 200 + "b") != tokenizer.cut("a" * 200 + "c")


@pytest.mark.parametrize("spec", TRAINED)
def test_a_memory_carries_its_tokenizer(spec, tmp_path):
    pytest.importorskip("tokenizers")
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": t, "label": k}) + "\n" for k, t in enumerate(TEXTS)))
    table = read(tmp_path / "t.jsonl", tokens=spec, max_length=8)
    memory = byheart.memorize(table, construction="ks25", progress=False)
    memory.save(tmp_path / "m")
    loaded = byheart.load(tmp_path / "m")
    assert loaded.tokens == table.tokens and loaded.selection == memory.selection
    assert loaded.predict(TEXTS) == loaded.predict(table.sequences) == [0, 1, 2, 3]
    with pytest.raises(UnknownSymbolError):
        loaded.predict([TEXTS[2].replace("w", "漢")])


def test_a_users_tokenizer(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {"[CLS]": 0, "[UNK]": 1, "to": 2, "be": 3}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 0)])
    made.enable_padding(length=20)
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = choose(str(tmp_path / "tokenizer.json"), [])
    assert tokenizer.cut("to be not") == ["to", "be", "[UNK]"]
    assert Tokenizer.from_dict(tokenizer.as_dict()).cut("be") == ["be"]
    for content in ("", "{}", "[]", '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}', "[" * 10_000):
        (tmp_path / "bad.json").write_text(content)
        with pytest.raises(DataError, match=r"not a tokenizer\.json"):
            choose(str(tmp_path / "bad.json"), [])
    with pytest.raises(DataError, match="no file"):
        choose("nowhere.json", [])


def test_simple_names_are_stored_as_names():
    assert Tokenizer("words").as_dict() == "words"
    assert Tokenizer.from_dict("words") == Tokenizer("words")
    padded = Tokenizer("integers", max_length=4, pad=2**70)
    assert Tokenizer.from_dict(json.loads(json.dumps(padded.as_dict()))) == padded


GOOD = {"kind": "words", "model": None, "max_length": 3, "pad": None, "type": "auto"}


@pytest.mark.parametrize(
    "stored",
    [
        None,
        7,
        "nope",
        "bpe",
        [],
        {},
        {**GOOD, "more": 1},
        {**GOOD, "kind": []},
        {**GOOD, "kind": "bpe"},
        {**GOOD, "model": "{}"},
        {**GOOD, "kind": "bpe", "model": "{}"},
        {**GOOD, "kind": "bpe", "model": "[" * 100_000},
        {**GOOD, "kind": "bpe", "model": '{"model": {"vocab": 3}}'},
        {**GOOD, "kind": "bpe", "model": 7},
        {**GOOD, "max_length": True},
        {**GOOD, "max_length": -1},
        {**GOOD, "max_length": 2**80},
        {**GOOD, "max_length": None},
        {**GOOD, "max_length": None, "pad": "x"},
        {**GOOD, "pad": []},
        {**GOOD, "pad": {"integer": "1"}},
    ],
)
def test_a_file_is_read_strictly(stored):
    with pytest.raises(FileFormatError):
        Tokenizer.from_dict(stored)


def test_a_foreign_model_is_refused_when_it_is_used():
    pytest.importorskip("tokenizers")
    forged = Tokenizer.from_dict({**GOOD, "kind": "bpe", "model": '{"model": {"vocab": {}, "type": "Nope"}}'})
    with pytest.raises((FileFormatError, DataError)):
        forged.cut("abc")


def test_codes_with_spaces_are_cut_into_characters_and_prose_into_words():
    codes = [f"{chr(65 + k % 26)}{k * 37 % 977} {k % 89}{chr(65 + k % 23)}" for k in range(600)]
    assert choose("auto", codes).kind == "characters"
    table = byheart.read({"code": codes, "kind": [k % 3 for k in range(600)]})
    assert "characters make a token table of" in table.note and "(--tokens words)" in table.note
    prose = [f"the {noun} is {how} today" for noun in ("sun", "wind", "rain") for how in ("warm", "cold")]
    assert choose("auto", prose).kind == "words" and "table of" not in byheart.read({"t": prose, "y": prose}).note
    assert (
        choose("auto", [f"{text} and on it goes, far beyond what any code would ever be long" for text in codes]).kind
        == "words"
    )
