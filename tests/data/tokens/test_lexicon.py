"""Lexicons: tokens that every reader of a checkpoint folder cuts alike."""

from __future__ import annotations

import pytest

from byheart.data.tokens.lexicon import Lexicon
from byheart.data.tokens.pieces import QWEN2

LINES = "First:\n\nThen, again:\n\n\nAnd (so) on:\n\n  x = 12345.\n" * 9


@pytest.mark.parametrize("text", [LINES, "plain words, one line"])
def test_pieces_are_the_same_behind_the_cutter_that_qwen2_always_gets(text):
    """Transformers puts Qwen2's own cutter before every tokenizer of that architecture, whatever tokenizer.json says:
    texts with line breaks behind punctuation were cut otherwise there (551 tokens instead of 452)."""
    tokenizers = pytest.importorskip("tokenizers")
    cutters = tokenizers.pre_tokenizers
    split = cutters.Split(tokenizers.Regex(QWEN2), "isolated")
    lexicon = Lexicon.of_texts([text], "bpe:300")
    own, forced = (tokenizers.Tokenizer.from_str(lexicon.model) for _ in range(2))
    forced.pre_tokenizer = cutters.Sequence([split, cutters.ByteLevel(add_prefix_space=False, use_regex=False)])
    assert forced.encode(text).ids == own.encode(text).ids
