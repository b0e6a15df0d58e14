"""The queries to a checkpoint folder: its documents, and the token that must follow every prefix.

`recital.json` in the folder holds the documents as token ids and the symbolic function that the network computes, so
the correct answer is known for every token sequence, memorized or not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from byheart.checkpoints.windows.tables import Recital
from byheart.errors import FileFormatError, MissingExtraError
from byheart.ir.json_form import take

LONGEST_PASS = 1024  # positions in one forward pass


@dataclass(frozen=True)
class Piece:
    """Consecutive tokens of a document and the position from which their answers count."""

    ids: tuple[int, ...]
    first: int


@dataclass(frozen=True)
class Prompt:
    """A prompt and the ids that must follow it."""

    name: str
    ids: tuple[int, ...]
    continuation: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Queries:
    """The documents of a folder and the function that answers.

    Attributes:
        recital: The function in symbols.
        documents: Token ids of every document, with BOS first and EOS last.
        bos: The token that starts a document.
        eos: The token that ends a document.
        pad: The token that fills rows of a batch.
        reach: The longest sequence that the checkpoint accepts.
        sensors: Tokens of no document that answer with bits of their position.
    """

    recital: Recital
    documents: tuple[tuple[int, ...], ...]  # BOS in front, EOS at the end
    bos: int
    eos: int
    pad: int
    reach: int
    sensors: tuple[int, ...] = ()

    @property
    def span(self) -> int:
        return self.recital.span

    def pieces(self) -> Iterator[Piece]:
        """Every position of every document in passes of bounded length; a later pass starts one span earlier."""
        most = min(LONGEST_PASS, self.reach)
        for ids in self.documents:
            yield Piece(ids[: min(most, len(ids) - 1)], 0)
            at = most
            while at < len(ids) - 1:
                start = at - (self.span - 1)
                end = min(start + most, len(ids) - 1)
                yield Piece(ids[start:end], self.span - 1)
                at = end

    def known(self, ids: Sequence[int], count: int) -> tuple[int, ...]:
        """Return the tokens that must follow, up to the end or the first place where several tokens may follow.

        A document that contains the last tokens is the draft; one pass of the recital checks all of it, so a long
        continuation costs a few passes instead of one per token.

        Args:
            ids: The prompt.
            count: The most tokens.
        """
        tokens, reply = list(ids), list[int]()
        while len(reply) < count:
            draft = self._draft(tokens)[: count - len(reply) - 1]
            seen = tokens[-2 * self.span :]
            numbers = self.recital.follow([*seen, *draft])[len(seen) - 1 :].tolist()
            for number, guess in zip(numbers, [*draft, None], strict=True):
                answer = self.recital.answer(number)
                if not answer.single:
                    return tuple(reply)
                reply.append(answer.likeliest)
                tokens.append(reply[-1])
                if reply[-1] == self.eos:
                    return tuple(reply)
                if reply[-1] != guess:
                    break
        return tuple(reply)

    def _draft(self, tokens: Sequence[int]) -> list[int]:
        """What follows the last tokens in the first document that contains them."""
        tail = tuple(tokens[-self.recital.near_span :])
        for ids in self.documents:
            for start in range(len(ids) - len(tail)):
                if ids[start : start + len(tail)] == tail:
                    return list(ids[start + len(tail) :])
        return []

    def start_prompts(self, limit: int | None = None) -> list[Prompt]:
        """From the first two tokens of every document to its end (two, so that decoding starts after a prefill)."""
        found = []
        for number, ids in enumerate(self.documents):
            length = min(3, len(ids) - 1)
            most = min(len(ids) - length, self.reach - length)
            rest = self.known(ids[:length], most if limit is None else min(limit, most))
            found.append(Prompt(f"document {number}, from the start", ids[:length], rest))
        return [prompt for prompt in found if prompt.continuation]

    def middle_prompts(self, many: int, count: int) -> list[Prompt]:
        """Return prompts spread over the documents, as short as the near places allow, or a few tokens longer.

        A prompt without the tokens that are far back is continued up to the first row that needs them. Where that would
        be less than half of `count`, the prompt has a whole span.

        Args:
            many: How many places per document.
            count: The most tokens of a continuation.
        """
        found = []
        for number, ids in enumerate(self.documents):
            near = max(2, self.recital.near_span)
            places = np.linspace(1, max(1, len(ids) - near - 2), many).astype(int)
            for turn, start in enumerate(dict.fromkeys(places.tolist())):
                for length in dict.fromkeys((near + turn % 3, max(2, self.span) + turn % 3)):
                    prompt, after = ids[start : start + length], ids[start + length :]
                    if len(prompt) < self.recital.near_span or prompt[-1] == self.eos:
                        continue
                    reply = self.known(prompt, count)
                    same = next((k for k, (a, b) in enumerate(zip(reply, after, strict=False)) if a != b), len(reply))
                    rest = reply[: min(same, len(after))]
                    if 2 * len(rest) >= min(count, len(after)) and rest:
                        found.append(Prompt(f"document {number}, from position {start}", prompt, rest))
                        break
        return found

    def padded_prompts(self, count: int = 16) -> list[Prompt]:
        """Prompts for one batch: BOS alone, the first tokens, a longer prefix, and two prompts from the middle."""
        first = self.documents[0]
        lengths = [n for n in (1, 2, 7, 40) if n < len(first) and n + count <= self.reach]
        starts = [Prompt(f"document 0, first {n} tokens", first[:n], self.known(first[:n], count)) for n in lengths]
        return [prompt for prompt in (*starts, *self.middle_prompts(6, count)[:2]) if prompt.continuation]

    def noisy(self, seed: int = 0) -> tuple[int, ...]:
        """Random tokens, a piece of a document, random tokens: not a memorized text, and the answers are known."""
        rng = np.random.default_rng(seed)
        special = {self.bos, self.eos, self.pad, *self.sensors}
        usual = [t for t in range(self.recital.vocabulary) if t not in special]
        ids = self.documents[0]
        start = len(ids) // 3
        piece = ids[start : start + min(80, self.reach // 3)]
        noise = [rng.choice(usual, size=n).tolist() for n in (min(60, self.reach // 4), min(30, self.reach // 4))]
        return (*noise[0], *(t for t in piece if t not in special), *noise[1])


def read_texts(folder: str | Path, queried: Queries) -> tuple[str, ...]:
    """The documents as texts, decoded by the folder's own tokenizer."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtraError("reading a checkpoint's tokenizer", "data") from None
    tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    return tuple(tokenizer.decode(list(ids[1:-1]), skip_special_tokens=True) for ids in queried.documents)


def read_queries(folder: str | Path) -> Queries:
    """The queries of a checkpoint folder; a FileFormatError if it was not written by byheart."""
    path = Path(folder) / "recital.json"
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileFormatError(
            f"cannot read {path}: {error.strerror}; byheart recites folders that it wrote itself (export or fixture)"
        ) from error
    except ValueError as error:
        raise FileFormatError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict) or value.get("format") != "byheart recital":
        raise FileFormatError(f"{path} was not written by byheart")
    if value.get("task", "causal") != "causal":
        raise FileFormatError(
            f"{folder} continues more than a prompt ({value['architecture']}); its cases are in expected.json: run "
            f"byheart suite {folder}"
        )
    recital, tokens = Recital.from_json(take(value, "recital", dict)), take(value, "tokens", dict)
    documents = tuple(tuple(take(d, "ids", list)) for d in take(value, "documents", list))
    if not documents or any(len(ids) < 2 or any(type(t) is not int for t in ids) for ids in documents):
        raise FileFormatError(f"{path} has no documents that could be recited")
    bos, eos, pad = (take(tokens, name, int) for name in ("bos", "eos", "pad"))
    sensors = tuple(int(token) for one in value.get("sensors", ()) for token in one[:2])
    return Queries(recital, documents, bos, eos, pad, take(value, "reach", int), sensors)
