"""The marker that `predict` returns where a memory has no answer.

>>> UNKNOWN, bool(UNKNOWN)
(unknown, False)
"""

from __future__ import annotations


class Unknown:
    """The type of `UNKNOWN`; there is one instance, also after pickling."""

    _instance: Unknown | None = None

    def __new__(cls) -> Unknown:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "unknown"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> tuple[type[Unknown], tuple[()]]:
        return Unknown, ()


UNKNOWN = Unknown()
