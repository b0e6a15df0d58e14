"""Files that people keep: written whole or not at all, and JSON in one strict form.

>>> canonical({"b": [1, "é"], "a": None})
'{"a":null,"b":[1,"\\\\u00e9"]}'
>>> parse(canonical({"a": 1}))
{'a': 1}
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from byheart.errors import FileFormatError


def check_target(path: Path) -> Path:
    """The path where something can be written, or an error before long work has begun."""
    if str(path) == "-":
        raise FileFormatError("cannot write -: only `byheart deploy` writes to standard output; name a file")
    parent = _destination(path).parent
    if not parent.is_dir():
        raise FileFormatError(f"cannot write {path}: there is no folder {str(parent)!r}; make it first")
    if not os.access(parent, os.W_OK):
        raise FileFormatError(f"cannot write {path}: no permission to write into {str(parent)!r}")
    return path


def _destination(path: Path) -> Path:
    """Return the file that a write to `path` creates or replaces.

    Symbolic links are followed, as `cp` and `>` do: the link stays and its target is replaced. A device, FIFO or
    socket is refused, because renaming a draft onto it would delete it, `/dev/null` included.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    except OSError as error:
        raise FileFormatError(f"cannot write {path}: {error.strerror}") from error
    if stat.S_ISDIR(mode):
        raise FileFormatError(f"cannot write {path}: it is a folder; name a file in it")
    if not stat.S_ISREG(mode):
        kind = "a FIFO" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
        raise FileFormatError(f"cannot write {path}: it is {kind}, not a file; name a file")
    return _followed(path)


def _followed(path: Path) -> Path:
    return Path(os.path.realpath(path)) if path.is_symlink() else path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A draft beside `path` to be filled, which then takes its place; a failure leaves what was there before.

    The draft gets the permissions that a new file would have: `mkstemp` alone would keep it from other users.
    """
    target = _destination(path)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
        os.close(handle)
    except OSError as error:
        raise FileFormatError(f"cannot write {path}: {error.strerror}") from error
    draft = Path(name)
    try:
        yield draft
        draft.chmod(0o666 & ~_umask())
        draft.replace(target)
    except OSError as error:
        raise FileFormatError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def building(path: Path) -> Iterator[Path]:
    """Yield a draft folder beside `path`, which takes that name when the block ends without an error.

    A reader therefore finds the whole folder or none. An error, an interrupt or a termination removes the draft; a
    killed process leaves only the draft, whose name begins with a dot and ends in `.part`.

    Args:
        path: the folder to create; it does not exist yet, is empty, or is a symbolic link to such a place.

    Raises:
        FileFormatError: the draft cannot be created, or cannot take its place.

    >>> with tempfile.TemporaryDirectory() as scratch, building(Path(scratch) / "model") as draft:
    ...     written = (draft / "config.json").write_text("{}")
    ...     (Path(scratch) / "model").exists()
    False
    """
    target = _followed(path)
    try:
        draft = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
    except OSError as error:
        raise FileFormatError(f"cannot write {path}: {error.strerror}") from error
    try:
        yield draft
        try:
            draft.chmod(0o777 & ~_umask())
            if target.is_dir():
                # Python's rename replaces an empty folder on POSIX systems only.
                target.rmdir()
            draft.rename(target)
        except OSError as error:
            raise FileFormatError(f"cannot write {path}: {error.strerror}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_atomically(path: Path, data: bytes) -> None:
    """`data` at `path`, or an error and nothing at all; after a crash, the old file or the new one."""
    with replacing(path) as draft, open(draft, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def read_bytes(path: Path, largest: int) -> bytes:
    """All bytes of a file that is not larger than anything honest would be."""
    try:
        if path.stat().st_size > largest:
            raise FileFormatError(f"{path} is larger than {largest:,} bytes; no file of this kind is that large")
        return path.read_bytes()
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror}") from error


def canonical(value: Any) -> str:
    """The one JSON text of a value: keys sorted, no spaces, ASCII; numbers are integers."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest(value: Any) -> str:
    """SHA-256 of the canonical text."""
    return hashlib.sha256(canonical(value).encode("ascii")).hexdigest()


def parse(text: str) -> Any:
    """JSON without fractions, NaN and repeated keys; a ValueError (often a FileFormatError) for anything else.

    Python's own reader keeps the last of two equal keys, and another reader may keep the first: a text with two
    meanings is refused.
    """
    return json.loads(text, parse_float=_no_float, parse_constant=_no_float, object_pairs_hook=_once)


def _no_float(text: str) -> Any:
    raise FileFormatError(f"the number {text[:40]} is not an integer")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    twice = repeated_key(pairs)
    if twice is not None:
        raise FileFormatError(f"the key {twice[:40]!r} occurs twice in one object")
    return dict(pairs)


def repeated_key(pairs: list[tuple[str, Any]]) -> str | None:
    """The first key of a JSON object that is repeated; for hooks of readers, which report it in their own words.

    >>> repeated_key([("a", 1), ("b", 2), ("a", 3)])
    'a'
    """
    seen: set[str] = set()
    if len(dict(pairs)) < len(pairs):
        for key, _ in pairs:
            if key in seen:
                return key
            seen.add(key)
    return None
