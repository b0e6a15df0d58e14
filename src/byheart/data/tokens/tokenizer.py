"""How a text becomes tokens, as a value that a memory carries: queries are tokenized as the data was.

Tables, texts, documents and the laboratory all tokenize with this one class, so a name means the same everywhere.

>>> Tokenizer("words").cut("to be, or not"), Tokenizer("wordpunct").cut("to be, or"), Tokenizer("uncased").cut("So...")
(['to', 'be,', 'or', 'not'], ['to', 'be', ',', 'or'], ['so', '.', '.', '.'])
>>> Tokenizer("characters", max_length=2).cut("abc"), Tokenizer("words", type="int").cut("7 007")
(['a', 'b'], [7, 7])
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np

from byheart.data.dataset.sequences import Symbol
from byheart.data.tokens import pieces
from byheart.data.values import TYPES, convert, damaged, from_json, is_missing, listed, load_int, plain, to_json
from byheart.data.wording import quote
from byheart.errors import DataError, OptionError

AUTO, LISTS = "auto", "json"
SYNONYMS = {"whitespace": "words"}
# Tokens of a row.
LONGEST = 1 << 24
_SHORT = 64  # characters of a code
_MUCH, _FEW_ROWS = 4, 300  # times as many rows of a token table; rows that are not worth a word
_CLEARLY, _FEW_BYTES = 1.25, 2000  # times as many bytes of a planned memory; bytes that are not worth a word
_LONG_NUMBER = 4000  # digits: Python refuses to convert longer decimal numbers
_PATTERNS = {
    "words": re.compile(r"\S+"),  # the runs between spaces
    "wordpunct": re.compile(r"\w+|[^\w\s]+"),  # runs of letters and digits, and runs of other marks
    "uncased": re.compile(r"\w+|[^\w\s]"),  # the same in lower case, with every mark on its own
}
_BEFORE_CLOSING = re.compile(r"\s+([^\w\s\"'(\[]+)")


def _matches(kind: str, text: str, limit: int | None = None) -> list[Any]:
    """The first pieces of a text by a pattern."""
    found = _PATTERNS[kind].finditer(text.lower() if kind == "uncased" else text)
    return [match[0] for match in islice(found, limit)]


def _integers(text: str) -> list[Any]:
    words = text.replace(",", " ").split()
    for word in words:
        if not re.fullmatch(r"[+-]?[0-9]+", word) or len(word) > _LONG_NUMBER:
            raise DataError(f"{quote(word)} is not a whole number; choose other --tokens, for example words")
    return [int(word) for word in words]


_CUTTERS: dict[str, Callable[[str], list[Any]]] = {
    "characters": list,
    "bytes": lambda text: list(text.encode("utf-8", "surrogatepass")),
    **{kind: partial(_matches, kind) for kind in _PATTERNS},
    "integers": _integers,
}
SIMPLE = tuple(_CUTTERS)


@dataclass(frozen=True)
class Tokenizer:
    """How a text becomes tokens.

    Attributes:
        kind: A simple name, `json` for rows that come as lists, or the kind of the trained `model`.
        model: The JSON text of a trained tokenizer.
        max_length: How many first tokens of a row are kept, as the papers do.
        pad: Fills shorter rows up to `max_length` at their end.
        type: Converts every token that is no vector; `auto` leaves it unchanged.

    >>> Tokenizer("words").whole("to be or not to be")
    ['to', 'be', 'or', 'not', 'to', 'be']
    """

    kind: str = AUTO
    model: str | None = None
    max_length: int | None = None
    pad: Symbol = None
    type: str = AUTO

    def __post_init__(self) -> None:
        if self.kind not in (AUTO, LISTS, *SIMPLE, *pieces.KINDS):
            raise OptionError(f"unknown tokens {self.kind!r}; known: {', '.join(names())}")
        if (self.model is not None) != (self.kind in pieces.KINDS):
            raise OptionError(f"tokens {self.kind!r} come {'without' if self.model else 'with'} a trained model")
        if self.max_length is not None and not 1 <= self.max_length <= LONGEST:
            raise OptionError(f"max_length={self.max_length} must lie in 1..{LONGEST}")
        if self.pad is not None and self.max_length is None:
            raise OptionError(f"pad={self.pad!r} needs max_length, the number of tokens that rows are padded to")
        if self.type not in TYPES:
            raise OptionError(f"token_type={self.type!r} is not one of {', '.join(TYPES)}")

    def __str__(self) -> str:
        return self.kind if self.model is None else f"{self.kind}:{pieces.vocabulary_size(self.model)}"

    def cut(self, text: str) -> list[Any]:
        """Tokenize a text.

        Args:
            text: The text.

        Returns:
            Its tokens, truncated or filled up to `max_length`.
        """
        # the rest needs no tokenizing
        if self.max_length is not None and self.model is None and self.kind in _PATTERNS:
            return self.fit_length(self.typed(_matches(self.kind, text, self.max_length)))
        return self.fit_length(self.whole(text))

    def fit_length(self, row: Sequence[Any]) -> list[Any]:
        """Truncate a row of tokens, or fill it up, to `max_length`.

        Args:
            row: Its tokens.
        """
        if self.max_length is None:
            return list(row)
        return [*row[: self.max_length], *[self.pad] * (self.max_length - len(row) if self.pad is not None else 0)]

    def typed(self, row: Sequence[Any]) -> list[Any]:
        """Convert tokens to the requested type, a missing one to None; vectors are unchanged.

        Args:
            row: Tokens.
        """
        if self.type == AUTO:
            return list(row)
        tokens = map(plain, listed(row) if isinstance(row, np.ndarray) else row)
        return [
            token if isinstance(token, list | tuple) else None if is_missing(token) else convert(token, self.type)
            for token in tokens
        ]

    def cut_texts(self, sequences: Sequence[Any]) -> Sequence[Any]:
        """Tokenize every text among sequences; a list of tokens only gets its type and length.

        Args:
            sequences: Texts and lists of tokens.
        """
        if self == PLAIN or isinstance(sequences, str | bytes):
            return sequences
        rows = listed(sequences) if isinstance(sequences, np.ndarray) and sequences.dtype.kind == "U" else sequences
        untouched = self.max_length is None and self.type == AUTO
        if untouched and not any(isinstance(row, str) for row in rows):
            return sequences
        return [self.cut(row) if isinstance(row, str) else self._fitted(row) for row in rows]

    def _fitted(self, row: Any) -> Any:
        """A list of tokens with its type and length; what is not one is refused where rows are read."""
        unordered = isinstance(row, set | frozenset | dict) or getattr(row, "ndim", 1) == 0
        return row if unordered or not hasattr(row, "__iter__") else self.fit_length(self.typed(row))

    def join(self, tokens: Sequence[Any]) -> str:
        """Return the text of tokens, as far as tokenizing keeps it: exact for characters, bytes and bpe.

        Args:
            tokens: The tokens of one text.

        >>> Tokenizer("words").join(["to", "be"]), Tokenizer("wordpunct").join(["to", "be", "."])
        ('to be', 'to be.')
        """
        if self.model is not None:
            return pieces.join(self.model, [str(token) for token in tokens])
        if self.kind == "bytes":
            return bytes(tokens).decode("utf-8", errors="replace")
        text = ("" if self.kind in (AUTO, "characters") else " ").join(map(str, tokens))
        return _BEFORE_CLOSING.sub(r"\1", text) if self.kind in ("wordpunct", "uncased") else text

    def whole(self, text: str) -> list[Any]:
        """Tokenize a text without truncating it.

        Args:
            text: The text.
        """
        if self.model is not None:
            return self.typed(pieces.cut(self.model, text))
        return self.typed(_CUTTERS.get(self.kind, list)(text))

    def as_dict(self) -> str | dict[str, Any]:
        """Ready for JSON: the name alone where that is complete."""
        if self == Tokenizer(self.kind, self.model) and self.model is None:
            return self.kind
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"pad": to_json(self.pad)}

    @staticmethod
    def from_dict(stored: object) -> Tokenizer:
        """Read the tokenizer of `as_dict`.

        Args:
            stored: The field of a file.

        Raises:
            FileFormatError: A field is damaged; the message names it.
        """
        known = (AUTO, LISTS, *SIMPLE, *pieces.KINDS)
        nothing = {"model": None, "max_length": None, "pad": None, "type": AUTO}
        value = {"kind": stored, **nothing} if isinstance(stored, str) else stored
        if not isinstance(value, Mapping) or set(value) != {"kind", *nothing}:
            raise damaged("tokens", stored, "a name or an object with kind, model, max_length, pad, type")
        kind, model, length, kept = (value[name] for name in ("kind", "model", "max_length", "type"))
        if not isinstance(kind, str) or kind not in known:
            raise damaged("tokens.kind", kind, f"one of {', '.join(known)}")
        if (model is not None) != (kind in pieces.KINDS) or not isinstance(model, str | None):
            raise damaged("tokens.model", model, "the text of a trained model, or null for a simple kind")
        if model is not None:
            pieces.check_stored(model)
        if not isinstance(kept, str) or kept not in TYPES:
            raise damaged("tokens.type", kept, f"one of {', '.join(TYPES)}")
        pad = from_json(value["pad"], "tokens.pad")
        if isinstance(pad, bytes | tuple) or (pad is not None and length is None):
            raise damaged("tokens.pad", pad, "a token that fills rows up to max_length")
        count = None if length is None else load_int(length, "tokens.max_length", 1, LONGEST)
        tokenizer = Tokenizer(kind, model, count, pad, kept)
        if tokenizer.as_dict() != stored:
            raise damaged("tokens", stored, "in its canonical form")
        return tokenizer


PLAIN = Tokenizer()


def names() -> tuple[str, ...]:
    """What `--tokens` takes."""
    return (AUTO, LISTS, *SIMPLE, *SYNONYMS, *(f"{kind}:SIZE" for kind in pieces.TRAINED), "FILE.json")


def choose(
    tokens: str | Tokenizer,
    cells: Iterable[Any],
    *,
    max_length: int | None = None,
    pad: Symbol = None,
    type: str = AUTO,
    planned: Planned | None = None,
) -> Tokenizer:
    """The tokenizer of a user's `--tokens`; `bpe:500` and its like are trained on the texts among the cells.

    `auto` takes characters or words; with `planned` sizes, whichever gives the smaller memory.

    >>> choose("auto", ["to be", "or"]).kind, choose("whitespace", []).kind
    ('words', 'words')
    """
    if isinstance(tokens, Tokenizer):
        return replace(
            tokens,
            max_length=tokens.max_length if max_length is None else max_length,
            pad=tokens.pad if pad is None else pad,
            type=tokens.type if type == AUTO else type,
        )
    kind, colon, size = tokens.partition(":")
    if tokens.lower().endswith(".json"):
        return Tokenizer("file", pieces.from_file(tokens), max_length, pad, type)
    if kind in pieces.TRAINED:
        texts = [cell for cell in cells if isinstance(cell, str) and not is_list(cell)]
        return Tokenizer(kind, pieces.train(kind, _size(kind, colon, size), texts), max_length, pad, type)
    kind = SYNONYMS.get(tokens, tokens)
    return Tokenizer(_guess(cells, planned) if kind == AUTO else kind, None, max_length, pad, type)


def is_list(cell: str) -> bool:
    """Do a text look like a JSON list, which always means the tokens themselves?"""
    return cell.lstrip().startswith("[") and cell.rstrip().endswith("]")


def _guess(cells: Iterable[Any], planned: Planned | None = None) -> str:
    """Characters, or words where a text has spaces and a memory of its words is not clearly the larger; lists where
    there is no text.

    Codes with spaces in them (postal codes, plates) have thousands of words of a few characters each. Short texts that
    differ in their spaces alone have the same words and stay different as characters.
    """
    texts = _texts(cells)
    if not texts:
        return LISTS
    if not any(_has_words(text) for text in texts):
        return "characters"
    if max(map(len, texts)) > _SHORT:
        return "words"
    if _merged_by_words(texts):
        return "characters"
    here, there = TokenTable.of("words", texts), TokenTable.of("characters", texts)
    if planned is not None:
        return "characters" if _CLEARLY * there.shipped(planned) < here.shipped(planned) else "words"
    return "characters" if _MUCH * there.rows < here.rows else "words"


def _texts(cells: Iterable[Any]) -> list[str]:
    return [cell for cell in cells if isinstance(cell, str) and not is_list(cell)]


def _has_words(text: str) -> bool:
    """Whether there is space between two pieces of a text."""
    return len(text.split(None, 1)) > 1


def _merged_by_words(texts: Iterable[str]) -> bool:
    """Whether different texts have the same words.

    >>> _merged_by_words(["a b", "a c"]), _merged_by_words(["a b", "ab", "ab "])
    (False, True)
    """
    distinct = set(texts)
    return len({tuple(text.split()) for text in distinct}) < len(distinct)


@dataclass(frozen=True)
class TokenTable:
    """The tokens that a tokenization gives texts: so many different ones, at most so many in a row.

    >>> TokenTable.of("words", ["to be", "or"])
    TokenTable(kind='words', symbols=3, length=2, bytes=15)
    """

    kind: str
    symbols: int
    length: int
    bytes: int  # of the tokens' names in a file

    @staticmethod
    def of(kind: str, texts: Sequence[str]) -> TokenTable:
        if kind == "words":
            split = any(map(_has_words, texts))
            tokens = set(chain.from_iterable(map(str.split, texts))) if split else set(map(str.strip, texts))
            length = max(map(len, map(str.split, texts))) if split else 1
        else:
            tokens, length = set(chain.from_iterable(texts)), max(map(len, texts))
        names = sum(len(token.encode("utf-8", "surrogatepass")) + 3 for token in tokens)  # quotes and a comma
        return TokenTable(kind, len(tokens), length, names)

    @property
    def rows(self) -> int:
        """Of an embedding table with positions."""
        return self.symbols * self.length

    def shipped(self, planned: Planned) -> int:
        """Bytes of a memory: eight for each parameter that is planned, and the tokens' names."""
        return 8 * planned(self) + self.bytes


Planned = Callable[[TokenTable], int]  # the parameters of a memory of rows that are tokenized in this way


def other_choice(tokens: Tokenizer, cells: Iterable[Any], planned: Planned | None = None) -> str:
    """The size with the other tokenization, for people; nothing where the difference is small.

    >>> other_choice(Tokenizer("words"), [f"{k} {k}{k}" for k in range(100)])
    'words make a token table of 382 rows, characters would make one of 77 (--tokens characters)'
    >>> other_choice(Tokenizer("words"), [f"{k} {k}{k}" for k in range(100)], lambda table: 5 * table.rows)
    'words are planned to take 1,910 parameters and 1,125 bytes of symbols, characters 385 and 44 (--tokens characters)'
    """
    other = {"words": "characters", "characters": "words"}.get(tokens.kind)
    texts = _texts(cells)
    if other is None or not texts or (other == "words" and not any(map(_has_words, texts))):
        return ""
    here, there = TokenTable.of(tokens.kind, texts), TokenTable.of(other, texts)
    if planned is None:
        larger, smaller = (there.rows, here.rows) if tokens.kind == "characters" else (here.rows, there.rows)
        if larger <= max(_FEW_ROWS, _MUCH * smaller):  # words need no word of explanation, unless they cost much
            return ""
        return (
            f"{tokens.kind} make a token table of {here.rows:,} rows, {other} would make one of {there.rows:,} "
            f"(--tokens {other})"
        )
    cost, other_cost = here.shipped(planned), there.shipped(planned)
    larger, smaller = (other_cost, cost) if tokens.kind == "characters" else (cost, other_cost)
    if larger <= max(_CLEARLY * smaller, _FEW_BYTES):
        return ""
    return (
        f"{tokens.kind} are planned to take {planned(here):,} parameters and {here.bytes:,} bytes of symbols, "
        f"{other} {planned(there):,} and {there.bytes:,} (--tokens {other})"
    )


def _size(kind: str, colon: str, size: str) -> int:
    if not colon or not size.isascii() or not size.isdigit() or not 2 <= int(size[:9]) <= pieces.LARGEST:
        raise OptionError(f"--tokens {kind}{colon}{size}: write {kind}:SIZE with a SIZE from 2 to {pieces.LARGEST}")
    return int(size)
