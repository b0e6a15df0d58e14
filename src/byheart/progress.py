"""Progress of long work, told to whoever listens.

Builders and checkers report stages; the command line draws them, everybody else hears nothing. A stage is
interrupted by raising from `advance` (Ctrl-C arrives there as KeyboardInterrupt), so nothing is left half-made.

    >>> with SILENT.stage("solving groups", total=3) as stage:
    ...     stage.advance(3)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Stage(Protocol):
    """One running stage; `advance` counts towards its total."""

    def advance(self, count: int = 1) -> None: ...


class Progress(Protocol):
    """Something that can show stages: `with progress.stage("certifying rows", total=N) as stage:`."""

    def stage(self, name: str, total: int | None = None) -> StageContext: ...

    def say(self, message: str) -> None: ...


class StageContext(Protocol):
    def __enter__(self) -> Stage: ...

    def __exit__(self, *exc: object) -> bool | None: ...


class _SilentStage:
    def advance(self, count: int = 1) -> None:
        pass


class _Silent:
    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[_SilentStage]:
        yield _SilentStage()

    def say(self, message: str) -> None:
        pass


SILENT: Progress = _Silent()
