"""Tokenizers and processors of models that continue more than a prompt."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from byheart.checkpoints.formats.inputs import (
    MASK,
    lexicon_for,
    number_of,
    png_bytes,
    task_of,
    tokenizer_fields,
    with_mask,
)
from byheart.data.tokens.lexicon import Lexicon

LEXICON = Lexicon.of_texts(["to be or not to be"], "words")


def tokens(lexicon: Lexicon, *texts: str) -> tuple[list[str], list[int]]:
    found = lexicon._tokenizer.encode(*texts)
    return [lexicon.name(t) for t in found.ids], list(found.type_ids)


def test_an_encoders_texts_stand_between_both_ends() -> None:
    lexicon = with_mask(LEXICON)
    assert tokens(lexicon, "to be") == (["<s>", "to", " be", "</s>"], [0, 0, 0, 0])
    assert tokens(lexicon, "to", "to be")[1] == [0, 0, 0, 1, 1, 1]
    assert tokens(lexicon, "to<mask>")[0][2] == "<mask>"
    assert tokenizer_fields("masked", lexicon)["mask_token"] == "<mask>"


def test_the_mask_is_found_after_the_vocabulary_was_rounded() -> None:
    lexicon = with_mask(LEXICON).rounded(8)
    assert lexicon.size % 8 == 0
    assert lexicon.name(number_of(lexicon, MASK)) == "<mask>"
    assert lexicon._tokenizer.encode("to<mask>").ids[2] == number_of(lexicon, MASK)


def test_an_encoder_decoders_input_ends_without_beginning() -> None:
    assert tokens(lexicon_for("seq2seq", LEXICON), "to be")[0] == ["to", " be", "</s>"]


def test_a_placeholder_is_one_token() -> None:
    assert tokens(lexicon_for("picture", LEXICON), "<image><image>to")[0] == ["<s>", "<image>", "<image>", "to"]


def test_a_picture_comes_back() -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(1).integers(0, 256, (5, 7, 3)).astype(np.uint8)
    assert (np.asarray(image.open(io.BytesIO(png_bytes(pixels)))) == pixels).all()


def test_a_folder_names_its_task(tmp_path: Path) -> None:
    assert task_of(tmp_path) == "causal"
    for kind, task in (("bert", "masked"), ("t5", "seq2seq"), ("llava", "picture"), ("llama", "causal")):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
        assert task_of(tmp_path) == task
