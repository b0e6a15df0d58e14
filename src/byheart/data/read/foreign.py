"""What a file is that was taken for text and is none: newcomers hand over workbooks, archives and memories.

>>> what_it_is(b"PK\\x03\\x04...")
'a ZIP archive or an Office file; unpack it, or save the sheet as CSV'
>>> what_it_is(b"name,colour") is None
True
"""

from __future__ import annotations

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
_WIDE = (b"\xff\xfe", b"\xfe\xff")


def what_it_is(start: bytes) -> str | None:
    """What a file that begins like this is, and what to do; None for what may be text."""
    return next((words for beginning, words in _BEGINNINGS.items() if start.startswith(beginning)), None)


def encoding_remedy(start: bytes) -> str:
    """What to do about a line that is not UTF-8."""
    if start.startswith(_WIDE):
        return "it looks like UTF-16: save it as UTF-8"
    return "save the file as UTF-8, for example with iconv -f WINDOWS-1252 -t UTF-8"
