"""Which part of a file was memorized, as a value that a memory carries: proving it again takes the same part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from byheart.data.missing import POLICIES as MISSING
from byheart.data.values import AUTO, TYPES, damaged, load_int
from byheart.errors import OptionError

POLICIES = ("error", "first", "majority", "drop")


@dataclass(frozen=True)
class Selection:
    """Columns (none: the rows did not come from a file), the first rows only, and what was done about conflicts.

    >>> Selection(("name",), "colour").columns
    {'sequence': 'name', 'label': 'colour'}
    """

    sequence_columns: tuple[str, ...] = ()
    label_column: str | None = None
    max_rows: int | None = None
    conflicts: str = "error"
    label_type: str = AUTO  # what the user wanted the labels to be
    missing: str = "error"  # what was done about missing values

    def __post_init__(self) -> None:
        if self.conflicts not in POLICIES:
            raise OptionError(f"conflicts={self.conflicts!r} is not one of {', '.join(POLICIES)}")

    @property
    def columns(self) -> dict[str, str]:
        found = {"sequence": ", ".join(self.sequence_columns)} if self.sequence_columns else {}
        return found | ({"label": self.label_column} if self.label_column is not None else {})

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**asdict(self), "sequence_columns": list(self.sequence_columns)}

    @staticmethod
    def from_dict(stored: object) -> Selection:
        """The selection of `as_dict`; a FileFormatError names the field that is damaged."""
        names = [part.name for part in fields(Selection)]
        if not isinstance(stored, Mapping) or set(stored) != set(names):
            raise damaged("selection", stored, f"an object with {', '.join(names)}")
        columns, label, rows, conflicts, kind, missing = (stored[name] for name in names)
        if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
            raise damaged("selection.sequence_columns", columns, "a list of names")
        if not isinstance(label, str | None):
            raise damaged("selection.label_column", label, "a name or null")
        if not isinstance(conflicts, str) or conflicts not in POLICIES:
            raise damaged("selection.conflicts", conflicts, f"one of {', '.join(POLICIES)}")
        limit = None if rows is None else load_int(rows, "selection.max_rows", 1, 1 << 53)
        if not isinstance(kind, str) or kind not in TYPES:
            raise damaged("selection.label_type", kind, f"one of {', '.join(TYPES)}")
        if not isinstance(missing, str) or missing not in MISSING:
            raise damaged("selection.missing", missing, f"one of {', '.join(MISSING)}")
        return Selection(tuple(columns), label, limit, conflicts, kind, missing)
