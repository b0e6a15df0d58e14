"""Tables that come column by column: Parquet, Arrow, NumPy, Hugging Face data sets, pandas and polars frames."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from byheart.data.records import Cells, Records
from byheart.data.sources import Limits, open_seekable
from byheart.data.wording import one_line
from byheart.errors import DataError, MissingExtraError

HUGGING_FACE = "hf:"
ARROW_ENDINGS = (".parquet", ".arrow", ".feather")
NUMPY_ENDINGS = (".npy", ".npz")
_BATCH = 10_000  # rows that are unpacked at a time


def arrow(path: str, ending: str, limits: Limits) -> Records:
    try:
        import pyarrow as pa
        from pyarrow import feather, parquet
    except ImportError:
        raise MissingExtraError(f"reading {ending} files", "data") from None
    try:
        with open_seekable(path, limits) as file:
            if ending == ".parquet":
                opened = parquet.ParquetFile(file)
                groups = [opened.metadata.row_group(k) for k in range(opened.metadata.num_row_groups)]
                _bounded(path, sum(group.total_byte_size for group in groups), limits)
                table = opened.read()
            else:
                table = feather.read_table(file)
            table.validate(full=True)  # a damaged file may name places that are not there
    except DataError:
        raise
    except (pa.ArrowException, ValueError, OSError, OverflowError) as error:
        raise DataError(f"{path} is no {ending} file: {one_line(error)}") from None
    columns = list(map(str, table.column_names))
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path} has two columns named {twice!r}; rename one")

    def select(names: tuple[str, ...]) -> Cells:
        number = 0
        for batch in table.select(list(names)).to_batches(max_chunksize=_BATCH):
            for cells in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield number, cells
                number += 1

    return Records(tuple(columns), select, path)


def _bounded(path: str, size: int, limits: Limits) -> None:
    if size > limits.max_bytes:
        raise DataError(f"{path} unpacks to {size:,} bytes; the limit is {limits.max_bytes:,}: raise --max-bytes")


def numpy_arrays(path: str, ending: str, limits: Limits) -> Records:
    """Arrays by name from .npz; rows with the label in the last column from .npy."""
    import numpy as np

    try:
        with open_seekable(path, limits) as file:
            _check_numpy(path, file, ending, limits)
            loaded = np.load(file, allow_pickle=False)
            if ending == ".npz":
                return from_columns({name: _rows(loaded[name], name, path) for name in loaded.files}, path)
            array = np.asarray(loaded)
    except DataError:
        raise
    except Exception as error:  # NumPy, zipfile and the parser of headers raise many kinds for damaged bytes
        raise DataError(f"{path} is no plain {ending} file: {one_line(error)}") from None
    if array.ndim != 2 or array.shape[1] < 2:
        raise DataError(f"{path} has shape {array.shape}; expected rows of tokens with the label in the last column")
    return from_columns({"sequence": list(array[:, :-1]), "label": array[:, -1].tolist()}, path)


def _rows(array: Any, name: str, path: str) -> list[Any]:
    if array.ndim == 0:
        raise DataError(f"{path}: the array {name!r} is a single value; it needs one entry per row")
    return list(array)


def _check_numpy(path: str, file: BinaryIO, ending: str, limits: Limits) -> None:
    """Refuses arrays that claim more than the limit, before anything is made room for."""
    from numpy.lib import format as npy

    if ending == ".npz":
        with zipfile.ZipFile(file) as archive:
            _bounded(path, sum(member.file_size for member in archive.infolist()), limits)
            for member in archive.infolist():
                with archive.open(member) as opened:
                    _check_header(path, opened, npy, limits)
    else:
        _check_header(path, file, npy, limits)
    file.seek(0)


def _check_header(path: str, file: Any, npy: Any, limits: Limits) -> None:
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, kind = read(file)
    _bounded(path, math.prod(shape) * max(1, kind.itemsize), limits)


def hugging_face(path: str) -> Records:
    """A folder that `save_to_disk` made, or `hf:NAME` (`hf:NAME:SPLIT`) from the hub or its cache."""
    try:
        import datasets
    except ImportError:
        raise MissingExtraError("reading Hugging Face data sets", "data") from None
    by_name = path.startswith(HUGGING_FACE)
    name, _, split = path.removeprefix(HUGGING_FACE).partition(":") if by_name else (path, "", "")
    if not by_name and not any((Path(path) / file).is_file() for file in ("dataset_info.json", "dataset_dict.json")):
        raise DataError(f"{path!r} is a folder, and no Hugging Face data set; give a file in it")
    try:
        found = datasets.load_dataset(name, split=split or "train") if by_name else datasets.load_from_disk(name)
    except Exception as error:  # the library raises many kinds of errors for a missing or damaged data set
        raise DataError(f"the data set {name!r} cannot be loaded: {one_line(error)}") from None
    if isinstance(found, datasets.DatasetDict):
        found = found["train" if "train" in found else next(iter(found))]

    def select(names: tuple[str, ...]) -> Cells:
        for start in range(0, found.num_rows, _BATCH):
            part = found[start : start + _BATCH]
            yield from enumerate(zip(*(part[name] for name in names), strict=True), start=start)

    return Records(tuple(found.column_names), select, path)


def from_columns(columns: Mapping[str, Sequence[Any]], origin: str) -> Records:
    """Records from named lists of one length."""
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1 or lengths == {0}:
        raise DataError(f"{origin} has columns of lengths {sorted(lengths)}; it needs rows, as many in every column")

    def select(names: tuple[str, ...]) -> Cells:
        yield from enumerate(zip(*(columns[name] for name in names), strict=True))

    return Records(tuple(columns), select, origin)


def from_frame(frame: Any) -> Records | None:
    """Records of a pandas or polars frame, or of a Hugging Face data set in memory; None for anything else."""
    module = type(frame).__module__.split(".")[0]
    if module == "pandas" and hasattr(frame, "columns"):
        return from_columns({str(name): frame[name].tolist() for name in frame.columns}, "the frame")
    if module == "polars" and hasattr(frame, "get_columns"):
        return from_columns({series.name: series.to_list() for series in frame.get_columns()}, "the frame")
    if module == "datasets" and hasattr(frame, "column_names"):
        with suppress(TypeError):  # a DatasetDict has several tables
            return from_columns({name: list(frame[name]) for name in frame.column_names}, "the data set")
    return None
