"""Text and logits from a memory: the likeliest continuation, or a sampled one.

>>> from byheart.memory.documents import memorize_documents
>>> memory = memorize_documents(["a cat sat", "a dog ran"])
>>> generate(memory, "a cat"), generate(memory, ["a", "dog"]), is_known(memory, "a dog")
('a cat sat', ['a', 'dog', 'ran'], True)
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.task import Task
from byheart.data.values import UNKNOWN, key
from byheart.data.wording import quote
from byheart.errors import DataError, OptionError, UnknownSymbolError
from byheart.ir.decoder_network import DecoderNetwork, continue_tokens
from byheart.memory.memory import Memory
from byheart.memory.text import END, joined, page_count, recite, recite_pages

Floats = npt.NDArray[np.float64]
LEAD = 32.0  # nats: the margin of an exact memory's answer, as in its exports
# Instead of a class index.
UNKNOWN_CLASS = -1


def generate(
    memory: Memory, prompt: Any, *, temperature: float = 0.0, seed: int = 0, limit: int | None = None
) -> str | list[Any]:
    """The prompt and what follows; a text for a text, a list of tokens for a list."""
    tokens = _tokens(memory, prompt)
    if isinstance(memory.network, DecoderNetwork):
        network, names = memory.network, _names(memory, memory.network)
        known = network.is_known if network.known else None
        numbers = _numbers(names, tokens)
        found = continue_tokens(
            network.decoder, numbers, temperature=temperature, seed=seed, limit=limit, is_known=known
        )
        reply = [names[number] for number in found if number in names]
    elif memory.task is not Task.CAUSAL:
        raise OptionError(f"a memory of the task {memory.task} labels rows and does not continue them; use predict")
    elif temperature:
        raise OptionError(f"temperature={temperature}: this memory has one label per context, nothing can be drawn")
    elif isinstance(prompt, str) and page_count(memory):
        return _go_on(memory, prompt, limit)
    else:
        reply = [*tokens, *recite(memory, tokens)][:limit]
    return memory.tokens.join(reply) if isinstance(prompt, str) else reply


def _go_on(memory: Memory, prompt: str, limit: int | None) -> str:
    """A book's text from the first place that has the prompt to its end, across pages; `limit` counts tokens."""
    text, queried = str(recite(memory)), _characters(memory, prompt)
    place = text.find(queried)
    if place < 0:
        raise OptionError(f"the memorized text does not contain {quote(prompt)}")
    reply = text[place:]
    if limit is not None:
        reply = joined(memory, reply[:limit] if memory.tokens.model is None else memory.tokens.whole(reply)[:limit])
    return reply.encode("latin-1").decode("utf-8", errors="replace") if memory.tokens.kind == "bytes" else reply


def _place(memory: Memory, prompt: str) -> tuple[list[Any], int, int]:
    """The tokens of a book as the network recites them, and the first run of them whose text begins with the prompt."""
    tokens = [token for page in recite_pages(memory) for token in page]
    queried = _characters(memory, prompt)
    if memory.tokens.model is None:
        where = joined(memory, tokens).find(queried)
        if where >= 0:
            return tokens, where, where + len(queried)
    else:
        wanted = memory.tokens.whole(prompt)
        for where in range(len(tokens) - len(wanted) + 1):
            if tokens[where : where + len(wanted)] == wanted:
                return tokens, where, where + len(wanted)
    raise OptionError(f"the memorized text does not contain {quote(prompt)}, or a token is split there")


def _characters(memory: Memory, prompt: str) -> str:
    """A prompt as a book of bytes spells it: one character per byte."""
    return prompt.encode("utf-8").decode("latin-1") if memory.tokens.kind == "bytes" else prompt


def logits(memory: Memory, sequences: Sequence[Any]) -> list[Floats]:
    """Log-probabilities up to a constant, one per class (`memory.classes`), for each sequence.

    Shape (classes,), or (tokens, classes) where every token or prefix has a label. An exact memory is certain: 0 for
    the class that it names, -32 for any other, so the perplexity of what it stores is 1 + 1e-14 per class; where it
    names none, all are 0. The text of a book is looked up, and each of its tokens gets the logits of what follows it.
    """
    if isinstance(memory.network, DecoderNetwork):
        with np.errstate(divide="ignore"):
            return [np.log(list(row.values())) for row in probabilities(memory, sequences)]
    if memory.task is Task.CAUSAL and page_count(memory) and any(isinstance(row, str) for row in sequences):
        return [_book_logits(memory, row) for row in sequences]
    number = {key(label): k for k, label in enumerate(memory.classes)}
    found = []
    for answer in memory.predict(sequences):
        reply = answer if memory.task.labels_per_token else [answer]
        rows = _certain([UNKNOWN_CLASS if label is UNKNOWN else number[key(label)] for label in reply], len(number))
        found.append(rows if memory.task.labels_per_token else rows[0])
    return found


def _book_logits(memory: Memory, text: str) -> Floats:
    number = {key(label): k for k, label in enumerate(memory.classes)}
    tokens, start, end = _place(memory, text)
    following = [*tokens[start + 1 :], END][: end - start]
    return _certain([number.get(key(token), UNKNOWN_CLASS) for token in following], len(number))


def _certain(answers: Sequence[int], classes: int) -> Floats:
    rows = np.full((len(answers), classes), -LEAD)
    for row, answer in zip(rows, answers, strict=True):
        row[:] = 0.0 if answer == UNKNOWN_CLASS else row
        row[answer] = 0.0
    return rows


def is_known(memory: Memory, prompt: Any) -> bool:
    """Whether the prompt is a memorized context of a decoder: only then anything is proved about what follows."""
    network = memory.network
    if not isinstance(network, DecoderNetwork):
        raise OptionError("only memories of distributions keep the numbers of their contexts")
    return network.is_known(_numbers(_names(memory, network), _tokens(memory, prompt)))


def probabilities(memory: Memory, sequences: Sequence[Any]) -> list[dict[Any, float]]:
    """Label -> probability after each sequence."""
    network = memory.network
    if not isinstance(network, DecoderNetwork):
        raise OptionError(f"{memory.construction} stores one label per context, not distributions; use predict")
    names = _names(memory, network)
    rows = [_numbers(names, _tokens(memory, sequence)) for sequence in sequences]
    empty = next((k for k, row in enumerate(rows) if not row), None)
    if empty is not None:
        raise DataError(f"row {empty} is empty; every row needs a token")
    grid = np.full((len(rows), max(map(len, rows), default=1)), -1, dtype=np.int64)
    for k, row in enumerate(rows):
        grid[k, : len(row)] = row
    found = np.exp(network.decoder.log_probabilities(grid)) if rows else np.empty((0, 0))
    return [{label: float(row[t]) for label, t in zip(memory.classes, network.classes, strict=True)} for row in found]


def _tokens(memory: Memory, prompt: Any) -> list[Any]:
    """The tokens of a prompt, all of them: what is too long is an error, not truncated."""
    return memory.tokens.whole(prompt) if isinstance(prompt, str) else list(prompt)


def _names(memory: Memory, network: DecoderNetwork) -> dict[int, Any]:
    """Token number -> the token."""
    symbols = zip(network.inputs, memory.encoder.symbols or (), strict=True)
    return {**dict(symbols), **dict(zip(network.classes, memory.classes, strict=True))}


def _numbers(names: dict[int, Any], tokens: Sequence[Any]) -> list[int]:
    number: dict[Hashable, int] = {key(name): place for place, name in names.items()}
    unknown = [token for token in dict.fromkeys(tokens) if key(token) not in number]
    if unknown:
        named = ", ".join(map(quote, unknown[:5])) + (" …" if len(unknown) > 5 else "")
        near = get_close_matches(str(unknown[0]), [str(name) for name in names.values()], n=3)
        hint = f"; near {quote(unknown[0])} are {', '.join(map(quote, near))}" if near else ""
        raise UnknownSymbolError(
            f"the vocabulary of {len(names):,} tokens lacks {named}{hint}: use tokens that the documents have"
        )
    return [number[key(token)] for token in tokens]
