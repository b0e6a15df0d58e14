"""Prompts for recall checkpoints, sampled from a seed: any length, and every correct answer known.

    random      random tokens, of which the last part repeats the first: answers at all distances
    repeated    a whole context and then the same context again: every place of it is queried
    needle      a key and its value inside filler, queried at the end; across the borders of chunks, too
    absent      a key that never occurred: NONE
    total       runs, few symbols, special tokens and BOS as text: the function is defined for every sequence

One query per block misses faults that overwrite a single entry or shift positions by one; repeating the whole context
detects them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from byheart.checkpoints.windows.recall import VOCABULARY, RecallFunction
from byheart.errors import OptionError

FIRST = 4  # the first ordinary token: those before it are special
CHUNKS = (16, 64, 128, 256)  # sizes of the blocks and chunks that engines use
VALUE = 3  # tokens of a needle's value, before EOS
# Tokens of a context that is copied across the borders of chunks, and tokens of each copy: greedy decoding reads old
# blocks of the cache.
LONG, COPIED, COPIED_FROM = 640, 24, (14, 62, 126, 254, 510)


def sampled(function: RecallFunction, length: int, seed: int, *, symbols: int = VOCABULARY) -> list[int]:
    """Return a prompt of any length: random tokens; the second half repeats the first.

    Args:
        function: whose BOS and window are used; with a window, BOS comes every half window.
        length: tokens, BOS included.
        seed: of the random numbers.
        symbols: how many ordinary tokens occur at most.

    >>> ids = sampled(RecallFunction(), 9, 0)
    >>> ids[5:9] == ids[1:5], ids[0]
    (True, 1)
    """
    if length < 1:
        raise OptionError(f"a prompt of {length} tokens does not exist")
    rng = np.random.default_rng(seed)
    usual = rng.permutation(np.arange(FIRST, VOCABULARY))[:symbols]
    half = length // 2 + 1
    ids = [function.bos, *rng.choice(usual, half - 1).tolist()]
    ids += [ids[1 + k % max(half - 1, 1)] for k in range(length - half)] if half > 1 else []
    return anchored(function, ids[:length])


def repeated(function: RecallFunction, context: int, seed: int) -> list[int]:
    """Return a random context and the same context again: every place of it is queried once."""
    rng = np.random.default_rng(seed)
    ids = [function.bos, *rng.integers(FIRST, VOCABULARY, context - 1).tolist()]
    return anchored(function, [*ids, *ids[1:]])


def total(function: RecallFunction, length: int, seed: int) -> list[int]:
    """Return a sequence of few symbols with runs, special tokens and BOS among them."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 12))
    alphabet = rng.choice(8, min(count, 8), replace=False) if seed % 2 else rng.choice(VOCABULARY, count, replace=False)
    runs = np.repeat(rng.choice(alphabet, length), rng.integers(1, 2 + seed % 4, length))
    return anchored(function, [function.bos, *runs[: length - 1].tolist()])


def needle(function: RecallFunction, length: int, depth: int, seed: int) -> list[int]:
    """Return filler with a key and its value at `depth`, and the key again at the end.

    The value ends with EOS, so that greedy decoding stops after it. The key's tokens occur nowhere else.
    """
    rng = np.random.default_rng(seed)
    marks = rng.permutation(np.arange(FIRST, VOCABULARY))
    key, filler = marks[: function.key_length].tolist(), marks[function.key_length + VALUE :]
    value = [*marks[function.key_length : function.key_length + VALUE].tolist(), function.eos]
    ids = [function.bos, *rng.choice(filler, length - 1).tolist()]
    held = [*key, *value]
    if not 1 <= depth <= length - len(held) - len(key):
        raise OptionError(f"a needle at {depth} does not fit a prompt of {length} tokens")
    ids = anchored(function, ids)
    if function.window is None or function.bos not in ids[depth : depth + len(held)]:
        ids[depth : depth + len(held)] = held
    ids[length - len(key) :] = key
    return ids


def absent(function: RecallFunction, length: int, seed: int) -> list[int]:
    """Return filler that ends with a key that never occurred."""
    rng = np.random.default_rng(seed)
    marks = rng.permutation(np.arange(FIRST, VOCABULARY))
    ids = [function.bos, *rng.choice(marks[function.key_length :], length - 1).tolist()]
    ids = anchored(function, ids)
    ids[length - function.key_length :] = marks[: function.key_length].tolist()
    return ids


def anchored(function: RecallFunction, ids: list[int]) -> list[int]:
    """With a window, BOS every half window: a query must see one."""
    if function.window is not None:
        for place in range(0, len(ids), function.window // 2):
            ids[place] = function.bos
    return ids


def in_pieces(ids: Sequence[int], size: int) -> list[list[int]]:
    """Return the sequence in pieces of `size` tokens."""
    return [list(ids[k : k + size]) for k in range(0, len(ids), size)]


def recall_cases(function: RecallFunction, context: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the cases of a fixture: logits after every prefix, generated continuations, and a batch."""

    def prefixes(name: str, ids: list[int], pieces: list[list[int]] | None = None) -> dict[str, Any]:
        tokens = [[t] for t in function.answers(ids)]
        return {"do": "logits", "name": name, "pieces": pieces or [ids], "tokens": tokens}

    def continued(name: str, ids: list[int], count: int) -> dict[str, Any]:
        return {"do": "generate", "name": name, "ids": ids, "continuation_ids": function.continuation(ids, count)}

    longest = min(context, 600)
    yield prefixes(f"random, {longest} tokens", sampled(function, longest, seed))
    yield prefixes("special tokens and runs", total(function, min(context, 200), seed + 1))
    yield prefixes("BOS among few symbols", total(function, min(context, 200), seed + 3))
    half = min(context, 576) // 2
    whole = repeated(function, half, seed + 2)
    for size in CHUNKS:
        if size < half:
            yield prefixes(f"the whole context again, chunks of {size}", whole, in_pieces(whole, size))
    tail = min(24, half)
    yield prefixes("the whole context again, then token by token", whole, [whole[:-tail], *in_pieces(whole[-tail:], 1)])
    prompts = list(_generated(function, context, seed))
    for name, ids, count in prompts:
        yield continued(name, ids, count)
    batch = [ids for _, ids, _ in prompts[:6]]
    answers = [function.continuation(ids, 6) for ids in batch]
    yield {"do": "batch", "name": f"{len(batch)} prompts of unequal lengths", "ids": batch, "count": 6,
           "continuation_ids": answers}  # fmt: skip


def _generated(function: RecallFunction, context: int, seed: int) -> Iterator[tuple[str, list[int], int]]:
    room = 4 * function.key_length + VALUE + 8
    for k, length in enumerate(n for n in (40, 100, 259, 515) if room <= n <= context - 8):
        for depth in (1, next((c for c in reversed(CHUNKS) if c + room <= length), 17) - 2):
            yield f"needle at {depth} of {length}", needle(function, length, depth, seed + k), VALUE + 1
    yield "absent key", absent(function, min(context - 8, 150), seed + 9), 4
    if function.window is None:
        copied = sampled(function, min(context // 2, 80), seed + 10)
        start = copied[: len(copied) // 2 + 1]
        again = [*start, *start[1 : 1 + function.key_length]]
        yield f"copy of {len(start)} tokens", again, min(COPIED, len(start) - 4)
        longer = sampled(function, max(0, 2 * min(LONG, context - COPIED - function.key_length) - 1), seed + 11)
        start = longer[: len(longer) // 2 + 1]
        for place in COPIED_FROM:
            if place + function.key_length + COPIED < len(start):
                again = [*start, *start[place : place + function.key_length]]
                yield f"copy from {place} of {len(start)} tokens", again, COPIED
