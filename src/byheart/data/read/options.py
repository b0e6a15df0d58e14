"""How a source is read, as one value: the command line builds it from flags, Python from keywords.

>>> ReadOptions.of(sequence_column="name", label_type="int").label_type
'int'

A `Selection` is the part of a file that was memorized. A memory stores it: proving it again takes the same part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from byheart.data.dataset.conflicts import POLICIES
from byheart.data.missing import POLICIES as MISSING
from byheart.data.read.sources import Limits, TextForm
from byheart.data.task import Task, as_task
from byheart.data.tokens.tokenizer import Tokenizer
from byheart.data.values import AUTO, TYPES, damaged, load_int
from byheart.errors import OptionError

# Policies for lines with more or fewer cells than there are columns.
UNEVEN = ("error", "drop")


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
    header: bool | None = None  # of a CSV file; None: by the names of the columns, as made-up ones are recognised
    encoding: str | None = None

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
        columns, label, rows, conflicts, kind, missing, header, encoding = (stored[name] for name in names)
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
        if not isinstance(header, bool | None):
            raise damaged("selection.header", header, "true, false or null")
        if not isinstance(encoding, str | None):
            raise damaged("selection.encoding", encoding, "a name or null")
        return Selection(tuple(columns), label, limit, conflicts, kind, missing, header, encoding)


ALL = "*"  # as a sequence column: every column but the label's


@dataclass(frozen=True)
class ReadOptions:
    """How the user wants a source read; the defaults guess what can be guessed without changing a value.

    sequence_columns: none: guessed; several: their cells are the tokens; `*`: all but the label's.
    tokens: how a text is tokenized, or the tokenizer itself. token_type, label_type: `auto` leaves every value as the
    source has it (a text format has texts), the others convert it. missing: what to do about rows with a missing value.
    uneven: what to do about lines of a CSV file with more or fewer cells than there are columns: error or drop.
    header: None means that a CSV file has one. encoding: of a text file, None for UTF-8.
    drop: columns to skip. keep: columns that number the rows and are inputs nevertheless.
    like: prefers the columns of an earlier reading where they exist.
    """

    sequence_columns: tuple[str, ...] = ()
    label_column: str | None = None
    tokens: str | Tokenizer = "auto"
    token_type: str = AUTO
    label_type: str = AUTO
    missing: str = "error"
    uneven: str = "error"
    task: Task = Task.NEXT_TOKEN
    max_length: int | None = None
    pad: str | int | None = None
    max_rows: int | None = None
    max_bytes: int = Limits.max_bytes
    header: bool | None = None
    encoding: str | None = None
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value, known in (
            ("token_type", self.token_type, TYPES),
            ("label_type", self.label_type, TYPES),
            ("missing", self.missing, MISSING),
            ("uneven", self.uneven, UNEVEN),
        ):
            if value not in known:
                raise OptionError(f"{name}={value!r} is not one of {', '.join(known)}")
        if self.pad is not None and self.task.labels_per_token:
            raise OptionError(
                f"pad={self.pad!r} does not fit {self.task}: the filled places would need labels too; omit it"
            )
        Limits(self.max_rows, self.max_bytes)
        TextForm(encoding=self.encoding)

    @staticmethod
    def of(
        *,
        sequence_column: str | Sequence[str] | None = None,
        label: str | None = None,
        task: Task | str = Task.NEXT_TOKEN,
        **options: Any,
    ) -> ReadOptions:
        """The options from Python's keywords. `label="kind"`: this column is the label, all others are the input."""
        known = {field.name for field in fields(ReadOptions)}
        unknown = sorted(set(options) - known)
        if unknown:
            raise OptionError(
                f"unknown option {unknown[0]!r}; known: sequence_column, label, {', '.join(sorted(known))}"
            )
        if label is not None:
            if options.get("label_column") is not None:
                raise OptionError("label and label_column both name the column of the labels; give one of them")
            options["label_column"] = label
            sequence_column = sequence_column or options.pop("sequence_columns", None) or ALL
        if sequence_column:
            options["sequence_columns"] = (sequence_column,) if isinstance(sequence_column, str) else sequence_column
        options["sequence_columns"] = tuple(options.get("sequence_columns", ()))
        return ReadOptions(task=as_task(task), **options)

    @property
    def limits(self) -> Limits:
        return Limits(self.max_rows, self.max_bytes)
