"""Books: a text cut into pages, memorized as a language model, and recited.

The first token of a page is its number, so every prefix has one continuation; the labels are the characters that
follow. Where the last page is shorter than the others, its last label is the empty string: the end of the text.

    >>> memory = memorize_text("a rose is a rose", page_length=6, progress=False)
    >>> recite(memory, 1), recite(memory)
    (' is a ', 'a rose is a rose')
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from byheart.compile.memorize import memorize
from byheart.compile.memory import Memory
from byheart.data.task import Task
from byheart.data.tokens.tokenizer import Tokenizer
from byheart.data.values import UNKNOWN, key
from byheart.errors import DataError, OptionError
from byheart.exact.budget import limited
from byheart.ir.decoder_network import DecoderNetwork
from byheart.ir.evaluate import answers
from byheart.ir.network import Read
from byheart.progress import SILENT, Progress

END = ""
PAGES_AT_ONCE = 4096


def memorize_text(
    text: str | bytes,
    *,
    page_length: int | None = None,
    construction: str = "compact",
    seed: int = 0,
    progress: bool | Progress = True,
    **options: Any,
) -> Memory:
    """A language model that recites `text`: characters of a str, or bytes (each as the character of its number).

    `page_length` characters make a page (default: about the cube root of the length, between 8 and 64): longer pages
    are fewer numbers to hash but longer prefixes to add up.
    """
    characters = text.decode("latin-1") if isinstance(text, bytes) else text
    if not characters:
        raise DataError("the text is empty; there is nothing to recite")
    length = page_length or min(64, max(8, round(len(characters) ** (1 / 3))))
    if length < 1:
        raise OptionError(f"page_length is {page_length}; a page needs at least one character")
    rows, labels = page_rows(characters, length)
    building = {"construction": construction, "seed": seed, "progress": progress, **options}
    memory = memorize(rows, labels, task=Task.CAUSAL, positions=True, **building)
    return replace(memory, tokens=Tokenizer("bytes" if isinstance(text, bytes) else "characters"))


def page_rows(characters: str, length: int) -> tuple[list[list[Any]], list[list[str]]]:
    """A text as rows and labels, one per page of `length` characters.

    >>> page_rows("rose", 3)
    ([[0, 'r', 'o'], [1, 'e']], [['r', 'o', 's'], ['e', '']])
    """
    pages = [characters[start : start + length] for start in range(0, len(characters), length)]
    rows: list[list[Any]] = [[number, *page[:-1]] for number, page in enumerate(pages)]
    labels = [list(page) for page in pages]
    if len(pages[-1]) < length:
        rows[-1].append(pages[-1][-1])
        labels[-1].append(END)
    return rows, labels


def rows_again(memory: Memory, text: str | bytes) -> tuple[list[list[Any]], list[list[str]]]:
    """The rows of a text as they were for a memory of a text: the length of its rows is that of its pages."""
    if not text:
        raise DataError("the text is empty; there is nothing to recite")
    return page_rows(text.decode("latin-1") if isinstance(text, bytes) else text, memory.encoder.length)


def page_count(memory: Memory) -> int:
    """How many pages a memory of a text has; 0 for any other memory."""
    symbols = memory.encoder.symbols or ()
    numbers = [symbol for symbol in symbols if type(symbol) is int]
    book = memory.task is Task.CAUSAL and memory.encoder.positions and all(isinstance(c, str) for c in memory.classes)
    return len(numbers) if book and numbers == list(range(len(numbers))) else 0


def recite(
    memory: Memory, page: int | str | Sequence[Any] | None = None, progress: Progress = SILENT
) -> str | list[Any]:
    """What the memory says, decoded greedily token by token.

    None: the whole text; a number: that page; a str: the rest of the page after the first place where the text has it;
    a list of tokens: their continuation as a list, for any causal memory.
    """
    if isinstance(memory.network, DecoderNetwork):
        raise OptionError(
            "a memory of distributions recites nothing by heart; memory.generate(prompt) goes on after a prompt"
        )
    if memory.task is not Task.CAUSAL:
        raise OptionError(f"only causal memories recite; this one was made for {memory.task}")
    if page is not None and not isinstance(page, int | str):
        return _continue(memory, [list(page)], progress)[0]
    pages = page_count(memory)
    if not pages:
        raise OptionError("this memory holds no text with page numbers; give the first tokens of a row as a list")
    if isinstance(page, int):
        if not 0 <= page < pages:
            raise OptionError(f"page {page} is asked for, but the pages are numbered 0 to {pages - 1}")
        return "".join(_continue(memory, [[page]], progress)[0])
    texts = list(_pages(memory, pages, progress))
    if page is None:
        return "".join(texts)
    whole, length = "".join(texts), len(texts[0])
    place = whole.find(page)
    if place < 0:
        raise OptionError(f"the memorized text has no {page!r}")
    stop = math.ceil((place + len(page)) / length) * length
    return whole[place + len(page) : max(stop, place + len(page))]


def _pages(memory: Memory, pages: int, progress: Progress) -> Iterator[str]:
    with progress.stage("reciting pages", total=pages) as stage:
        for start in range(0, pages, PAGES_AT_ONCE):
            numbers = range(start, min(pages, start + PAGES_AT_ONCE))
            for recited in _continue(memory, [[number] for number in numbers], SILENT):
                yield "".join(recited)
            stage.advance(len(numbers))


def _continue(memory: Memory, rows: list[list[Any]], progress: Progress) -> list[list[Any]]:
    """Each row's continuation until the row is full, ends, or the memory has no answer. Rows have one length."""
    if isinstance(memory.network, DecoderNetwork):
        raise OptionError("only exact networks recite")
    network = replace(memory.network, read=Read.LAST)
    recited: list[list[Any]] = [[] for _ in rows]
    live = list(range(len(rows)))
    known = set(map(key, memory.encoder.symbols or ()))
    for _ in range(memory.encoder.length - len(rows[0]) + 1):
        inputs = memory.encoder.encode([rows[i] + recited[i] for i in live])
        with limited(memory.budget):
            found = answers(network, inputs, progress)
        labels = [memory.classes[k] if k >= 0 else UNKNOWN for k in np.asarray(found).tolist()]
        for i, label in zip(live, labels, strict=True):
            if label is not UNKNOWN and label != END:
                recited[i].append(label)
        live = [
            i
            for i, label in zip(live, labels, strict=True)
            if label is not UNKNOWN and label != END and key(label) in known
        ]
        if not live:
            break
    return recited
