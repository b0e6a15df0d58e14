"""NumPy arrays and frames in memory: tables that come column by column."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from byheart.data.read.records import Cells, Records
from byheart.data.read.sources import Limits, open_seekable
from byheart.data.wording import one_line
from byheart.errors import DataError

NUMPY_ENDINGS = (".npy", ".npz")
FRAME = "the frame"


def bounded(path: str, size: int, limits: Limits) -> None:
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
            bounded(path, sum(member.file_size for member in archive.infolist()), limits)
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
    bounded(path, math.prod(shape) * max(1, kind.itemsize), limits)


def from_columns(columns: Mapping[str, Sequence[Any]], origin: str) -> Records:
    """Records from named lists of one length."""
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1 or lengths == {0}:
        raise DataError(f"{origin} has columns of lengths {sorted(lengths)}; it needs rows, as many in every column")

    def select(names: tuple[str, ...]) -> Cells:
        yield from enumerate(zip(*(columns[name] for name in names), strict=True))

    return Records(tuple(columns), select, origin)


def from_frame(frame: Any) -> Records | None:
    """Records of a pandas, polars or Arrow table, a Hugging Face data set, or a dictionary of columns; else None."""
    module = type(frame).__module__.split(".")[0]
    if module == "polars" and hasattr(frame, "collect"):  # a lazy frame
        frame = frame.collect()
    if module == "pandas" and hasattr(frame, "columns"):
        names = distinct_names([str(name) for name in frame.columns], FRAME)
        return from_columns({name: frame.iloc[:, k].tolist() for k, name in enumerate(names)}, FRAME)
    if module == "polars" and hasattr(frame, "get_columns"):
        return from_columns({series.name: series.to_list() for series in frame.get_columns()}, FRAME)
    if module == "pyarrow" and hasattr(frame, "column_names"):
        names = distinct_names(frame.column_names, "the table")
        return from_columns({name: frame.column(k).to_pylist() for k, name in enumerate(names)}, "the table")
    if module == "datasets":
        from byheart.data.read.hugging_face import from_dataset

        return from_dataset(frame)
    if isinstance(frame, Mapping):
        return from_columns({str(name): list(values) for name, values in frame.items()}, "the dictionary")
    return None


def distinct_names(names: Sequence[str], origin: str) -> list[str]:
    """The names, or a DataError that names the one that occurs twice."""
    twice = next((name for name in names if list(names).count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{origin} has two columns named {twice!r}; rename one")
    return list(names)
