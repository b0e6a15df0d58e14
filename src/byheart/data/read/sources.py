"""Opening what a user names: files, standard input, compressed or not, as bytes or as lines of UTF-8 text.

Newcomers pass workbooks, archives and memories: an error names the kind of such a file and the remedy.

>>> what_it_is(b"PK\\x03\\x04...")
'a ZIP archive or an Office file; unpack it, or save the sheet as CSV'
>>> what_it_is(b"name,colour") is None
True
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from byheart.data.wording import one_line
from byheart.errors import DataError, MissingExtraError, OptionError

STDIN = "-"
_LOOKED_AT = 1000  # names in a folder, when a file is missing
LONGEST_LINE = 1 << 26  # bytes: a longer line is not a row of a table


@dataclass(frozen=True)
class Limits:
    """How much is read at most: rows (None: all), and bytes that a compressed file unpacks to."""

    max_rows: int | None = None
    max_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        for name, value in (("max_rows", self.max_rows), ("max_bytes", self.max_bytes)):
            if value is not None and not 1 <= value <= sys.maxsize:
                raise OptionError(f"{name}={value} must be at least 1 and at most {sys.maxsize}")


NO_LIMITS = Limits()
UTF_8 = "utf-8"


@dataclass(frozen=True)
class TextForm:
    """How a text file is written: whether a first line names its columns, and its encoding (None: UTF-8, or UTF-16
    where the file begins with its mark).

    A reader that is `lenient` keeps lines with too many or too few cells aside in the records, where it would refuse
    them else.
    """

    header: bool = True
    encoding: str | None = None
    lenient: bool = False

    def __post_init__(self) -> None:
        if self.encoding is not None:
            try:
                text = codecs.lookup(self.encoding)._is_text_encoding
            except (LookupError, ValueError):
                text = False
            if not text:
                raise OptionError(f"encoding={self.encoding!r} is not known; try cp1252, latin-1, utf-16 or gb18030")


AS_USUAL = TextForm()


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
def open_bytes(path: str, limits: Limits = NO_LIMITS) -> Iterator[BinaryIO]:
    """The bytes of a file or of standard input, unpacked."""
    if path == STDIN:
        yield sys.stdin.buffer
        return
    with _readable(path), open(path, "rb") as file:
        if path.lower().endswith(".gz"):
            with gzip.open(file) as unpacked:
                yield io.BufferedReader(_Bounded(unpacked, path, limits.max_bytes))
        elif path.lower().endswith(".zst"):
            yield io.BufferedReader(_Bounded(_zstd(file), path, limits.max_bytes))
        else:
            yield file


@contextmanager
def open_seekable(path: str, limits: Limits = NO_LIMITS) -> Iterator[BinaryIO]:
    """`open_bytes` for formats that jump about in a file: what is compressed is unpacked first."""
    with open_bytes(path, limits) as file:
        yield io.BytesIO(file.read()) if suffixes(path)[1] or path == STDIN else file


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """The system's error about a file that cannot be read, in one sentence."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"there is no file {path!r}{_near(path)}") from None
    except IsADirectoryError:
        raise DataError(f"{path!r} is a folder; give a file in it") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        remedy = "copy it again, or leave the ending off if it is not compressed"
        raise DataError(f"{path!r} cannot be unpacked: {one_line(error)}; {remedy}") from None
    except OSError as error:
        raise DataError(f"cannot read {path!r}: {error.strerror or one_line(error)}") from None
    except ValueError as error:
        if "null byte" in str(error):
            raise DataError(f"{path!r} is not the name of a file: {error}") from None
        raise


def _near(path: str) -> str:
    """A file in the same folder whose name is nearly this one, or the folder that is missing."""
    folder = Path(path).parent
    if not folder.is_dir():
        return f", and no folder {str(folder)!r}"
    with suppress(OSError):
        names = {entry.name.lower(): entry.name for entry in islice(folder.iterdir(), _LOOKED_AT)}
        for found in get_close_matches(Path(path).name.lower(), names, n=1, cutoff=0.75):
            return f"; did you mean {str(folder / names[found])!r}?"
    return ""


class _Bounded(io.RawIOBase):
    """Passes bytes on until there are too many: a small file may unpack to more than fits anywhere."""

    def __init__(self, inner: Any, path: str, limit: int) -> None:
        self.inner, self.path, self.limit, self.count = inner, path, limit, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._read(len(buffer))
        self.count += len(data)
        if self.count > self.limit:
            raise DataError(
                f"{self.path!r} unpacks to more than {self.limit:,} bytes; if that is meant, raise --max-bytes"
            )
        buffer[: len(data)] = data
        return len(data)

    def _read(self, count: int) -> bytes:
        try:
            return bytes(self.inner.read(count))
        except (OSError, EOFError, zlib.error):
            raise
        except Exception as error:  # zstandard has its own error type
            raise DataError(f"{self.path!r} cannot be unpacked: {error}") from None


def _zstd(file: BinaryIO) -> Any:
    try:
        import zstandard
    except ImportError:
        raise MissingExtraError("reading .zst files", "data") from None
    return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)


def shown_name(path: str) -> str:
    """What a source is called in messages."""
    return "standard input" if path == STDIN else path


def lines(path: str, limits: Limits = NO_LIMITS, encoding: str | None = None) -> Iterator[tuple[int, str]]:
    """(line number from 1, text with its line ending); a byte order mark is dropped, what cannot be decoded is named by
    its line. A file whose lines end with a carriage return alone, as old Macs wrote them, has lines all the same."""
    with open_bytes(path, limits) as file:
        buffered: Any = file if hasattr(file, "peek") else io.BufferedReader(file)
        if encoding is None and buffered.peek(2).startswith(_WIDE):
            encoding = "utf-16"
        foreign = encoding is not None and codecs.lookup(encoding).name != UTF_8
        read = _decoded_lines(buffered, shown_name(path), str(encoding)) if foreign else _utf_8_lines(buffered, path)
        for number, line in read:
            alone = number == 1 and not line.endswith("\n") and "\r" in line.rstrip("\r")
            yield from enumerate(re.findall("[^\r]*\r|[^\r]+", line), start=1) if alone else ((number, line),)


def _utf_8_lines(file: BinaryIO, path: str) -> Iterator[tuple[int, str]]:
    number, path = 0, shown_name(path)
    while raw := file.readline(LONGEST_LINE):
        number += 1
        if len(raw) == LONGEST_LINE:
            raise DataError(f"{path}, line {number} is longer than {LONGEST_LINE} bytes; this is not a table of rows")
        if number == 1:
            if (foreign := what_it_is(raw)) is not None:
                raise DataError(f"{path} is {foreign}")
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        try:
            yield number, raw.decode(UTF_8)
        except UnicodeDecodeError as error:
            where = f"{path}, line {number} is not UTF-8 ({error.reason} at byte {error.start})"
            raise DataError(f"{where}; {ENCODING_REMEDY}") from None


def _decoded_lines(file: BinaryIO, path: str, encoding: str) -> Iterator[tuple[int, str]]:
    """Lines of another encoding, whose line ends may have several bytes."""
    decoded, number = io.TextIOWrapper(file, encoding=encoding, newline=""), 0
    try:
        while line := decoded.readline(LONGEST_LINE):
            number += 1
            if len(line) == LONGEST_LINE:
                raise DataError(f"{path}, line {number} is longer than {LONGEST_LINE} characters; this is not a table")
            yield number, line.removeprefix("\ufeff") if number == 1 else line
    except UnicodeError as error:
        reason = getattr(error, "reason", None) or one_line(error)
        raise DataError(f"{path}, after line {number}, is not {encoding} ({reason}); name another encoding") from None
    finally:
        with suppress(ValueError):  # the file belongs to who opened it, and may be closed by now
            decoded.detach()


def text(path: str, limits: Limits = NO_LIMITS) -> str:
    """The whole text of a file."""
    return "".join(line for _, line in lines(path, limits))


_WRONG_NAME = "its name must end in"
_BEGINNINGS = {
    b"PK\x03\x04": "a ZIP archive or an Office file; unpack it, or save the sheet as CSV",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an old Office file; save the sheet as CSV",
    b"\x1f\x8b": f"compressed by gzip; {_WRONG_NAME} .gz",
    b"\x28\xb5\x2f\xfd": f"compressed by zstd; {_WRONG_NAME} .zst",
    b"BZh91AY&SY": "compressed by bzip2; unpack it, or use gzip or zstd",
    b"\xfd7zXZ\x00": "compressed by xz; unpack it, or use gzip or zstd",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive; unpack it",
    b"PAR1": f"a Parquet file; {_WRONG_NAME} .parquet",
    b"ARROW1\x00": f"an Arrow file; {_WRONG_NAME} .arrow",
    b"FEA1": f"a Feather file; {_WRONG_NAME} .feather",
    b"\x93NUMPY": f"a NumPy array; {_WRONG_NAME} .npy",
    b"SQLite format 3\x00": "an SQLite database; write the table as CSV first",
    b"%PDF-": "a PDF; write its table as CSV first",
    b"\x89HDF\r\n": "an HDF5 file; write the table as CSV or .npz first",
    b"\x80\x02": "a pickle, which could run code; write the table as CSV or Parquet",
    b"\x80\x03": "a pickle, which could run code; write the table as CSV or Parquet",
    b"\x80\x04\x95": "a pickle, which could run code; write the table as CSV or Parquet",
    b"\x80\x05\x95": "a pickle, which could run code; write the table as CSV or Parquet",
    b'{"byheart":': "a memory, not data; `byheart verify` and `byheart report` take the memory first, then the data",
}
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # UTF-16
ENCODING_REMEDY = (
    "save it as UTF-8, or name its encoding, for example with --encoding cp1252 (Western Windows), latin-1, "
    "shift_jis or gb18030"
)


def what_it_is(start: bytes) -> str | None:
    """What a file that begins like this is, and what to do; None for what may be text."""
    return next((words for beginning, words in _BEGINNINGS.items() if start.startswith(beginning)), None)
