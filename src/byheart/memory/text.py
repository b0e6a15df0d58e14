"""Books: a text split into pages, memorized as a language model, and recited.

The first token of a page is its number, so every prefix has one continuation; the labels are the tokens that follow.
Where the last page is shorter than the others, its last label is the empty string: the end of the text.

    >>> memory = memorize_text("a rose is a rose", page_length=6, progress=False)
    >>> recite(memory, 1), recite(memory)
    (' is a ', 'a rose is a rose')
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from byheart.data.task import Task
from byheart.data.tokens.lexicon import Lexicon
from byheart.data.tokens.tokenizer import Tokenizer, choose
from byheart.data.values import UNKNOWN, key
from byheart.errors import DataError, OptionError
from byheart.exact.budget import limited
from byheart.ir.decoder_network import DecoderNetwork
from byheart.ir.evaluate import answers
from byheart.ir.network import Read
from byheart.memory.memorize import memorize
from byheart.memory.memory import Memory
from byheart.progress import SILENT, Progress

END = ""
# Pages that are decoded together.
PAGES_AT_ONCE = 4096


def memorize_text(
    text: str | bytes,
    *,
    tokens: str | Tokenizer = "characters",
    page_length: int | None = None,
    construction: str = "compact",
    seed: int = 0,
    progress: bool | Progress = True,
    **options: Any,
) -> Memory:
    """Compute a language model that recites `text`.

    Args:
        text: A str (characters), or bytes (each as the character of its number).
        tokens: `characters`, `bytes`, `words` (with the spaces before them), `bpe:SIZE`, a tokenizer.json, or a folder
            of a Hugging Face tokenizer. A tokenizer that does not restore the text is refused.
        page_length: Tokens of a page; None: about the cube root of the length, between 8 and 64. Longer pages are fewer
            numbers to hash but longer prefixes to add.
        construction: A construction for the task `causal`.
        seed: Equal seeds give equal weights.
        progress: Whether to show progress.
        **options: Options of the construction.

    Returns:
        A `Memory` with `recite` and `generate`.

    Raises:
        DataError: If the text is empty, or the tokenizer loses a part of it.

    >>> memory = memorize_text("so it goes, so it goes", tokens="words", page_length=3, progress=False)
    >>> memory.recite(), memory.generate("goes,")
    ('so it goes, so it goes', 'goes, so it goes')
    """
    if not text:
        raise DataError("the text is empty; there is nothing to recite")
    tokenizer = _tokenizer(text, tokens)
    found = _cut(text, tokenizer)
    length = page_length or min(64, max(8, round(len(found) ** (1 / 3))))
    if length < 1:
        raise OptionError(f"page_length is {page_length}; a page needs at least one token")
    rows, labels = page_rows(found, length)
    building = {"construction": construction, "seed": seed, "progress": progress, **options}
    memory = memorize(rows, labels, task=Task.CAUSAL, positions=True, **building)
    return replace(memory, tokens=tokenizer)


def _tokenizer(text: str | bytes, tokens: str | Tokenizer) -> Tokenizer:
    """How the text is tokenized; words keep the space before them, as in a recital's lexicon."""
    if isinstance(text, bytes) or tokens == "bytes":
        if tokens not in ("characters", "bytes"):
            raise OptionError(f"tokens={str(tokens)!r}: bytes are recited as bytes; decode them to a text first")
        return Tokenizer("bytes")
    if tokens == "words":
        return Tokenizer("file", Lexicon.of_texts([text], "words").model)
    if isinstance(tokens, str) and Path(tokens).is_dir():
        tokens = str(Path(tokens) / "tokenizer.json")
    return choose(tokens, [text])


def _cut(text: str | bytes, tokenizer: Tokenizer) -> Sequence[str]:
    """The tokens of a text; a DataError if they do not give it back."""
    if tokenizer.kind == "bytes":
        return (text.encode("utf-8") if isinstance(text, str) else text).decode("latin-1")
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    if tokenizer.kind == "characters":
        return text
    found = [str(token) for token in tokenizer.whole(text)]
    if tokenizer.join(found) != text:
        raise DataError(
            f"tokens {tokenizer}: the text does not come back from its tokens; characters, bytes, words and bpe keep "
            "every text whole"
        )
    return found


def joined(memory: Memory, tokens: Sequence[Any]) -> str:
    """The text of a book's tokens."""
    return "".join(map(str, tokens)) if memory.tokens.model is None else memory.tokens.join(tokens)


def page_rows(tokens: Sequence[str], length: int) -> tuple[list[list[Any]], list[list[str]]]:
    """The tokens of a text as rows and labels, one per page of `length` tokens.

    >>> page_rows("rose", 3)
    ([[0, 'r', 'o'], [1, 'e']], [['r', 'o', 's'], ['e', '']])
    """
    pages = [tokens[start : start + length] for start in range(0, len(tokens), length)]
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
    return page_rows(_cut(text, memory.tokens), memory.encoder.length)


def page_count(memory: Memory) -> int:
    """How many pages a memory of a text has; 0 for any other memory."""
    symbols = memory.encoder.symbols or ()
    numbers = [symbol for symbol in symbols if type(symbol) is int]
    book = memory.task is Task.CAUSAL and memory.encoder.positions and all(isinstance(c, str) for c in memory.classes)
    return len(numbers) if book and numbers == list(range(len(numbers))) else 0


def recite(
    memory: Memory, page: int | str | Sequence[Any] | None = None, progress: Progress = SILENT
) -> str | list[Any]:
    """The text that the memory recites, decoded greedily token by token.

    None: the whole text; a number: that page; a str: the rest of the page after the first place where the text has it;
    a list of tokens: their continuation as a list, for any causal memory.
    """
    if isinstance(memory.network, DecoderNetwork):
        raise OptionError(
            "a memory of distributions has no one text to recite; memory.generate(prompt) continues a prompt"
        )
    if memory.task is not Task.CAUSAL:
        raise OptionError(f"only causal memories recite; this one has the task {memory.task}")
    if page is not None and not isinstance(page, int | str):
        return _continue(memory, [list(page)], progress)[0]
    pages = page_count(memory)
    if not pages:
        raise OptionError("this memory has no numbered pages; give the first tokens of a row as a list")
    if isinstance(page, int):
        if not 0 <= page < pages:
            raise OptionError(f"page {page} does not exist: the pages are numbered 0 to {pages - 1}")
        return joined(memory, _continue(memory, [[page]], progress)[0])
    found = recite_pages(memory, progress)
    if page is None:
        return joined(memory, [token for tokens in found for token in tokens])
    return _rest_of_page(memory, found, page)


def _rest_of_page(memory: Memory, pages: list[list[Any]], prompt: str) -> str:
    tokens = [token for page in pages for token in page]
    whole = joined(memory, tokens)
    place = whole.find(prompt)
    if place < 0:
        raise OptionError(f"the memorized text does not contain {prompt!r}")
    end, stop = 0, place + len(prompt)
    for page in pages:
        end += len(page)
        before = joined(memory, tokens[:end])
        if len(before) >= stop and whole.startswith(before):  # a page may end inside a character of several bytes
            return before[stop:]
    return whole[stop:]


def recite_pages(memory: Memory, progress: Progress = SILENT) -> list[list[Any]]:
    """The tokens of every page of a book, as the network recites them."""
    pages, found = page_count(memory), list[list[Any]]()
    with progress.stage("reciting pages", total=pages) as stage:
        for start in range(0, pages, PAGES_AT_ONCE):
            numbers = range(start, min(pages, start + PAGES_AT_ONCE))
            found += _continue(memory, [[number] for number in numbers], SILENT)
            stage.advance(len(numbers))
    return found


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
