"""Where the laboratory's data comes from: local files, Hugging Face `datasets`, or a random generator.

What the papers leave open, and what is done here:
- words: tokens `uncased` (lower case, runs of letters and digits, every other mark alone); the first n of a row, padded
  at the end with one padding word when a row is shorter;
- vectors of words: KS25 does not say. `fixed` draws a standard normal vector of dimension d per word, which E_in
  projects to m dimensions, so that what is memorized sits in the blocks; `trained` takes unit vectors, so that E_in is
  a table with a trained column per word (most of the parameters, and memorizing is easy);
- rows that are equal to the network (same token 0, same bag of words) but not in label cannot be memorized by any
  model of eq. (165): of equal rows the first is kept;
- samples: the rows in an order drawn from the seed; larger samples contain the smaller ones.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from byheart.data.missing import settle_missing
from byheart.data.read.formats.hugging_face import from_dataset
from byheart.data.read.records import Records, read_records
from byheart.data.tokens.tokenizer import Tokenizer
from byheart.errors import DataError, OptionError
from byheart.lab.problem import CROSS_ENTROPY, PADDING, SQUARED_ERROR, Documents, Problem, Sequences

WORDS = Tokenizer("uncased")
_PAD = ""  # no word is empty


@dataclass(frozen=True)
class Source:
    """A text corpus: its file, the columns that are used, and its name at Hugging Face."""

    file: str
    text: str
    label: str | None
    hub: tuple[str, ...]
    split: str

    @property
    def command(self) -> str:
        """What a user types to get the file."""
        names = ", ".join(repr(part) for part in self.hub)
        load = f"load_dataset({names}, split={self.split!r})"
        return f"python -c \"from datasets import load_dataset; {load}.to_json('data/{self.file}')\""


SOURCES = {
    "mnli": Source("mnli.jsonl", "premise", "label", ("nyu-mll/glue", "mnli"), "validation_matched"),
    "imdb": Source("imdb.jsonl", "text", "label", ("stanfordnlp/imdb",), "train"),
    "tinystories": Source("tinystories.jsonl", "text", None, ("roneneldan/TinyStories",), "train[:5000]"),
}


@dataclass(frozen=True)
class ProblemSpec:
    """How to make a problem: plain values that a worker on another machine can follow.

    source: mnli, imdb (N rows of n words), random (KS25's length experiment) or tinystories (N documents of n words).
    """

    source: str
    N: int
    n: int
    d: int | None = None  # None: trained vectors
    seed: int = 0

    def __post_init__(self) -> None:
        if self.source not in (*SOURCES, "random"):
            raise OptionError(f"unknown source {self.source!r}; known: {', '.join((*SOURCES, 'random'))}")

    @property
    def name(self) -> str:
        return f"{self.source} N={self.N} n={self.n}" + (f" seed={self.seed}" if self.seed else "")


@lru_cache(maxsize=2)  # a problem of the length experiment may take half a gigabyte
def make_problem(spec: ProblemSpec, data: str | None = None, folder: str | None = None) -> Problem:
    """The problem that `spec` describes; `data` is a file to read instead of the one that is searched for.

    >>> problem = make_problem(ProblemSpec("random", N=5, n=3, d=6))
    >>> problem.N, problem.n, problem.d, sorted(set(problem.labels.tolist()) | {-1, 1})
    (5, 3, 6, [-1, 1])
    """
    if spec.source == "random":
        return random_sequences(spec)
    source = SOURCES[spec.source]
    rows = _rows(spec.source, data, folder)
    if source.label is None:
        return _documents(spec, [WORDS.cut(row[0]) for row in rows[: spec.N]])
    return _labelled(spec, [(WORDS.cut(row[0]), row[1]) for row in rows])


def random_sequences(spec: ProblemSpec) -> Sequences:
    """N sequences of n uniform vectors in [0, 1)^d with labels ±1, read at the last token (KS25, Appendix H)."""
    draw = np.random.default_rng([spec.seed, spec.N, spec.n])
    points = draw.random((spec.N * spec.n, spec.d or 6))
    labels = draw.choice(np.array([-1, 1]), spec.N)
    index = np.arange(spec.N * spec.n).reshape(spec.N, spec.n)
    return Sequences(spec.name, points, index, labels, classes=2, read=spec.n - 1, loss=SQUARED_ERROR)


def _labelled(spec: ProblemSpec, rows: Sequence[tuple[list[str], int]]) -> Sequences:
    order = np.random.default_rng(spec.seed).permutation(len(rows))
    numbers: dict[str, int] = {}
    seen: set[tuple[str, ...]] = set()
    index, labels = [], []
    for row in order.tolist():
        text = (rows[row][0] + [_PAD] * spec.n)[: spec.n]
        context = (text[0], *sorted(text[1:]))
        if context in seen:
            continue
        seen.add(context)
        index.append([numbers.setdefault(word, len(numbers)) for word in text])
        labels.append(rows[row][1])
        if len(index) == spec.N:
            break
    if len(index) < spec.N:
        raise DataError(
            f"{spec.source} has {len(index)} rows that differ in their first {spec.n} words, {spec.N} are needed; "
            "take a smaller --scale, or a larger file with --data"
        )
    classes = sorted(set(labels))
    vectors = None
    if spec.d is not None:
        vectors = np.random.default_rng([spec.seed, spec.d]).standard_normal((len(numbers), spec.d))
    classed = np.array([classes.index(label) for label in labels])
    return Sequences(spec.name, vectors, np.array(index), classed, len(classes), read=0, loss=CROSS_ENTROPY)


def _documents(spec: ProblemSpec, texts: Sequence[list[str]]) -> Documents:
    if len(texts) < spec.N:
        raise DataError(f"{spec.source} has {len(texts)} documents, {spec.N} are needed; take a smaller --scale")
    numbers: dict[str, int] = {}
    tokens = np.full((spec.N, spec.n), PADDING, dtype=np.int64)
    for row, text in enumerate(texts):
        for place, word in enumerate(text[: spec.n]):
            tokens[row, place] = numbers.setdefault(word, len(numbers))
    return Documents(spec.name, tokens, len(numbers))


def folders(folder: str | None = None) -> list[Path]:
    """Where local files are looked for, in this order; a folder that is named is the only one."""
    named = [folder] if folder else [os.environ.get("BYHEART_DATA"), "data", "../shared/data"]
    return [Path(place) for place in named if place]


@lru_cache(maxsize=4)
def _rows(name: str, data: str | None, folder: str | None) -> list[tuple[Any, ...]]:
    """(text,) or (text, label) of every row."""
    source = SOURCES[name]
    if data is not None:
        return _read(Path(data), source)
    for place in folders(folder):
        if (place / source.file).is_file():
            return _read(place / source.file, source)
    return _from_hub(name, source, folder)


def _read(path: Path, source: Source) -> list[tuple[Any, ...]]:
    try:
        return _picked(read_records(str(path)), source)
    except DataError as error:
        raise DataError(f"{error}; get the file with: {source.command}") from None


def _picked(records: Records, source: Source) -> list[tuple[Any, ...]]:
    """The cells of the columns that are used; what is missing is refused, naming every row."""
    names = (source.text,) if source.label is None else (source.text, source.label)
    lacking = [name for name in names if name not in records.columns]
    if lacking:
        raise DataError(f"{records.origin} needs rows with {' and '.join(names)}, but has no {lacking[0]!r}")
    numbers, rows = zip(*records.select(names), strict=True)
    places = [records.name(number) for number in numbers]
    settle_missing([row[0] for row in rows], [row[-1] for row in rows], "error", places.__getitem__, records.origin)
    wrong = next((place for place, row in zip(places, rows, strict=True) if not isinstance(row[0], str)), None)
    if wrong is not None:
        raise DataError(f"{records.origin}, {wrong}: {source.text!r} is not a text")
    return list(rows)


def _from_hub(name: str, source: Source, folder: str | None) -> list[tuple[Any, ...]]:
    searched = ", ".join(str(place) for place in folders(folder))
    advice = (
        f"{source.file} was not found in: {searched}. Get it with\n  pip install 'byheart[data]'\n  {source.command}\n"
        "or name a file with --data FILE or a folder with --data-folder FOLDER"
    )
    if folder:
        raise DataError(f"no data for {name}: {advice}")
    try:
        from datasets import load_dataset
    except ImportError:
        raise DataError(f"no data for {name}: {advice}") from None
    try:
        return _picked(from_dataset(load_dataset(*source.hub, split=source.split)), source)
    except Exception as error:  # the library has many, and every one of them means: no data
        raise DataError(f"no data for {name} ({type(error).__name__} from Hugging Face): {advice}") from None
