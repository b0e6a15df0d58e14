"""The data that a trained network must memorize, as arrays.

`Sequences` is KS25's setting: N sequences of n tokens, one label each, read at one token. `Documents` is that of Madden
et al.: documents whose every prefix has a next token. Both store distinct values once, which makes the fast
engines fast, and both have a fingerprint that goes into every record.

Their data comes from local files, Hugging Face `datasets`, or a random generator (`make_problem`). Choices
that the papers leave open, and ours:
- words: tokens `uncased` (lower case, runs of letters and digits, every other mark alone); the first n of a row, padded
  at the end with one padding word when a row is shorter;
- vectors of words: KS25 does not specify them. `fixed` samples a standard normal vector of dimension d per word; E_in
  projects to m dimensions, so that the blocks store the labels; `trained` uses unit vectors, so that E_in is
  a table with a trained column per word (most of the parameters, and memorizing is easy);
- rows that are equal to the network (same token 0, same bag of words) but not in label cannot be memorized by any
  model of eq. (165): of equal rows the first is kept;
- documents: Madden et al.'s public code tokenizes with `nltk.wordpunct_tokenize` and keeps n tokens of stories
  that have as many; so do we, and shuffle with NumPy's old generator as they do, though not their two million stories;
- samples: the rows in an order sampled from the seed; larger samples contain the smaller ones.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.missing import settle_missing
from byheart.data.read.formats.hugging_face import from_dataset
from byheart.data.read.records import Records, read_records
from byheart.data.tokens.tokenizer import Tokenizer
from byheart.errors import DataError, OptionError

CROSS_ENTROPY, SQUARED_ERROR = "cross-entropy", "squared-error"
PADDING = -1  # no token, in `Documents`
DRAWN = ("random", "contexts")  # sources that need no file


@dataclass(frozen=True, eq=False)
class Sequences:
    """N sequences of n tokens.

    points: (V, d) vectors of the distinct tokens, or None: then a token is a unit vector of dimension V (one-hot), and
    E_in is a table with a trained column per word. index: (N, n), the token at each position; labels: (N,) classes, or
    ±1 with squared error; read: the position whose output is compared with the label. With labels (N, n) every token
    has one (KS25's seq-to-seq setting), and `read` is not used.

    >>> tiny = Sequences("tiny", None, np.array([[0, 1], [1, 0]]), np.array([0, 1]), classes=2, read=0)
    >>> tiny.N, tiny.n, tiny.d, tiny.label_bits
    (2, 2, 2, 2.0)
    """

    name: str
    points: npt.NDArray[np.float64] | None
    index: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    classes: int
    read: int
    loss: str = CROSS_ENTROPY

    def __post_init__(self) -> None:
        if self.index.ndim != 2 or not self.index.size:
            raise DataError(f"{self.name}: index has shape {self.index.shape}, need (N, n) with at least one token")
        if len(self.labels) != len(self.index):
            raise DataError(f"{self.name}: {len(self.index)} sequences but {len(self.labels)} labels")
        if self.labels.ndim == 2 and self.labels.shape != self.index.shape:
            raise DataError(
                f"{self.name}: labels {self.labels.shape} for tokens {self.index.shape}; one for each token"
            )
        if self.index.min() < 0 or (self.points is not None and self.index.max() >= len(self.points)):
            raise DataError(f"{self.name}: index names a token that has no vector")

    @property
    def N(self) -> int:
        return len(self.index)

    @property
    def n(self) -> int:
        return int(self.index.shape[1])

    @cached_property
    def tokens(self) -> int:
        """V, the number of distinct tokens."""
        return int(self.index.max()) + 1 if self.points is None else len(self.points)

    @property
    def d(self) -> int:
        return self.tokens if self.points is None else int(self.points.shape[1])

    @property
    def asked(self) -> int:
        """Answers that the loss is the mean of."""
        return self.labels.size

    @property
    def outputs(self) -> int:
        """Rows of E_out: a logit per class, or the one number that is compared with ±1."""
        return self.classes if self.loss == CROSS_ENTROPY else 1

    @property
    def label_bits(self) -> float:
        return self.asked * float(np.log2(self.classes))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything above but the name: equal data, equal fingerprint, on every machine."""
        head = f"byheart lab sequences 1 {self.classes} {self.read} {self.loss} {self.index.shape}"
        digest = hashlib.sha256(head.encode())
        for array, kind in ((self.points, "<f8"), (self.index, "<i8"), (self.labels, "<i8")):
            digest.update(b"none" if array is None else np.ascontiguousarray(array).astype(kind).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Documents:
    """Documents for next-token prediction: the distinct contexts, and how often which token follows them.

    tokens: (D, T+1) token numbers, PADDING after the end. contexts: (n, T) distinct prefixes, PADDING after the end;
    pairs: (P, 2), (context, next token); weights: (P,), the share of the pair among all predictions.
    """

    name: str
    tokens: npt.NDArray[np.int64]
    vocabulary: int

    @cached_property
    def _table(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        places: dict[tuple[int, ...], int] = {}
        counts: dict[tuple[int, int], int] = {}
        for row in self.tokens.tolist():
            row = row[: row.index(PADDING)] if PADDING in row else row
            for t in range(1, len(row)):
                place = places.setdefault(tuple(row[:t]), len(places))
                counts[place, row[t]] = counts.get((place, row[t]), 0) + 1
        contexts = np.full((len(places), self.length), PADDING, dtype=np.int64)
        for prefix, place in places.items():
            contexts[place, : len(prefix)] = prefix
        weights = np.array(list(counts.values()), dtype=np.float64)
        return contexts, np.array(list(counts), dtype=np.int64), weights / weights.sum()

    @property
    def contexts(self) -> npt.NDArray[np.int64]:
        return self._table[0]

    @property
    def pairs(self) -> npt.NDArray[np.int64]:
        return self._table[1]

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        return self._table[2]

    @property
    def length(self) -> int:
        """T, the longest context."""
        return int(self.tokens.shape[1]) - 1

    @property
    def N(self) -> int:
        return len(self.tokens)

    @property
    def asked(self) -> int:
        """Predictions that the loss is the mean of."""
        return int((self.tokens[:, 1:] != PADDING).sum())

    @cached_property
    def entropy(self) -> float:
        """The least cross-entropy that any model can reach (Lemma 2 of Madden et al.), in nats per prediction."""
        totals = np.bincount(self.pairs[:, 0], weights=self.weights)
        return float(-(self.weights * np.log(self.weights / totals[self.pairs[:, 0]])).sum())

    @cached_property
    def fingerprint(self) -> str:
        head = f"byheart lab documents 1 {self.vocabulary} {self.tokens.shape}"
        return hashlib.sha256(head.encode() + self.tokens.astype("<i8").tobytes()).hexdigest()


Problem = Sequences | Documents


WORDS = Tokenizer("uncased")
STORY_WORDS = Tokenizer("wordpunct")  # nltk's wordpunct_tokenize
_PAD = ""  # no word is empty


@dataclass(frozen=True)
class DataSource:
    """A text corpus: its file, the columns that are used, and its name at Hugging Face."""

    file: str
    text: str
    label: str | None
    hub: tuple[str, ...]
    split: str

    @property
    def command(self) -> str:
        """Return the command that downloads the file."""
        names = ", ".join(repr(part) for part in self.hub)
        load = f"load_dataset({names}, split={self.split!r})"
        return f"python -c \"from datasets import load_dataset; {load}.to_json('data/{self.file}')\""


SOURCES = {
    "mnli": DataSource("mnli.jsonl", "premise", "label", ("nyu-mll/glue", "mnli"), "validation_matched"),
    "imdb": DataSource("imdb.jsonl", "text", "label", ("stanfordnlp/imdb",), "train"),
    "tinystories": DataSource("tinystories.jsonl", "text", None, ("roneneldan/TinyStories",), "train[:5000]"),
}


@dataclass(frozen=True)
class ProblemSpec:
    """How to make a problem: plain values that a worker on another machine can follow.

    source: mnli, imdb (N rows of n words), random (KS25's length experiment), contexts (a label for every token) or
    tinystories (N documents of n words).
    """

    source: str
    N: int
    n: int
    d: int | None = None  # None: trained vectors
    seed: int = 0

    def __post_init__(self) -> None:
        known = (*SOURCES, *DRAWN)
        if self.source not in known:
            raise OptionError(f"unknown source {self.source!r}; known: {', '.join(known)}")

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
    if spec.source == "contexts":
        return labelled_contexts(spec)
    source = SOURCES[spec.source]
    rows = _rows(spec.source, data, folder)
    if source.label is None:
        return _documents(spec, [STORY_WORDS.cut(row[0]) for row in rows])
    return _labelled(spec, [(WORDS.cut(row[0]), row[1]) for row in rows])


def random_sequences(spec: ProblemSpec) -> Sequences:
    """N sequences of n uniform vectors in [0, 1)^d with labels ±1, read at the last token (KS25, Appendix H)."""
    draw = np.random.default_rng([spec.seed, spec.N, spec.n])
    points = draw.random((spec.N * spec.n, spec.d or 6))
    labels = draw.choice(np.array([-1, 1]), spec.N)
    index = np.arange(spec.N * spec.n).reshape(spec.N, spec.n)
    return Sequences(spec.name, points, index, labels, classes=2, read=spec.n - 1, loss=SQUARED_ERROR)


def labelled_contexts(spec: ProblemSpec) -> Sequences:
    """N sequences of n different words out of 2n, whose every token has a label ±1: nN labels.

    Words are uniform vectors in [0, 1)^d. A word occurs in half of all sequences, so its label depends on its context;
    no two sequences have the same words, so there is a network of eq. (165) with the labels.

    >>> problem = labelled_contexts(ProblemSpec("contexts", N=6, n=3, d=4))
    >>> problem.labels.shape, problem.tokens, problem.asked
    ((6, 3), 6, 18)
    """
    draw = np.random.default_rng([spec.seed, spec.N, spec.n])
    rows: dict[tuple[int, ...], None] = {}
    sets = comb(2 * spec.n, spec.n)
    if sets < spec.N:
        raise OptionError(f"{2 * spec.n} words have {sets} sets of {spec.n}, {spec.N} are needed")
    while len(rows) < spec.N:
        rows.setdefault(tuple(sorted(draw.permutation(2 * spec.n)[: spec.n].tolist())))
    labels = draw.choice(np.array([-1, 1]), (spec.N, spec.n))
    points = draw.random((2 * spec.n, spec.d or 6))
    return Sequences(spec.name, points, np.array(list(rows)), labels, classes=2, read=0, loss=SQUARED_ERROR)


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
            "use a smaller --scale, or a larger file with --data"
        )
    classes = sorted(set(labels))
    vectors = None
    if spec.d is not None:
        vectors = np.random.default_rng([spec.seed, spec.d]).standard_normal((len(numbers), spec.d))
    classed = np.array([classes.index(label) for label in labels])
    return Sequences(spec.name, vectors, np.array(index), classed, len(classes), read=0, loss=CROSS_ENTROPY)


def _documents(spec: ProblemSpec, texts: Sequence[list[str]]) -> Documents:
    """The first n words of N documents that have as many, shuffled with the seed, as in Madden et al.'s code."""
    order = np.random.RandomState(spec.seed).permutation(len(texts))  # the draws of np.random.seed and shuffle
    chosen = [texts[row][: spec.n] for row in order.tolist() if len(texts[row]) >= spec.n][: spec.N]
    if len(chosen) < spec.N:
        raise DataError(
            f"{spec.source} has {len(chosen)} documents of at least {spec.n} words, {spec.N} are needed; take a "
            "smaller --scale, or a larger file with --data"
        )
    numbers: dict[str, int] = {}
    tokens = np.array([[numbers.setdefault(word, len(numbers)) for word in text] for text in chosen])
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


def _read(path: Path, source: DataSource) -> list[tuple[Any, ...]]:
    try:
        return _picked(read_records(str(path)), source)
    except DataError as error:
        raise DataError(f"{error}; get the file with: {source.command}") from None


def _picked(records: Records, source: DataSource) -> list[tuple[Any, ...]]:
    """Return the cells of the used columns; missing cells are refused, naming every row."""
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


def _from_hub(name: str, source: DataSource, folder: str | None) -> list[tuple[Any, ...]]:
    searched = ", ".join(str(place.resolve()) for place in folders(folder))
    advice = (
        f"{source.file} was not found in {searched}; name a file with --data FILE or a folder with --data-folder "
        f"FOLDER, or get it where there is a network: pip install 'byheart[data]', then {source.command}"
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
