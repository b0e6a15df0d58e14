"""Tables in memory: frames of pandas, polars, Arrow and others (by narwhals), Hugging Face data sets, dictionaries
and rows.

>>> from_frame({"name": ["cat"], "colour": ["red"]}).columns
('name', 'colour')
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from byheart.data.read.formats.hugging_face import from_dataset
from byheart.data.read.records import Records, distinct_names, from_columns
from byheart.data.values import listed
from byheart.data.wording import one_line
from byheart.errors import DataError

FRAME = "the frame"
_COLUMNS = ("columns", "column_names")  # of the type: to ask a lazy frame itself for its columns is work


def from_frame(source: Any) -> Records | None:
    """The records of a table in memory; None for anything else.

    Values are what the frame has: numbers, texts, truth values, lists; its null values and NaN are missing.
    """
    if type(source).__module__.split(".")[0] == "datasets":
        return from_dataset(source)
    if isinstance(source, Mapping):
        return from_columns({str(name): list(values) for name, values in source.items()}, "the dictionary")
    if isinstance(source, list) and source and all(isinstance(row, Mapping) for row in source):
        names = list(dict.fromkeys(str(name) for row in source for name in row))
        rows = [{str(name): cell for name, cell in row.items()} for row in source]
        return from_columns({name: [row.get(name) for row in rows] for name in names}, "the list of rows")
    if isinstance(source, np.ndarray) and source.dtype.names is not None and source.ndim == 1:
        return from_columns({name: listed(source[name]) for name in source.dtype.names}, "the array")
    if isinstance(source, str) or not any(hasattr(type(source), name) for name in _COLUMNS):
        return None
    import narwhals.stable.v1 as nw  # here: most sources are files

    _check_names(source)
    try:
        frame = nw.from_native(source)
    except TypeError:
        return None
    except Exception as error:  # a library's error about a frame that it cannot show
        raise DataError(f"{FRAME} cannot be read: {one_line(error)}") from None
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    return from_columns({str(series.name): series.to_list() for series in frame.iter_columns()}, FRAME)


def _check_names(source: Any) -> None:
    if hasattr(source, "collect"):  # the columns of a lazy frame always have distinct names
        return
    names = getattr(source, "column_names", None)
    distinct_names([str(name) for name in (source.columns if names is None else names)], FRAME)
