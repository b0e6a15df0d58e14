"""Documents from files: JSON Lines with a text column, plain text with one document on each line, or a JSON list.

>>> guess_column({"idx": 3, "text": "Once upon a time"})
'text'
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from byheart.errors import DataError

TEXT_COLUMNS = ("text", "story", "document", "doc", "content", "body", "sentence", "review", "premise")


def read_documents(
    path: str | Path, *, column: str | None = None, where: Mapping[str, str] | None = None, limit: int | None = None
) -> list[str]:
    """The texts of a file in order; `where` keeps rows with the given values, `limit` the first so many."""
    path = Path(path)
    if limit is not None and limit < 1:
        raise DataError(f"a limit of {limit} documents leaves none; give at least 1")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}); convert it, for example with iconv") from error
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        found = _texts(
            [_row(path, k, line) for k, line in enumerate(text.splitlines(), 1) if line.strip()], path, column, where
        )
    elif path.suffix.lower() == ".json":
        found = _texts(_list(path, text), path, column, where)
    else:
        if column or where:
            raise DataError(f"{path} is read as plain text, one document a line, and has no columns")
        found = [line for line in text.splitlines() if line.strip()]
    if not found:
        raise DataError(f"{path} has no documents{' with ' + str(dict(where)) if where else ''}")
    return found[:limit]


def _row(path: Path, line: int, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path}, line {line} is no JSON ({error.msg}); JSON Lines has one JSON value on each line"
        ) from None


def _list(path: Path, text: str) -> list[Any]:
    rows = _row(path, 1, text)
    if not isinstance(rows, list):
        raise DataError(
            f"{path} holds a JSON {type(rows).__name__}; give a list of texts or of objects with a text column"
        )
    return rows


def _texts(rows: list[Any], path: Path, column: str | None, where: Mapping[str, str] | None) -> list[str]:
    kept = [
        row
        for row in rows
        if not where or (isinstance(row, dict) and all(str(row.get(k)) == v for k, v in where.items()))
    ]
    if column is None and kept and isinstance(kept[0], dict):
        column = guess_column(kept[0])
    texts = []
    for row in kept:
        value = row.get(column) if isinstance(row, dict) else row
        if not isinstance(value, str):
            raise DataError(
                f"{path}: {str(row)[:80]} has no text{f' in {column!r}' if column else ''}; name a column with --column"
            )
        texts.append(value)
    return texts


def guess_column(row: Mapping[str, Any]) -> str:
    """The text column of a row: a well-known name, else the only column that holds text."""
    for name in TEXT_COLUMNS:
        if isinstance(row.get(name), str):
            return name
    strings = [name for name, value in row.items() if isinstance(value, str)]
    if len(strings) == 1:
        return strings[0]
    raise DataError(f"which column is the text? The row has {', '.join(row) or 'none'}; name it with --column")
