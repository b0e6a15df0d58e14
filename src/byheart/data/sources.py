"""Opening what a user names: files, standard input, compressed or not, as bytes or as lines of UTF-8 text."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from byheart.errors import DataError, MissingExtraError

STDIN = "-"
LONGEST_LINE = 1 << 26  # bytes: a longer line is no row of a table


def suffixes(path: str) -> tuple[str, bool]:
    """(ending without compression, compressed?) of a file name.

    >>> suffixes("rows.CSV.gz"), suffixes("book.txt"), suffixes("-")
    (('.csv', True), ('.txt', False), ('', False))
    """
    name = Path(path).name.lower()
    for packed in (".gz", ".zst"):
        if name.endswith(packed):
            return Path(name[: -len(packed)]).suffix, True
    return Path(name).suffix, False


@contextmanager
def open_bytes(path: str) -> Iterator[BinaryIO]:
    """The bytes of a file or of standard input, unpacked."""
    if path == STDIN:
        yield sys.stdin.buffer
        return
    try:
        with open(path, "rb") as file:
            if path.lower().endswith(".gz"):
                with gzip.open(file) as unpacked:
                    yield unpacked  # type: ignore[misc]  # a GzipFile reads like a binary file
            elif path.lower().endswith(".zst"):
                yield io.BufferedReader(_zstd(file))
            else:
                yield file
    except FileNotFoundError:
        raise DataError(f"there is no file {path!r}") from None
    except IsADirectoryError:
        raise DataError(f"{path!r} is a folder; give a file in it") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path!r} cannot be unpacked: {error}") from None
    except OSError as error:
        raise DataError(f"cannot read {path!r}: {error.strerror or error}") from None


def _zstd(file: BinaryIO) -> io.RawIOBase:
    try:
        import zstandard
    except ImportError:
        raise MissingExtraError("reading .zst files", "data") from None
    reader: Any = zstandard.ZstdDecompressor().stream_reader(file)
    return _Unpacked(reader, zstandard.ZstdError)


class _Unpacked(io.RawIOBase):
    """A reader whose library's own error becomes the OSError that files raise."""

    def __init__(self, reader: Any, failure: type[Exception]) -> None:
        self._reader, self._failure = reader, failure

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return int(self._reader.readinto(buffer))
        except self._failure as error:
            raise OSError(f"it is no zstandard file: {error}") from None


def lines(path: str) -> Iterator[tuple[int, str]]:
    """(line number from 1, text with its line ending); a byte order mark is dropped, bad UTF-8 is named by its line."""
    with open_bytes(path) as file:
        number = 0
        while True:
            raw = file.readline(LONGEST_LINE)
            if not raw:
                return
            number += 1
            if len(raw) == LONGEST_LINE:
                raise DataError(f"{path}, line {number} is longer than {LONGEST_LINE} bytes; this is no table of rows")
            if number == 1 and raw.startswith(b"\xef\xbb\xbf"):
                raw = raw[3:]
            try:
                yield number, raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(f"{path}, line {number} is not UTF-8 ({error.reason} at byte {error.start})") from None


def text(path: str) -> str:
    """The whole text of a file."""
    return "".join(line for _, line in lines(path))
