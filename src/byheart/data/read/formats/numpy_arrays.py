"""NumPy files: arrays by name (.npz), or rows with the label in the last column (.npy). Nothing is unpickled."""

from __future__ import annotations

import math
import zipfile
from typing import Any, BinaryIO

from byheart.data.read.records import Records, Source, from_columns, reader
from byheart.data.read.sources import Limits, open_seekable
from byheart.data.values import listed
from byheart.data.wording import one_line
from byheart.errors import DataError


def bounded(path: str, size: int, limits: Limits) -> None:
    if size > limits.max_bytes:
        raise DataError(f"{path} unpacks to {size:,} bytes; the limit is {limits.max_bytes:,}: raise --max-bytes")


@reader(".npy", ".npz")
def numpy_arrays(source: Source) -> Records:
    path, ending, limits = source.path, source.ending, source.limits
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
        raise DataError(f"{path} is not a plain {ending} file: {one_line(error)}") from None
    if array.ndim != 2 or array.shape[1] < 2:
        raise DataError(f"{path} has shape {array.shape}; expected rows of tokens with the label in the last column")
    return from_columns({"sequence": list(array[:, :-1]), "label": listed(array[:, -1])}, path)


def _rows(array: Any, name: str, path: str) -> list[Any]:
    if array.ndim == 0:
        raise DataError(f"{path}: the array {name!r} is a single value; it needs one entry per row")
    return list(array)


def _check_numpy(path: str, file: BinaryIO, ending: str, limits: Limits) -> None:
    """Refuse arrays that claim more than the limit, before any memory is reserved for them."""
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
