"""What an engine is: a name, the types it computes in, and a way to open a checkpoint folder for queries."""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from byheart.errors import MissingExtraError, OptionError

Logits = npt.NDArray[np.float32]  # (positions, vocabulary)


@dataclass(frozen=True)
class Reply:
    """A continuation that an engine returned.

    Attributes:
        ids: The generated tokens.
        margins: The margin of each token over the next likeliest, where the engine shows it.
    """

    ids: tuple[int, ...]
    margins: tuple[float, ...] = ()


class Session(ABC):
    """A checkpoint inside an engine. Prompts and answers are token ids; texts are compared elsewhere."""

    shows_logits = True
    batches = True  # several prompts of unequal length side by side
    can_decode_without_cache = False

    @abstractmethod
    def logits(self, ids: Sequence[int]) -> Logits:
        """The logits after every prefix of `ids`, in one pass."""

    def continued(self, pieces: Sequence[Sequence[int]]) -> Logits | None:
        """The logits after every token of a text that is read piece by piece through the cache; None where the engine
        does not show them."""
        return None

    def placed(self, pieces: Sequence[Sequence[int]]) -> Logits | None:
        """The same with the positions of all tokens given to the engine; None where its interface takes none."""
        return None

    @abstractmethod
    def generate(self, prompts: Sequence[Sequence[int]], count: int, *, cache: bool = True) -> list[Reply]:
        """Continue all prompts greedily, in one batch.

        Args:
            prompts: Token ids.
            count: The most tokens; a continuation ends after the end token, which is kept.
            cache: Use the engine's key-value cache.
        """

    def tokenize(self, text: str) -> list[int] | None:
        """The ids that the engine's own tokenizer makes of a text; None where it has none."""
        return None

    def close(self) -> None:  # noqa: B027 (most engines hold nothing that must be given back)
        """Gives back what the engine holds."""


Opener = Callable[[Path, str, Mapping[str, str]], Session]


@dataclass(frozen=True)
class Engine:
    """A registered engine.

    Attributes:
        name: Its name on the command line.
        extra: The extra of byheart that installs it.
        packages: Distributions that contain it; the first that is installed is reported.
        types: Types that it computes in; the first is the default.
        options: Its own options and their values; the first value is the default.
        opener: Opens a folder: (folder, dtype, options) -> Session.
        summary: One line for `--help`.
    """

    name: str
    extra: str  # of byheart, that installs it
    packages: tuple[str, ...]  # distributions that contain it; the first that is installed is reported
    types: tuple[str, ...]  # the first is the default
    options: Mapping[str, tuple[str, ...]]  # name -> values; the first is the default
    opener: Opener
    summary: str

    def check(self, dtype: str | None, options: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        """Return the type and all options, with defaults filled in.

        Args:
            dtype: A type, or None for the engine's first one.
            options: The chosen options.

        Raises:
            OptionError: If the engine does not support the type, an option or a value.
        """
        dtype = self.types[0] if dtype is None else dtype
        if dtype not in self.types:
            raise OptionError(f"{self.name} does not compute in {dtype!r}; it supports {', '.join(self.types)}")
        for name, value in options.items():
            if name not in self.options:
                raise OptionError(f"{self.name} has no option {name!r}; it has {', '.join(self.options) or 'none'}")
            if value not in self.options[name]:
                raise OptionError(f"{self.name}: {name}={value!r} is not one of {', '.join(self.options[name])}")
        return dtype, {name: options.get(name, values[0]) for name, values in self.options.items()}

    @property
    def version(self) -> str | None:
        """The installed version; None where it is not installed."""
        from importlib.metadata import PackageNotFoundError, version

        for package in self.packages:
            with suppress(PackageNotFoundError):
                return version(package)
        return None

    @contextmanager
    def open(self, folder: Path, dtype: str, options: Mapping[str, str]) -> Iterator[Session]:
        """Open a session and close it at the end.

        Args:
            folder: The checkpoint's folder.
            dtype: The type to compute in.
            options: All options, as `check` returns them.

        Raises:
            MissingExtraError: If the library is not installed.
        """
        if self.version is None:
            raise MissingExtraError(f"reciting in {self.name} ({self.packages[0]})", self.extra)
        session = self.opener(folder, dtype, options)
        try:
            yield session
        finally:
            session.close()


_ENGINES: dict[str, Engine] = {}


def engine(
    name: str,
    *,
    extra: str,
    packages: tuple[str, ...],
    types: tuple[str, ...],
    summary: str,
    options: Mapping[str, tuple[str, ...]] | None = None,
) -> Callable[[Opener], Opener]:
    """Register the decorated function (folder, dtype, options) -> Session as an engine.

    Args:
        name: Its name on the command line.
        extra: The extra of byheart that installs it.
        packages: Distributions that contain it.
        types: Types that it computes in; the first is the default.
        summary: One line for `--help`.
        options: Its own options and their values; the first value is the default.
    """

    def add(opener: Opener) -> Opener:
        if name in _ENGINES:
            raise OptionError(f"engine {name!r} is registered twice")
        _ENGINES[name] = Engine(name, extra, packages, types, dict(options or {}), opener, summary)
        return opener

    return add


def engines() -> dict[str, Engine]:
    """Name -> engine, for every file of this folder.

    >>> sorted(engines())
    ['ctranslate2', 'llama.cpp', 'mlx', 'onnxruntime', 'openvino', 'transformers', 'vllm']
    """
    import byheart.checkpoints.engines as room

    for module in pkgutil.iter_modules(room.__path__):
        importlib.import_module(f"byheart.checkpoints.engines.{module.name}")
    return dict(_ENGINES)


def find(name: str) -> Engine:
    known = engines()
    if name not in known:
        raise OptionError(f"unknown engine {name!r}; there are {', '.join(sorted(known))}")
    return known[name]


def margins_of(logits: Logits, targets: Sequence[int]) -> npt.NDArray[np.float64]:
    """The margin of each target's logit over the best other one; negative where another token wins.

    >>> margins_of(np.array([[1.0, 4.0], [2.0, 0.5]], dtype=np.float32), [1, 1]).tolist()
    [3.0, -1.5]
    """
    values = logits.astype(np.float64)
    rows, wanted = np.arange(len(values)), np.asarray(targets, dtype=np.int64)
    right = values[rows, wanted].copy()
    values[rows, wanted] = -np.inf
    with np.errstate(invalid="ignore"):  # infinity less infinity: not a number, so no margin
        return np.asarray(np.nan_to_num(right - values.max(1), nan=-np.inf))


def one_by_one(step: Callable[[int], Logits], first: Logits, count: int, end: int | None) -> Reply:
    """Greedy decoding of one sequence: `first` are the logits after the prompt, `step` those after one more token."""
    ids: list[int] = []
    gaps: list[float] = []
    row = first
    for _ in range(count):
        token = int(np.argmax(row))
        ids.append(token)
        gaps.append(float(margins_of(row[None], [token])[0]))
        if token == end:
            break
        row = step(token)
    return Reply(tuple(ids), tuple(gaps))
