"""Export targets: a name and a function that writes a memory for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from byheart.errors import OptionError
from byheart.export.request import ExportRequest

Writer = Callable[[ExportRequest, Path], dict[str, Any]]  # -> the file's name and its metadata

_TARGETS: dict[str, Writer] = {}


def target(name: str) -> Callable[[Writer], Writer]:
    """Register the decorated function as the writer of `--to NAME`.

    Args:
        name: The target's name.

    Returns:
        The decorator. The function takes a request and a path, and returns the file's name and metadata; it imports
        heavy libraries itself.
    """

    def add(writer: Writer) -> Writer:
        _TARGETS[name] = writer
        return writer

    return add


def targets() -> dict[str, Writer]:
    """Name -> writer of every registered target."""
    return dict(sorted(_TARGETS.items()))


def writer_of(name: str) -> Writer:
    """Find the writer of a target.

    Args:
        name: The target's name.

    Raises:
        OptionError: The name is unknown; the message lists the known ones.
    """
    if name not in _TARGETS:
        remedy = "; GGUF holds texts: memorize them with construction recital" if name == "gguf" else ""
        raise OptionError(
            f"unknown export target {name!r}; targets are {', '.join(sorted((*_TARGETS, 'huggingface')))}{remedy}"
        )
    return _TARGETS[name]
