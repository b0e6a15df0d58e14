"""Parquet, Arrow and Feather files, a batch of rows at a time: only the requested columns are unpacked."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from byheart.data.read.records import Cells, Records, Source, distinct_names, reader
from byheart.data.read.sources import Limits, open_seekable
from byheart.data.wording import one_line
from byheart.errors import DataError, MissingExtraError

ZSTD = b"\x28\xb5\x2f\xfd"  # the first bytes of every frame
_BATCH = 2048  # rows that are unpacked at a time: a small file may hold long cells many times


@reader(".parquet", ".arrow", ".feather")
def arrow(source: Source) -> Records:
    path, ending, limits = source.path, source.ending, source.limits
    with _explained(path, ending), open_seekable(path, limits) as file:
        columns = distinct_names(list(map(str, _schema(file, ending).names)), path)

    def select(names: tuple[str, ...]) -> Cells:
        number = unpacked = 0
        with _explained(path, ending), open_seekable(path, limits) as file:
            for batch in _batches(file, ending, names, columns, limits):
                batch.validate(full=True)  # a damaged file may name places that are not there
                unpacked += max(batch.nbytes, batch.num_rows)
                if unpacked > limits.max_bytes:
                    remedy = "read fewer rows with --max-rows, or raise --max-bytes"
                    raise DataError(f"{path} unpacks to more than {limits.max_bytes:,} bytes; {remedy}")
                for cells in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
                    yield number, cells
                    number += 1

    return Records(tuple(columns), select, path)


@contextmanager
def _explained(path: str, ending: str) -> Iterator[None]:
    """The library's error about a damaged file or another format, in one sentence."""
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtraError(f"reading {ending} files", "data") from None
    try:
        yield
    except DataError:
        raise
    except (pa.ArrowException, ValueError, OSError, OverflowError, KeyError) as error:
        raise DataError(f"{path} is not a {ending} file: {one_line(error)}") from None
    except MemoryError:
        raise DataError(f"{path} is damaged, or its rows are larger than the memory; try --max-rows") from None


def _schema(file: BinaryIO, ending: str) -> Any:
    if ending == ".parquet":
        from pyarrow import parquet

        return parquet.read_schema(file)
    return _ipc(file).schema


def _batches(file: BinaryIO, ending: str, names: tuple[str, ...], columns: list[str], limits: Limits) -> Iterator[Any]:
    if ending == ".parquet":
        from pyarrow import parquet

        yield from parquet.ParquetFile(file).iter_batches(_BATCH, columns=list(dict.fromkeys(names)))
        return
    _refuse_bombs(file, limits)
    reader = _ipc(file, sorted({columns.index(name) for name in names}))
    if hasattr(reader, "num_record_batches"):  # a file with an index
        for place in range(reader.num_record_batches):
            yield reader.get_batch(place)
    else:  # a stream, as Hugging Face keeps its data sets
        yield from reader


def _refuse_bombs(file: BinaryIO, limits: Limits) -> None:
    """Refuse a file with a packed part that claims more than the limit, before the library allocates memory for it.

    A part that is packed with zstd is its unpacked length, 8 bytes, and a frame that starts with the mark. LZ4, the
    other way to pack, makes at most 255 bytes of one.
    """
    name = getattr(file, "name", None)
    opened = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if isinstance(name, str) else file.read()
    try:
        place = opened.find(ZSTD)
        while place >= 0:
            claimed = int.from_bytes(opened[max(0, place - 8) : place], "little", signed=True)
            if place % 8 == 0 and claimed > limits.max_bytes:  # parts are aligned; other bytes may look like a frame
                raise DataError(
                    f"{name or 'the Arrow file'} has a part that unpacks to {claimed:,} bytes; the limit is "
                    f"{limits.max_bytes:,}: raise --max-bytes if that is right"
                )
            place = opened.find(ZSTD, place + 1)
    finally:
        file.seek(0)
        if isinstance(opened, mmap.mmap):
            opened.close()


def _ipc(file: BinaryIO, fields: list[int] | None = None) -> Any:
    """A reader of an Arrow file or of an Arrow stream, by the first bytes."""
    import pyarrow as pa

    start = file.read(6)
    file.seek(0)
    if start.startswith(b"FEA1"):
        raise ValueError("this is version 1 of Feather, which is no longer read; write it again as .arrow")
    # From memory or a map of the file, a damaged length reaches beyond the end; from a file, memory would be allocated
    # for it.
    name = getattr(file, "name", None)
    source = pa.memory_map(name) if isinstance(name, str) else pa.BufferReader(file.read())
    options = pa.ipc.IpcReadOptions() if fields is None else pa.ipc.IpcReadOptions(included_fields=fields)
    opened = pa.ipc.open_file if start == b"ARROW1" else pa.ipc.open_stream
    return opened(source, options=options)
