"""A fixture folder as a list of cases, each of which is one call of an engine and the answer that it must return.

`expected.json` lists its cases under `cases`; a recital or recall folder has `prompts`, `batches` and `logits` instead,
from which the same cases follow. A case names what the engine does:

    generate      greedy decoding of one prompt
    batch         greedy decoding of prompts of unequal lengths side by side
    logits        logits after every prefix of a text, in one pass or in pieces through the cache
    lora          greedy decoding with a PEFT adapter, or with none
    lora_logits   logits after every prefix of a text with a PEFT adapter
    lora_batch    rows of one batch, each with its own adapter
    draft         speculative decoding with a draft model: text, drafted and accepted tokens per step
    draft_sampled the same with rejection sampling
    lookup        speculative decoding by prompt lookup
    chat          a conversation in the folder's chat template
    streamed      the same as a list of pieces; no piece may end inside a character
    constrained   greedy decoding under a regular expression
    schema        greedy decoding under a JSON schema
    penalized     greedy decoding with a penalty for repetitions
    logprobs      the most likely next tokens with their log-probabilities
    beams         beam search
    sample        the set of tokens that a sampler may return
    masked        logits at every place of inputs side by side, some of whose tokens are masked
    translated    greedy decoding from the decoder's first token, for encoder inputs side by side
    translated_logits   logits after every prefix of the decoder's text, for one encoder input
    pictured      greedy decoding of a prompt with pictures in it
    pictured_logits     logits after every prefix of such a prompt
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from byheart.errors import FileFormatError, OptionError
from byheart.progress import SILENT, Progress
from byheart.version import __version__

FORMAT = "byheart fixture"
VERBS = (
    "generate", "batch", "logits", "lora", "lora_logits", "lora_batch", "draft", "draft_sampled", "lookup", "chat",
    "streamed", "constrained", "schema", "penalized", "logprobs", "beams", "sample", "numerics", "mtp",
    "masked", "translated", "translated_logits", "pictured", "pictured_logits",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class SuiteCase:
    """One call of an engine with its expected answer. `content` holds the fields of `expected.json`."""

    kind: str
    architecture: str
    name: str
    verb: str
    folder: Path
    content: Mapping[str, Any]
    expected: Mapping[str, Any] = field(repr=False)  # the whole of expected.json

    @property
    def model(self) -> Path:
        """The checkpoint that the engine opens: the fixture's folder, or a folder inside of it."""
        return self.folder / str(self.content.get("model", "."))

    @property
    def id(self) -> str:
        """The case in a test's name.

        >>> SuiteCase("recital", "llama", "document 0, from the start", "generate", Path("f"), {}, {}).id
        'llama-recital-generate-document-0-from-the-start'
        """
        words = "".join(c if c.isalnum() or c in "._" else " " for c in self.name).split()
        return "-".join([self.architecture, self.kind, self.verb, *words])

    @property
    def sensor(self) -> bool:
        """Whether the case compares bits of positions, which approximations in few bits turn as small faults do."""
        return bool(self.content.get("sensor", False))

    @property
    def margins(self) -> Mapping[str, Mapping[str, float | None]]:
        """The least margins of the fixture per type, proved and measured."""
        found: Mapping[str, Mapping[str, float | None]] = self.expected.get("margins", {})
        return found


def read_cases(folder: str | Path) -> tuple[SuiteCase, ...]:
    """Read the cases of a fixture folder.

    Args:
        folder: a folder that `byheart fixture` wrote, of any kind; or one of the checkpoints inside of it, for the
            cases of this checkpoint alone.

    Returns:
        The cases in the order of the file.

    Raises:
        FileFormatError: the folder has no usable expected.json.
    """
    path, outer = Path(folder) / "expected.json", Path(folder).resolve().parent
    if not path.is_file() and (outer / "expected.json").is_file():
        return tuple(case for case in read_cases(outer) if case.model.resolve() == Path(folder).resolve())
    try:
        expected = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(expected, dict) or expected.get("format") != FORMAT:
            raise FileFormatError(f"{path} was not written by byheart fixture")
        kind, architecture = str(expected.get("kind", "recital")), str(expected["architecture"])
        contents = expected["cases"] if "cases" in expected else list(_derived(expected))
        found = tuple(
            SuiteCase(kind, architecture, str(one["name"]), str(one["do"]), Path(folder), one, expected)
            for one in contents
        )
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror}; write the folder with byheart fixture") from error
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"{path} is damaged: {type(error).__name__}: {error}") from error
    unknown = sorted({case.verb for case in found} - set(VERBS))
    if unknown:
        raise FileFormatError(f"{path} has cases that this byheart cannot run: {', '.join(unknown)}")
    return found


def _derived(expected: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The cases of a folder that lists prompts, batches and logits."""
    for prompt in expected["prompts"]:
        yield {"do": "generate", **prompt}
    for prompt in expected.get("sensors", ()):
        yield {"do": "generate", "sensor": True, **prompt}
    for batch in expected.get("batches", ()):
        if len(batch["ids"]) > 1:
            yield {"do": "batch", **batch}
    for batch in expected.get("sensor_batches", ()):
        yield {"do": "batch", "sensor": True, **batch}
    for one in expected.get("logits", {}).get("after_every_prefix", []):
        yield {"do": "logits", **one}


def cache_root() -> Path:
    """Return the folder of cached fixtures: $BYHEART_CACHE, or a folder of the user's cache."""
    named = os.environ.get("BYHEART_CACHE")
    if named:
        return Path(named)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "byheart"
    base = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "byheart"


def cached_fixture(
    kind: str, architecture: str, *, root: Path | None = None, progress: Progress = SILENT, **options: Any
) -> Path:
    """Return the folder of a fixture, built on first use.

    The key is byheart's version, the kind, the architecture and the options. The folder appears whole or not at all,
    and two processes that need it at the same time build it once. Nothing is downloaded.

    Args:
        kind: a name of `kinds()`.
        architecture: a stock architecture, such as `llama`.
        root: the cache; `cache_root()` if None.
        progress: where the stages are shown.
        options: options of the kind's writer.

    Returns:
        The folder.

    Raises:
        OptionError: unknown kind, or an architecture that the kind does not support.
    """
    from byheart.checkpoints.suite.kinds import kinds

    known = kinds()
    if kind not in known:
        raise OptionError(f"unknown kind {kind!r}; known: {', '.join(known)}")
    text = json.dumps([__version__, kind, architecture, options], sort_keys=True, default=str)
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    target = (cache_root() if root is None else root) / f"{kind}-{architecture}-{__version__}-{key}"
    if (target / "expected.json").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.parent / f".{target.name}.lock"):
        if not (target / "expected.json").is_file():
            part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
            try:
                known[kind].write(architecture, part / "fixture", progress=progress, **options)
                shutil.rmtree(target, ignore_errors=True)
                (part / "fixture").rename(target)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    return target


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that the system releases when the process ends; where there is none, work is done twice."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def first_difference(found: Sequence[int], wanted: Sequence[int]) -> int | None:
    """Return the first place at which two sequences differ, None if they are equal.

    >>> first_difference([1, 2, 3], [1, 5, 3]), first_difference([1], [1, 2]), first_difference([1], [1])
    (1, 1, None)
    """
    for place, (a, b) in enumerate(zip(found, wanted, strict=False)):
        if a != b:
            return place
    return None if len(found) == len(wanted) else min(len(found), len(wanted))
