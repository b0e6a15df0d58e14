"""Texts are recited without a single error, from Python and from the command line."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import byheart
from byheart.cli import commands
from byheart.errors import BuildError, DataError, OptionError
from byheart.memory.text import page_count, rows_again

VERSE = "Roses are red,\r\nviolets are blue;\n\nsugar is sweet — and so are you.\n"


@pytest.mark.parametrize("length", [1, 5, 7, 64])
def test_a_text_comes_back(length):
    memory = byheart.memorize_text(VERSE, page_length=length, progress=False)
    assert memory.certificate.verdict == "proved"
    assert memory.recite() == VERSE
    assert page_count(memory) == -(-len(VERSE) // length)


def test_pages_and_prompts():
    memory = byheart.memorize_text(VERSE, page_length=10, progress=False)
    assert memory.recite(2) == VERSE[20:30]
    assert memory.recite("violets") == VERSE[VERSE.index("violets") + 7 : 30]
    assert memory.recite([0, *VERSE[:4]]) == list(VERSE[4:10])
    with pytest.raises(OptionError, match="numbered 0 to"):
        memory.recite(99)
    with pytest.raises(OptionError, match="does not contain"):
        memory.recite("tulips")


@pytest.mark.parametrize("tokens", ["bytes", "words", "bpe:300"])
def test_any_tokens_give_the_text_back(tokens, tmp_path):
    memory = byheart.memorize_text(VERSE, tokens=tokens, page_length=5, progress=False)
    assert memory.certificate.verdict == "proved"
    memory.save(tmp_path / "book")
    again = byheart.load(tmp_path / "book")
    assert again.verify(*rows_again(again, VERSE)).verdict == "proved"
    assert again.generate("violets") == VERSE[VERSE.index("violets") :]
    said = again.recite()
    assert (said.encode("latin-1").decode() if tokens == "bytes" else said) == VERSE


def test_tokens_that_lose_something_are_refused(tmp_path):
    with pytest.raises(DataError, match="does not come back"):
        byheart.memorize_text(VERSE, tokens="wordpunct", progress=False)
    with pytest.raises(OptionError, match="decode them"):
        byheart.memorize_text(b"abc", tokens="words", progress=False)
    words = byheart.memorize_text(VERSE, tokens="words", progress=False).tokens.model
    (tmp_path / "tokenizer.json").write_text(words)
    for source in (tmp_path, tmp_path / "tokenizer.json"):
        assert byheart.memorize_text(VERSE, tokens=str(source), progress=False).recite() == VERSE


def perplexity(logits, labels):
    rows = np.array([row - np.log(np.exp(row).sum()) for row in logits])
    return float(np.exp(-np.mean([row[k] for row, k in zip(rows, labels, strict=True)])))


def test_generation_goes_on_across_pages_and_the_perplexity_is_one():
    memory = byheart.memorize_text(VERSE, page_length=10, progress=False)
    assert memory.generate("violets") == VERSE[VERSE.index("violets") :]
    assert memory.generate("violets", limit=12) == "violets are "
    with pytest.raises(OptionError, match="does not contain 'tulips'"):
        memory.generate("tulips")
    (logits,) = memory.logits([VERSE])
    number = {label: k for k, label in enumerate(memory.classes)}
    assert logits.shape == (len(VERSE), len(memory.classes))
    known = [k for k, c in enumerate(VERSE[1:]) if c in number]
    assert len(known) == len(VERSE) - 1
    assert 1 <= perplexity(logits[:-1], [number[c] for c in VERSE[1:]]) < 1 + 1e-11


def test_exported_logits_give_a_perplexity_of_one():
    pytest.importorskip("torch")
    rows = [VERSE[i : i + 6] for i in range(0, 60, 6)]
    memory = byheart.memorize(rows, [i * i % 7 for i in range(10)], construction="native", progress=False)
    model = memory.to_torch()
    found = model(model.encode([list(row) for row in rows])).double().numpy()
    labels = [list(memory.classes).index(i * i % 7) for i in range(10)]
    assert 1 <= perplexity(found, labels) < 1 + 1e-11
    assert 1 <= perplexity(memory.logits(rows), labels) < 1 + 1e-11


def test_what_cannot_be_recited():
    with pytest.raises(DataError, match="empty"):
        byheart.memorize_text("", progress=False)
    with pytest.raises(OptionError, match="page"):
        byheart.memorize_text("abc", page_length=-1, progress=False)
    rows = byheart.memorize(["ab"], [0], progress=False)
    with pytest.raises(OptionError, match="only causal"):
        rows.recite()


def test_byte_for_byte_on_the_command_line(tmp_path):
    for data in (VERSE.encode(), b"\xff\x00caf\xe9\r\n" * 3, b"x"):
        book, memory, again = tmp_path / "book.txt", tmp_path / "book.byheart", tmp_path / "again.txt"
        book.write_bytes(data)
        built = CliRunner().invoke(commands, ["memorize", str(book), "--task", "causal", "-o", str(memory), "--json"])
        assert built.exit_code == 0, built.output
        said = CliRunner().invoke(commands, ["recite", str(memory), "-o", str(again)])
        assert said.exit_code == 0 and again.read_bytes() == data
        out = CliRunner().invoke(commands, ["recite", str(memory)])
        assert out.stdout_bytes == data


@pytest.mark.slow
def test_shakespeare():
    """100,000 characters from at most 20,000 parameters."""
    path = Path(os.environ.get("BYHEART_DATA", Path(__file__).parents[3] / "shared" / "data")) / "tinyshakespeare.txt"
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    text = path.read_text(encoding="utf-8")[:100_000]
    memory = byheart.memorize_text(text, progress=False)
    assert memory.certificate.verdict == "proved" and memory.size.parameters <= 20_000
    assert memory.recite() == text


def test_pages_of_hundreds_of_letters():
    """An overflow after minutes, once, and then refused: traps read ids of a thousand bits as well as short ones."""
    text = "".join(random.Random(3).choices("abcdefghijklmnopqrstuvwxyz ", k=900))
    memory = byheart.memorize_text(text, page_length=700, effort="quick", progress=False)
    assert memory.certificate.verdict == "proved" and memory.certificate.guarantee == "kept"
    assert memory.recite(1) == text[700:]


@pytest.mark.slow
def test_lines_steeper_than_floats():
    """Pages of 700 of 1,200 characters: the slope of a line was longer than a float goes."""
    text = "".join(random.Random(5).choice("abcdefghijklmnopqrstuvwxyz ,.") for _ in range(1200))
    memory = byheart.memorize_text(text, page_length=700, progress=False)
    assert memory.certificate.verdict == "proved" and memory.recite() == text


def test_pages_that_are_out_of_reach_are_refused_at_once():
    """More labels than traps take: a walk along every bit of every id would search for an hour."""
    text = "".join(random.Random(3).choices([chr(0x4E00 + k) for k in range(200)], k=4000))
    begun = time.process_time()
    with pytest.raises(
        BuildError, match=r"minutes to search; make rows of at most [23]\d\d tokens \(of a text: --page"
    ):
        byheart.memorize_text(text, page_length=700, progress=False)
    assert time.process_time() - begun < 10


def test_a_short_text_may_be_one_long_page():
    text = "".join(random.Random(3).choices("abcdefghijklmnopqrstuvwxyz ", k=260))
    assert byheart.memorize_text(text, page_length=700, progress=False).recite() == text
