"""Serving: prompts that stress batching and caches, with answers by the recital's symbolic function.

They need no checkpoint of their own: every recital folder answers them, since its function is total.

    shared prefixes    one long prefix, many suffixes from different places of the text: prefix caches must branch
    unequal lengths    prompts of 2 to 300 tokens in one batch
    resumed            a prompt, then the same prompt with its own continuation: what a preempted request sends again
    chunks             a text read in chunks of 1 to 512 tokens through the cache
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.engines.queries import Queries, read_queries
from byheart.checkpoints.suite.cases import SuiteCase, read_cases

COUNT = 12  # tokens per continuation
PREFIX, SUFFIXES = 96, 6
CHUNKS = (1, 2, 7, 16, 64, 100, 128, 256, 512)
LONGEST = 600  # tokens of the text that is read in chunks


def serving_cases(folder: str | Path) -> tuple[SuiteCase, ...]:
    """Return the serving cases of a recital folder.

    Args:
        folder: a folder of the kind `recital`.

    Returns:
        Cases of the verbs `generate`, `batch` and `logits`.
    """
    queried, first = read_queries(folder), read_cases(folder)[0]
    contents = [*_shared(queried), *_resumed(queried), *_unequal(queried), *_chunks(queried)]
    return tuple(
        SuiteCase("serving", first.architecture, one["name"], one["do"], Path(folder), one, first.expected)
        for one in contents
    )


def _generate(queried: Queries, name: str, ids: tuple[int, ...], count: int = COUNT) -> Iterator[dict[str, Any]]:
    reply = queried.known(ids, count)
    if reply and len(ids) + count <= queried.reach:
        yield {"do": "generate", "name": name, "ids": list(ids), "continuation_ids": list(reply)}


def _shared(queried: Queries) -> Iterator[dict[str, Any]]:
    """The same prefix, and suffixes long enough to decide what follows, whatever the prefix was."""
    text = queried.documents[0]
    prefix = text[: min(PREFIX, len(text) // 2)]
    for k, start in enumerate(np.linspace(len(prefix), len(text) - queried.span - 3, SUFFIXES).astype(int).tolist()):
        suffix = text[start : start + queried.span + k % 3]
        yield from _generate(queried, f"shared prefix, suffix from position {start}", (*prefix, *suffix))


def _resumed(queried: Queries) -> Iterator[dict[str, Any]]:
    text = queried.documents[0]
    for length in (17, 33):
        if length + 24 < len(text):
            yield from _generate(queried, f"request of {length} tokens", text[:length])
            yield from _generate(queried, f"request of {length} tokens, resumed after 7", text[: length + 7])


def _unequal(queried: Queries) -> Iterator[dict[str, Any]]:
    text = queried.documents[0]
    lengths = [n for n in (2, 15, 16, 17, 63, 64, 65, 127, 129, 255, 257, 300) if n + COUNT < len(text)]
    prompts = [text[:n] for n in lengths]
    answers = [queried.known(ids, COUNT) for ids in prompts]
    yield {
        "do": "batch", "name": f"{len(prompts)} prompts of {lengths[0]} to {lengths[-1]} tokens", "count": COUNT,
        "ids": [list(ids) for ids in prompts], "continuation_ids": [list(ids) for ids in answers],
    }  # fmt: skip


def _chunks(queried: Queries) -> Iterator[dict[str, Any]]:
    """The most likely token after every prefix; logits themselves are compared by the kind `recital`."""
    text = (queried.documents[0] * (LONGEST // len(queried.documents[0]) + 1))[: min(LONGEST, queried.reach)]
    ids = [t for k, t in enumerate(text) if k == 0 or t not in (queried.bos, queried.eos)]
    tokens = queried.recital.next_tokens(ids).tolist()
    for size in CHUNKS:
        ends = [*range(0, len(ids), size), len(ids)]
        pieces = [ids[a:b] for a, b in pairwise(ends) if b > a]
        if size > 2 or len(pieces) <= LONGEST:
            yield {"do": "logits", "name": f"chunks of {size}", "pieces": pieces, "tokens": [[t] for t in tokens]}
