"""Texts are recited without a single error, from Python and from the command line."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import byheart
from byheart.cli import commands
from byheart.compile.text import page_count
from byheart.errors import BuildError, DataError, OptionError

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
    with pytest.raises(OptionError, match="has no"):
        memory.recite("tulips")


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


def test_pages_that_are_out_of_reach_are_refused_at_once():
    text = "".join(random.Random(3).choices("abcdefghijklmnopqrstuvwxyz ", k=1200))
    begun = time.perf_counter()
    with pytest.raises(BuildError, match="--page-length 1[0-9][0-9] or less"):
        byheart.memorize_text(text, page_length=700, progress=False)
    assert time.perf_counter() - begun < 20


def test_a_short_text_may_be_one_long_page():
    text = "".join(random.Random(3).choices("abcdefghijklmnopqrstuvwxyz ", k=260))
    assert byheart.memorize_text(text, page_length=700, progress=False).recite() == text
