"""Hugging Face data sets: folders of `save_to_disk`, folders of data files, names from the hub, values in memory.

`hf:NAME` is a data set of the hub or of its cache, `hf:NAME:SPLIT` one split of it; NAME may be a folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from byheart.data.read.formats.json_lines import from_values
from byheart.data.read.records import Cells, Records, Source, reader
from byheart.data.read.sources import STDIN
from byheart.data.wording import one_line
from byheart.errors import DataError, MissingExtraError

MARK = "hf:"
_SAVED = ("dataset_info.json", "dataset_dict.json")
_FILES = (".csv", ".json", ".jsonl", ".parquet", ".arrow", ".txt")
_BATCH = 10_000  # rows that are unpacked at a time


def _claims(path: str) -> bool:
    try:
        return path.startswith(MARK) or (path != STDIN and Path(path).is_dir())
    except (OSError, ValueError):  # names that no file can have; opening them gives the reason
        return False


@reader(claims=_claims)
def hugging_face(source: Source) -> Records:
    """The records of a data set on disk or by its name."""
    path = source.path
    name, _, split = path.removeprefix(MARK).partition(":") if path.startswith(MARK) else (path, "", "")
    folder = Path(name)
    saved = any((folder / file).is_file() for file in _SAVED)
    if folder.is_dir() and not saved:
        _check_files(folder)
    datasets = _library()
    try:
        place = str(folder.resolve()) if folder.is_dir() else name
        found = datasets.load_from_disk(place) if saved else datasets.load_dataset(place)
    except Exception as error:  # the library raises many kinds of errors for a missing or damaged data set
        raise DataError(f"the data set {name!r} cannot be loaded: {one_line(error)}") from None
    return _one_split(found, path, split)


def _check_files(folder: Path) -> None:
    """A folder that was not saved as a data set must hold data files, and nothing that could be run."""
    if any(folder.glob("*.py")):
        raise DataError(f"{str(folder)!r} holds a script, and scripts of data sets are never run; give a file in it")
    if not any(found.suffix in _FILES for found in folder.glob("*")):
        raise DataError(f"{str(folder)!r} is a folder without a Hugging Face data set; give a file in it")


def from_dataset(found: Any) -> Records:
    """The records of a data set in memory, also of one that is streamed."""
    return _one_split(found, "the data set", "")


def _library() -> Any:
    try:
        import datasets
    except ImportError:
        raise MissingExtraError("reading Hugging Face data sets", "data") from None
    return datasets


def _one_split(found: Any, origin: str, split: str) -> Records:
    """The requested split, else `train`, else the first; a remark names the one that was taken."""
    if not isinstance(found, dict):  # a data set without splits
        if split:
            raise DataError(f"{origin}: this data set has no splits; omit {':' + split!r}")
        return _rows(found, origin, "")
    splits = list(found)
    if not splits or (split and split not in splits):
        raise DataError(f"{origin} has no split {split!r}; it has {', '.join(splits) or 'none'}")
    chosen = split or ("train" if "train" in splits else splits[0])
    others = f" (there are {', '.join(splits)})" if len(splits) > 1 else ""
    return _rows(found[chosen], origin, f"split {chosen!r}{others}" if others else "")


def _rows(found: Any, origin: str, remark: str) -> Records:
    if not hasattr(found, "num_rows"):  # streamed: rows come one by one, the first ones name the columns
        return from_values(origin, "row", enumerate(found), remark)

    def select(names: tuple[str, ...]) -> Cells:
        for start in range(0, found.num_rows, _BATCH):
            part = found[start : start + _BATCH]
            yield from enumerate(zip(*(part[name] for name in names), strict=True), start=start)

    return Records(tuple(found.column_names), select, origin, remark=remark)
