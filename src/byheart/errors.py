"""The error tree: everything that byheart raises on purpose is a `ByheartError`.

A message states what failed, the values, and what to do. The command line prints it and exits with 2.
"""

from __future__ import annotations

from collections.abc import Iterable


class ByheartError(Exception):
    """Base of every error that byheart raises on purpose.

    >>> import byheart
    >>> try:
    ...     byheart.memorize(["ab", "ab"], [0, 1])
    ... except byheart.ByheartError as error:
    ...     print(type(error).__name__)
    ConflictError
    """


class DataError(ByheartError, ValueError):
    """The rows cannot be used: empty, ragged where they must not be, not finite, wrong shape."""


class TableError(DataError):
    """Several things that a table needs, each a line of the message; `flags` are those that would settle them."""

    def __init__(self, head: str, problems: Iterable[str], flags: Iterable[str] = ()) -> None:
        self.flags = tuple(flags)
        self.lines = (head, *problems, *([f"for example, add: {' '.join(self.flags)}"] if self.flags else []))
        super().__init__("\n  ".join(self.lines))


class ConflictError(DataError):
    """Two rows have the same input but different labels; `rows` names them."""

    def __init__(self, message: str, rows: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.rows = rows


class UnknownSymbolError(DataError):
    """A token that the memory has never seen."""


class OptionError(ByheartError, ValueError):
    """An option, a task or a construction's name that does not exist or does not fit."""


class NetworkError(ByheartError, ValueError):
    """Layers that do not fit together."""


class InexactError(ByheartError, TypeError):
    """A float, NaN or non-dyadic number offered where only exact numbers are taken."""


class NotRationalError(ByheartError, ArithmeticError):
    """A value that is not rational (softmax of unequal scores): use a certificate by enclosures."""


class BuildError(ByheartError, RuntimeError):
    """A construction could not be completed for this data."""


class TokenRoomError(BuildError):
    """Numbers that need more bits than the float type leaves a token."""


class AssumptionError(BuildError):
    """What a theorem assumes about the data does not hold: `assumption` states what, `rows` where it fails."""

    def __init__(self, assumption: str, message: str, rows: tuple[int, ...] = ()) -> None:
        named = f" (rows {', '.join(map(str, rows))})" if rows else ""
        super().__init__(f"{message}{named}")
        self.assumption = assumption
        self.rows = rows


class FileFormatError(ByheartError, ValueError):
    """A file that is damaged, foreign, or of a version that this byheart does not read."""


class BudgetError(ByheartError, RuntimeError):
    """A file whose evaluation would cost more work or memory than it is allowed."""


class ExportError(ByheartError, ValueError):
    """A memory that cannot be written exactly in the requested format and type."""


class MissingLibraryError(ByheartError, ImportError):
    """A library is not installed; the message has the `pip install` line."""


class MissingExtraError(MissingLibraryError):
    """An optional library is not installed; the message has the `pip install` line."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional library: pip install 'byheart[{extra}]'")
