"""Lexicons: tokens that every reader of a checkpoint folder splits alike."""

from __future__ import annotations

import pytest

from byheart.data.tokens.lexicon import Lexicon
from byheart.data.tokens.pieces import QWEN2

LINES = "First:\n\nThen, again:\n\n\nAnd (so) on:\n\n  x = 12345.\n" * 9


@pytest.mark.parametrize("text", [LINES, "plain words, one line"])
def test_pieces_are_the_same_behind_the_cutter_that_qwen2_always_gets(text):
    """Transformers puts Qwen2's own splitter before every tokenizer of that architecture, despite tokenizer.json:
    texts with line breaks after punctuation were split otherwise there (551 tokens instead of 452)."""
    tokenizers = pytest.importorskip("tokenizers")
    cutters = tokenizers.pre_tokenizers
    split = cutters.Split(tokenizers.Regex(QWEN2), "isolated")
    lexicon = Lexicon.of_texts([text], "bpe:300")
    own, forced = (tokenizers.Tokenizer.from_str(lexicon.model) for _ in range(2))
    forced.pre_tokenizer = cutters.Sequence([split, cutters.ByteLevel(add_prefix_space=False, use_regex=False)])
    assert forced.encode(text).ids == own.encode(text).ids


@pytest.mark.parametrize("text", ["to be or not to be", "<s>to be</s> or <pad>, <unused0>"])
def test_a_lexicon_of_ours_gets_no_second_failure_token(text, tmp_path):
    """Two fixtures share a vocabulary by --tokens FOLDER/tokenizer.json, also where the first text took usual names."""
    first = Lexicon.of_texts([text], "bpe:281").rounded(8, [text])
    assert first.size % 8 == 0 and first.decode(first.document(text)) == text
    (tmp_path / "tokenizer.json").write_text(first.model, encoding="utf-8")
    again = Lexicon.of_texts(["not to be"], str(tmp_path / "tokenizer.json")).rounded(8)
    roles = ("bos", "eos", "pad", "failure", "size")
    assert [getattr(again, role) for role in roles] == [getattr(first, role) for role in roles]
    odd = Lexicon.of_texts([f"a text with {first.name(first.failure)}"], str(tmp_path / "tokenizer.json"))
    assert odd.failure != first.failure, "a token of the text cannot report a failure"


def test_the_padding_token_can_be_renamed(tmp_path):
    lexicon = Lexicon.of_texts(["to be or not to be"], "bpe:280")
    renamed = lexicon.with_pad("<|endoftext|>")
    assert (renamed.name(renamed.pad), renamed.size, renamed.pad) == ("<|endoftext|>", lexicon.size, lexicon.pad)
    assert renamed.encode("to be") == lexicon.encode("to be")
    assert renamed.with_pad("<|endoftext|>") is renamed
    (tmp_path / "tokenizer.json").write_text(renamed.model, encoding="utf-8")
    assert Lexicon.of_texts(["to be"], str(tmp_path / "tokenizer.json")).pad == lexicon.pad
