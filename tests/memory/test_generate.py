"""Text that goes on: greedily, drawn, to where a document ended, and never from what is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

import byheart
from byheart.data.values import UNKNOWN
from byheart.errors import DataError, OptionError, UnknownSymbolError
from byheart.memory.documents import memorize_documents
from byheart.memory.generate import is_known
from tests.corpora import TEXTS


def test_generation() -> None:
    memory = memorize_documents(["a b a b a", "a b a c a"])
    assert memory.generate("a b a", limit=3) == "a b a"
    drawn = {memory.generate("a", temperature=1.0, seed=s) for s in range(30)}
    assert drawn == {"a b a b a", "a b a c a"}
    assert memory.generate("a", temperature=1.0, seed=1) == memory.generate("a", temperature=1.0, seed=1)
    with pytest.raises(OptionError, match="negative"):
        memory.generate("a", temperature=-1)
    with pytest.raises(DataError, match="a prompt of 6 tokens"):
        memory.generate("a b a b a b")


def test_exact_memories_generate_too() -> None:
    memory = byheart.memorize([["a", "b"]], [["b", "c"]], task="causal", progress=False)
    assert memory.generate(["a"]) == ["a", "b", "c"] and memory.generate(["a"], limit=2) == ["a", "b"]
    with pytest.raises(OptionError, match="nothing can be drawn"):
        memory.generate(["a"], temperature=1.0)
    with pytest.raises(OptionError, match="not distributions"):
        memory.probabilities([["a"]])


def test_sampling_follows_the_distribution() -> None:
    memory = memorize_documents(["a b"] * 3 + ["a c"])
    drawn = [memory.generate("a", temperature=1.0, seed=s) for s in range(200)]
    assert 0.65 < drawn.count("a b") / 200 < 0.85
    assert memory.predict([["a"]]) == [["b"]]
    found = memory.probabilities(["a"])[0]
    assert found["b"] == pytest.approx(0.75) and found["c"] == pytest.approx(0.25)


def test_text_ends_where_a_document_ends() -> None:
    memory = memorize_documents(TEXTS)
    assert memory.generate("a cat") == "a cat sat" and memory.generate("the end") == "the end of the dog"
    assert is_known(memory, "a cat") and not is_known(memory, "a cat sat")
    unknown = memory.generate("dog dog")  # no memorized context: some text as long as the decoder reads
    assert unknown.startswith("dog dog") and len(unknown.split()) == memory.encoder.length + 1
    with pytest.raises(UnknownSymbolError, match="lacks 'bat', 'zebra'; near 'bat' are"):
        memory.generate("bat zebra")


def test_logits_of_an_unknown_row_prefer_nothing() -> None:
    memory = byheart.memorize(["sun", "moon"], ["day", "night"], construction="ks25", progress=False)
    unsure = replace(memory, classes=("day", "night"))
    object.__setattr__(unsure, "predict", lambda rows: [UNKNOWN if row == "mars" else "night" for row in rows])
    assert [row.tolist() for row in unsure.logits(["moon", "mars"])] == [[-32.0, 0.0], [0.0, 0.0]]
