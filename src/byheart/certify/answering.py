"""Evaluate rows for the checker: all at once, or part by part on an executor, and across interruptions.

A proof over many rows can be interrupted and resumed. The file that is kept must never make a false `proved` possible,
whoever wrote it, so its contents are never trusted. It is a set of seals, and a part of the rows is skipped if and only
if its seal exists. The seal of a part is an HMAC, under a key that never leaves the
user's own folder (`own_key`), of everything that its answers depend on:

    the code of byheart · the network · the arithmetic · the part's inputs · the labels that these must get

It is written once all rows of the part were answered as labelled. So only the holder of the key can write a seal,
and a seal for other rows, labels, weights or code is the seal of another part: nothing has to be compared, and a forged
or foreign file is as good as an empty one. Whoever can read the key can as well change the installed byheart. A verdict
that rests on seals states this, with the number of rows. The file is removed when the proof is done; it is not a
certificate.

    >>> from byheart.ir.layers import Affine, Matrix
    >>> from byheart.ir.network import Decode, Network, Read, Readout
    >>> from byheart.exact.number import Values
    >>> double = Network((Affine(Matrix.of([{0: 2}], 1)),), Read.LAST, Readout(Decode.VALUE, 10))
    >>> rows = Inputs(Values.of([[1], [4]]), np.array([[0], [1]]))
    >>> answer_rows(double, rows, np.array([2, 8]), None).found.tolist()
    [2, 8]
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from byheart.certify.next_token import decided_tokens
from byheart.errors import FileFormatError, NotRationalError
from byheart.exact.budget import Budget, limited, meter
from byheart.files import digest
from byheart.ir.decoder_network import AnyNetwork, DecoderNetwork
from byheart.ir.enclose import UNDECIDED, enclosed_answers
from byheart.ir.evaluate import answers
from byheart.ir.floats import answers_in_floats
from byheart.ir.json_form import decoder_to_json, network_to_json
from byheart.ir.network import Inputs
from byheart.progress import SILENT, Progress

EXACT = "exact rational numbers"
IN_FLOATS = "{}, which was proved to evaluate this network exactly, in any order"
PLACES = 1 << 20  # tokens of a part
MORE_IN_FLOATS = 4  # times as many where floats answer, so that sending the network is not most of the work
FEWEST = 1 << 12  # rows of a part
AHEAD = 8  # parts that wait for an executor, so that memory stays bounded
HEAD = b"byheart seals 1\n"
Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EvaluationPlan:
    """How rows are evaluated.

    Attributes:
        executor: Where parts of the rows run; None for this process.
        kept: A file with the seals of finished parts, so that an interrupted proof is resumed.
    """

    executor: Executor | None = None
    kept: Path | None = None


AT_ONCE = EvaluationPlan()


@dataclass(frozen=True, eq=False)
class Answered:
    """Class numbers, UNDECIDED where enclosures leave more than one; how they were found; rows that seals vouch for."""

    found: Places
    how: str
    sealed: int = 0


def answer_rows(
    network: AnyNetwork,
    inputs: Inputs,
    labels: Places,
    floats: str | None,
    progress: Progress = SILENT,
    plan: EvaluationPlan = AT_ONCE,
) -> Answered:
    """The answers of all rows. `floats`: a float type that was proved to evaluate this network exactly."""
    if plan.executor is None and plan.kept is None:
        return Answered(*_answers(network, inputs, floats, progress))
    places = PLACES if floats is None else MORE_IN_FLOATS * PLACES
    size = max(FEWEST, places // max(1, inputs.index.shape[1]))
    starts = range(0, len(inputs.index), size)
    seals = None if plan.kept is None else Seals.open(plan.kept, network, floats)
    found: dict[int, Places] = {}
    ways: dict[str, None] = {}
    sealed = 0
    with progress.stage("evaluating rows", total=len(inputs.index)) as stage:
        waiting: list[tuple[int, Inputs, str]] = []
        for start in starts:
            part, wanted = _part(inputs, start, start + size), labels[start : start + size]
            seal = "" if seals is None else seals.of(part, wanted)
            if seals is not None and seal in seals.known:
                found[start], sealed = wanted, sealed + len(wanted)
                stage.advance(len(wanted))
            else:
                waiting.append((start, part, seal))
        for start, seal, (answer, how) in _evaluated(network, waiting, floats, plan.executor):
            wanted = labels[start : start + size]
            if seals is not None and answer.shape == wanted.shape and bool(((answer == wanted) | (wanted == -1)).all()):
                seals.add(seal)
            found[start] = answer
            ways[how] = None
            stage.advance(len(wanted))
    together = np.concatenate([found[start] for start in starts]) if starts else labels[:0]
    return Answered(together, " and ".join(ways) or _way(floats), sealed)


def _evaluated(
    network: AnyNetwork, parts: list[tuple[int, Inputs, str]], floats: str | None, executor: Executor | None
) -> Iterator[tuple[int, str, tuple[Places, str]]]:
    """The parts' answers, each with where it starts and its seal, in their order."""
    spent = meter()
    if executor is None:
        for start, part, seal in parts:
            yield start, seal, _answers(network, part, floats, SILENT)
        return
    running: deque[tuple[int, str, Future[tuple[Places, str, int]]]] = deque()

    def first() -> tuple[int, str, tuple[Places, str]]:
        start, seal, future = running.popleft()
        found, how, work = future.result()
        if spent is not None:
            spent.spend(work)
        return start, seal, (found, how)

    for start, part, seal in parts:
        left = None if spent is None else Budget(max(0, spent.budget.work - spent.work), spent.budget.memory)
        running.append((start, seal, executor.submit(_elsewhere, network, part, floats, left)))
        if len(running) >= AHEAD:
            yield first()
    while running:
        yield first()


def _elsewhere(
    network: AnyNetwork, inputs: Inputs, floats: str | None, budget: Budget | None
) -> tuple[Places, str, int]:
    """Run `_answers` in another process, within the rest of the budget; also return the spent work."""
    with limited(budget) as spent:
        found, how = _answers(network, inputs, floats, SILENT)
        return found, how, 0 if spent is None else spent.work


def _answers(network: AnyNetwork, inputs: Inputs, floats: str | None, progress: Progress) -> tuple[Places, str]:
    if isinstance(network, DecoderNetwork):
        prefixes = network.prefixes(inputs)
        tokens, how = decided_tokens(network.decoder, prefixes.tokens, progress)
        of_token = np.full(network.decoder.vocabulary_size + 1, -1, dtype=np.int64)
        of_token[list(network.classes)] = np.arange(network.class_count)
        of_token[-1] = UNDECIDED  # token -1
        return np.append(of_token[tokens], -1)[prefixes.place], f"rigorous enclosures ({how})"
    if floats is not None:
        return answers_in_floats(network, inputs, floats, progress), _way(floats)
    try:
        return answers(network, inputs, progress), EXACT
    except NotRationalError:
        found, bits = enclosed_answers(network, inputs, progress)
        return found, f"rigorous enclosures (balls of {bits} bits)"


def _way(floats: str | None) -> str:
    return EXACT if floats is None else IN_FLOATS.format(floats)


def _part(inputs: Inputs, start: int, stop: int) -> Inputs:
    """Some rows, with the points that they need and no others."""
    index = inputs.index[start:stop]
    used = np.unique(index[index >= 0])
    if len(used) == inputs.points.count:
        return Inputs(inputs.points, index)
    place = np.full(inputs.points.count + 1, -1, dtype=np.int64)  # the last is that of absent tokens
    place[used] = np.arange(len(used))
    return Inputs(inputs.points.take(used), place[index])


@dataclass(frozen=True)
class Seals:
    """The seals of a file, and how to make those of one network's rows."""

    path: Path
    key: bytes = field(repr=False)
    about: bytes  # common to all parts
    known: set[str]

    @staticmethod
    def forget(path: Path) -> None:
        """Remove a file of seals, whose proof is done; a file of another kind is left alone."""
        if path.exists() and path.read_bytes().startswith(HEAD):
            path.unlink()

    @staticmethod
    def open(path: Path, network: AnyNetwork, floats: str | None) -> Seals:
        """Open the seals of `path`, create the file if it is missing; a FileFormatError for a file of another kind."""
        try:
            stored = path.read_bytes() if path.exists() else b""
            if stored and not stored.startswith(HEAD):
                raise FileFormatError(f"{path} does not contain the seals of a proof; give --resume another name")
            if not stored:
                path.write_bytes(HEAD)
        except OSError as error:
            raise FileFormatError(f"cannot keep {path}: {error.strerror}; give --resume another file") from None
        stored_form = decoder_to_json(network) if isinstance(network, DecoderNetwork) else network_to_json(network)
        about = f"{_code()} {digest(stored_form)} {_way(floats)}".encode()
        return Seals(path, own_key(), about, set(stored[len(HEAD) :].decode("ascii", "replace").split()))

    def of(self, part: Inputs, labels: Places) -> str:
        """The seal of a part whose rows are answered with these labels."""
        made = hmac.new(self.key, digestmod=hashlib.sha256)
        points = part.points
        shapes = f"{points.denominator:x} {points.numerators.shape} {part.index.shape} {labels.shape}"
        for text in (self.about, shapes.encode()):
            made.update(len(text).to_bytes(8, "big") + text)
        for row in points.numerators.tolist():
            made.update((" ".join(map("{:x}".format, row)) + ";").encode())
        made.update(np.ascontiguousarray(part.index, dtype="<i8").data)
        made.update(np.ascontiguousarray(labels, dtype="<i8").data)
        return made.hexdigest()

    def add(self, seal: str) -> None:
        """Write the seal at once, on a separate line, so that an earlier interrupted write does no harm."""
        with self.path.open("ab") as file:
            file.write(f"\n{seal}\n".encode())
            file.flush()
            os.fsync(file.fileno())


def own_key() -> bytes:
    """The key of this user on this machine, generated on first use; a FileFormatError if others can read it."""
    folder = _state_folder()
    path = folder / "seals.key"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            _generate_key(path)
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(handle, "rb") as file:
            about, key = os.fstat(file.fileno()), file.read(64)
    except OSError as error:
        raise FileFormatError(f"cannot keep the key of seals, {path}: {error.strerror}; omit --resume") from None
    if sys.platform != "win32" and (about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o077):
        raise FileFormatError(
            f"others can read or write {path}, the key of seals; remove it, and a new one is generated"
        )
    if len(key) != 32:
        raise FileFormatError(f"{path} is not a key of 32 bytes; remove it, and a new one is generated")
    return key


def _generate_key(path: Path) -> None:
    """A new key, whole or not at all; where two processes generate one, the first stays."""
    handle, name = tempfile.mkstemp(dir=path.parent)  # which only this user can read
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(32))
        with suppress(FileExistsError):
            os.link(name, path)
    finally:
        os.unlink(name)


def _state_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "byheart"
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "byheart"


@cache
def _code() -> str:
    """A digest of every source file of byheart: a seal written by other code is invalid for this code."""
    made, root = hashlib.sha256(), Path(__file__).resolve().parents[1]
    for path in sorted(root.rglob("*.py")):
        made.update(path.relative_to(root).as_posix().encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return made.hexdigest()
