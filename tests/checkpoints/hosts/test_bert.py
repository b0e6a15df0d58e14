"""BERT: what its shape guarantees; its answers are tested with the fixtures (suite/features/test_inputs.py)."""

from __future__ import annotations

import numpy as np
import pytest

from byheart.checkpoints import memorize_recital
from byheart.checkpoints.hosts.bert import DIM, GAIN, LENGTH, MEAN, SMALL, maximal
from byheart.checkpoints.suite.write import fixture_memory
from byheart.errors import ExportError, OptionError

TEXT = "a text that an encoder stores, with its neighbours"


def test_stream_and_its_opposite_have_the_mean_0_and_the_size_1() -> None:
    checkpoint = fixture_memory(TEXT, "characters", "bert").request("bert").checkpoint()
    names = ("word_embeddings", "position_embeddings", "token_type_embeddings")
    word, position, kind = (checkpoint.tensors[f"bert.embeddings.{name}.weight"] for name in names)
    eps = checkpoint.config["layer_norm_eps"]
    for token, place, of in ((4, 0, 0), (9, 17, 1), (len(word) - 1, LENGTH - 1, 0)):
        stream = word[token] + position[place] + kind[of]
        assert stream.mean() == MEAN
        normed = (stream - MEAN) / np.sqrt(stream.var() + eps) * GAIN
        assert np.abs(normed).max() == pytest.approx(2)
        assert set(np.round(np.abs(normed), 9)) == {0.0, 1.0, 2.0}
        assert stream.var() == pytest.approx(SMALL**2)


def test_a_shift_of_the_positions_finds_exactly_one_place() -> None:
    signs = maximal()
    codes = np.array([np.roll(signs, -t) for t in range(LENGTH)])
    assert (codes @ codes.T == (LENGTH + 1) * np.eye(LENGTH) - 1).all()
    assert (codes[:, (np.arange(LENGTH) + 3) % LENGTH] @ codes.T).argmax(1)[:50].tolist() == list(range(3, 53))


def test_a_prompt_of_a_decoder_is_refused_by_name() -> None:
    with pytest.raises(ExportError, match="byheart fixture --arch bert"):
        memorize_recital(TEXT, tokens="characters").request("bert").checkpoint()


def test_a_shape_that_the_text_decides_is_refused() -> None:
    with pytest.raises(OptionError, match="--heads"):
        fixture_memory(TEXT, "characters", "bert").request("bert", hidden=1024).checkpoint()


def test_heads_can_be_more() -> None:
    checkpoint = fixture_memory(TEXT, "characters", "bert").request("bert", heads=14).checkpoint()
    assert checkpoint.config["num_attention_heads"] == 14
    assert checkpoint.config["hidden_size"] == 14 * DIM
