"""Text from a memory: the likeliest continuation, or one drawn from its distributions.

>>> from byheart.compile.documents import memorize_documents
>>> memory = memorize_documents(["a cat sat", "a dog ran"])
>>> generate(memory, "a cat"), generate(memory, ["a", "dog"]), knows(memory, "a dog")
('a cat sat', ['a', 'dog', 'ran'], True)
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from byheart.compile.memory import Memory
from byheart.compile.text import recite
from byheart.data.task import Task
from byheart.data.values import key
from byheart.data.wording import quote
from byheart.errors import DataError, OptionError, UnknownSymbolError
from byheart.ir.decoder_network import DecoderNetwork, continue_tokens


def generate(
    memory: Memory, prompt: Any, *, temperature: float = 0.0, seed: int = 0, limit: int | None = None
) -> str | list[Any]:
    """The prompt and what follows; a text for a text, a list of tokens for a list."""
    tokens = _tokens(memory, prompt)
    if isinstance(memory.network, DecoderNetwork):
        network, names = memory.network, _names(memory, memory.network)
        known = network.knows if network.known else None
        numbers = _numbers(names, tokens)
        found = continue_tokens(network.decoder, numbers, temperature=temperature, seed=seed, limit=limit, knows=known)
        said = [names[number] for number in found if number in names]
    elif memory.task is not Task.CAUSAL:
        raise OptionError(f"a memory of the task {memory.task} answers rows and continues none; ask it with predict")
    elif temperature:
        raise OptionError(f"temperature={temperature}: this memory has one label per context, nothing can be drawn")
    else:
        said = [*tokens, *recite(memory, tokens)][:limit]
    return memory.tokens.join(said) if isinstance(prompt, str) else said


def knows(memory: Memory, prompt: Any) -> bool:
    """Whether the prompt is a memorized context of a decoder: only then anything is proved about what follows."""
    network = memory.network
    if not isinstance(network, DecoderNetwork):
        raise OptionError("only memories of distributions keep the numbers of their contexts")
    return network.knows(_numbers(_names(memory, network), _tokens(memory, prompt)))


def probabilities(memory: Memory, sequences: Sequence[Any]) -> list[dict[Any, float]]:
    """Label -> probability after each sequence."""
    network = memory.network
    if not isinstance(network, DecoderNetwork):
        raise OptionError(f"{memory.construction} stores one label per context, not distributions; ask it with predict")
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
    """The tokens of a prompt, all of them: what is too long is an error, not cut."""
    return memory.tokens.whole(prompt) if isinstance(prompt, str) else list(prompt)


def _names(memory: Memory, network: DecoderNetwork) -> dict[int, Any]:
    """Token number -> what it stands for."""
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
