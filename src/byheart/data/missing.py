"""Missing values: None, NaN, pandas' NA and an empty CSV cell are one thing, and nothing happens to them silently.

error: refuse them, naming every row. drop: skip the rows, counted. label: a missing label is a separate class,
and a missing token a separate symbol; both are written None.

    >>> settled = settle_missing([["a"], ["b"], []], [1, None, 2], "drop")
    >>> settled.sequences, settled.labels, settled.note
    ([['a']], [1], 'missing=drop: 2 rows were skipped (row 1, row 2)')
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from byheart.data.values import is_missing
from byheart.errors import DataError, OptionError

POLICIES = ("error", "drop", "label")
_NAMED = 20  # rows that a message names
_QUICK = {int, str, bool, bytes}  # types without a missing value


@dataclass(frozen=True, eq=False)
class Present:
    """Rows without missing values, or with None in their place, and a count of what was done."""

    sequences: Sequence[Any]
    labels: Sequence[Any]
    kept: tuple[int, ...] | None = None  # which of the given rows these are; None: all
    policy: str = "error"
    concerned: int = 0
    named: str = ""  # the first of them, for people

    @property
    def left_out(self) -> int:
        return self.concerned if self.policy == "drop" else 0

    @property
    def note(self) -> str:
        """One sentence, or nothing where nothing was missing."""
        if not self.concerned:
            return ""
        rows = "1 row" if self.concerned == 1 else f"{self.concerned:,} rows"
        if self.policy == "drop":
            return f"missing=drop: {rows} {'was' if self.concerned == 1 else 'were'} skipped ({self.named})"
        return f"missing=label: {rows} with None in place of what is missing ({self.named})"

    def as_dict(self) -> dict[str, Any]:
        return {"policy": self.policy, "rows": self.concerned, "rows_left_out": self.left_out, "named": self.named}


def settle_missing(
    sequences: Any,
    labels: Any,
    policy: str = "error",
    place: Callable[[int], str] = "row {}".format,
    origin: str = "",
    *,
    per_token: bool = False,
) -> Present:
    """Apply the policy to rows of tokens and their labels; a row without a token counts as missing too.

    With `per_token` a row's labels are a list or tuple, one for each token; otherwise a tuple is one compound label,
    which is taken as it is.
    """
    if policy not in POLICIES:
        raise OptionError(f"missing={policy!r} is not one of {', '.join(POLICIES)}")
    sequences, labels = _sized(sequences), _sized(labels)
    no_token = _concerned(sequences, rows=True)
    no_label = _concerned(labels, rows=False)
    if not per_token:
        no_label = [number for number in no_label if not isinstance(labels[number], tuple)]
    concerned = sorted({*no_token, *no_label})
    if not concerned:
        return Present(sequences, labels, policy=policy)
    named, start = _names(concerned, place), f"{origin}: " if origin else ""
    if policy == "error":
        parts = [f"the {what} is missing in {_names(rows, place)}" for what, rows in _both(no_token, no_label)]
        raise DataError(
            f"{start}{'; '.join(parts)}: fill them in, or choose --missing drop to skip these rows, or "
            "--missing label to treat a missing value as a separate value"
        )
    if policy == "drop":
        gone = set(concerned)
        kept = tuple(number for number in range(len(sequences)) if number not in gone)
        if not kept:
            raise DataError(f"{start}missing=drop leaves no row; every row lacks a value")
        return Present([sequences[i] for i in kept], [labels[i] for i in kept], kept, policy, len(concerned), named)
    filled = list(sequences)
    for number in no_token:
        filled[number] = _filled(filled[number])
    answers = list(labels)
    for number in no_label:
        given = answers[number]
        if per_token and not isinstance(given, list | tuple | np.ndarray):
            raise DataError(f"{start}{place(number)} has no labels at all: give one, or None, for each token")
        answers[number] = _filled(given) if isinstance(given, list | tuple) else None
    return Present(filled, answers, None, policy, len(concerned), named)


def _sized(values: Any) -> Any:
    """What can be gone through only once, as a list; what cannot be gone through is refused where rows are read."""
    return list(values) if not hasattr(values, "__len__") and hasattr(values, "__iter__") else values


def _both(no_token: list[int], no_label: list[int]) -> list[tuple[str, list[int]]]:
    return [(what, rows) for what, rows in (("sequence", no_token), ("label", no_label)) if rows]


def _concerned(values: Sequence[Any], rows: bool) -> list[int]:
    """The numbers of the rows in which something is missing."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iubUSf":
        if values.dtype.kind != "f" or not values.size:
            return []
        return list(np.flatnonzero(np.isnan(values).reshape(len(values), -1).any(axis=1)).tolist())
    if not hasattr(values, "__len__") or isinstance(values, str | bytes):
        return []
    if not rows and set(map(type, values)) <= _QUICK:
        return []
    return [number for number, value in enumerate(values) if _lacks(value, rows)]


def _lacks(value: Any, row: bool) -> bool:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        if row and not value:
            return True
        return not set(map(type, value)) <= _QUICK and any(_lacks(part, False) for part in value)
    if isinstance(value, str | bytes):
        return row and not value
    return is_missing(value)


def _filled(value: Any) -> Any:
    """A row with None for each missing token; an empty row becomes one missing token."""
    if not isinstance(value, list | tuple | np.ndarray):
        return [None]
    parts = [_filled(part) if _nested(part) else None if _lacks(part, False) else part for part in value]
    return tuple(parts) if isinstance(value, tuple) else parts or [None]


def _nested(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value)


def _names(numbers: list[int], place: Callable[[int], str]) -> str:
    shown = ", ".join(map(place, numbers[:_NAMED]))
    return shown if len(numbers) <= _NAMED else f"{shown}, … ({len(numbers):,} in all)"
