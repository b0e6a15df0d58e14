"""T5: what its shape guarantees; its answers are tested with the fixtures (suite/features/test_inputs.py)."""

from __future__ import annotations

import numpy as np
import pytest

from byheart.checkpoints.hosts.description import SpecialTokens
from byheart.checkpoints.hosts.t5 import BUCKETS, LONGEST, STEP, title_of
from byheart.checkpoints.recital import RecitalMemory, memorize_recital
from byheart.checkpoints.suite.write import fixture_memory
from byheart.checkpoints.windows import build_recital
from byheart.errors import ExportError, OptionError

TEXT = "a text that a decoder recites after its title, and after no other one"


def test_encoder_and_decoder_have_as_many_layers() -> None:
    """Transformers makes a cache of `num_layers` layers for the decoder."""
    config = fixture_memory(TEXT, "characters", "t5").request("t5").checkpoint().config
    assert config["num_layers"] == config["num_decoder_layers"] == 2


def test_the_title_is_what_the_text_begins_with() -> None:
    memory = fixture_memory(TEXT, "characters", "t5")
    lexicon = memory.lexicon
    title = title_of(memory.recital, SpecialTokens(lexicon.bos, lexicon.eos, lexicon.pad, lexicon.failure))
    assert title[:-1] == memory.script.documents[0][1 : len(title)]
    assert title[-1] == lexicon.eos


def test_biases_rise_to_the_distance_of_a_head() -> None:
    memory = fixture_memory(TEXT, "characters", "t5")
    tensors = memory.request("t5").checkpoint().tensors
    decoder = tensors["decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
    offsets = sorted({o for table in memory.recital.tables for o in table.offsets})
    assert decoder.shape[0] == BUCKETS
    for head, offset in enumerate(offsets):
        assert decoder[:, head].argmax() == offset
        assert (np.diff(decoder[: offset + 1, head]) == STEP).all()
    encoder = tensors["encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
    assert encoder[:, :5].argmax(0).tolist() == [0, 1, 2, BUCKETS // 2 + 1, BUCKETS // 2 + 2]


def test_one_table_is_held_by_two_layers() -> None:
    memory = fixture_memory(TEXT, "characters", "t5")
    built = build_recital(memory.script, memory.lexicon.size, memory.lexicon.failure, schedule=(tuple(range(9)),))
    wide = RecitalMemory(built.recital, memory.lexicon, memory.script, {})
    checkpoint = wide.request("t5").checkpoint()
    rows = [row for _, _, _, row in checkpoint.units]
    assert sorted(rows) == list(range(built.recital.rows))
    assert {layer for layer, *_ in checkpoint.units} == {0, 1}


def test_places_beyond_the_exact_buckets_are_refused() -> None:
    memory = memorize_recital(TEXT, tokens="characters")
    schedule = (((*range(9), LONGEST + 1)),)
    built = build_recital(memory.script, memory.lexicon.size, memory.lexicon.failure, schedule=schedule)
    with pytest.raises(ExportError, match=f"{LONGEST} places"):
        RecitalMemory(built.recital, memory.lexicon, memory.script, {}).request("t5").checkpoint()


def test_heads_too_small_for_a_word_are_refused() -> None:
    with pytest.raises(OptionError, match="--head-dim 16"):
        fixture_memory(TEXT, "characters", "t5").request("t5", head_dim=16).checkpoint()
