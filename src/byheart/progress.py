"""Progress of long work, told to whoever listens.

Builders and checkers report stages; the command line draws them, everybody else hears nothing. A stage is
interrupted by raising from `advance` (Ctrl-C arrives there as KeyboardInterrupt), so nothing is left half-made.

    >>> with SILENT.stage("solving groups", total=3) as stage:
    ...     stage.advance(3)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

PATIENCE = 2.0  # seconds before a stage is worth a bar


class Stage(Protocol):
    """One running stage; `advance` counts towards its total."""

    def advance(self, count: int = 1) -> None: ...


class Progress(Protocol):
    """Something that can show stages: `with progress.stage("certifying rows", total=N) as stage:`."""

    def stage(self, name: str, total: int | None = None) -> AbstractContextManager[Stage]: ...

    def say(self, message: str) -> None: ...


class _SilentStage:
    def advance(self, count: int = 1) -> None:
        pass


class _Silent:
    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:
        yield _SilentStage()

    def say(self, message: str) -> None:
        pass


SILENT: Progress = _Silent()


def console_progress() -> Progress:
    """Bars on standard error when it is a terminal, silence otherwise."""
    return ConsoleProgress() if sys.stderr.isatty() else SILENT


class ConsoleProgress:
    """Bars with stage, rate and time left for stages that take more than two seconds."""

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:
        bar = _Bar(name, total)
        try:
            yield bar
        finally:
            bar.stop()

    def say(self, message: str) -> None:
        print(message, file=sys.stderr)


class LineProgress:
    """One line on standard error per stage, when it is done: for logs and for people who want to know."""

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:
        started = time.monotonic()
        yield _SilentStage()
        count = "" if total is None else f" ({total:,})"
        self.say(f"{name}{count}: {time.monotonic() - started:.1f} s")

    def say(self, message: str) -> None:
        print(message, file=sys.stderr)


class _Bar:
    def __init__(self, name: str, total: int | None) -> None:
        self.name, self.total, self.done = name, total, 0
        self.started = time.monotonic()
        self.display: RichProgress | None = None

    def advance(self, count: int = 1) -> None:
        self.done += count
        if self.display is None and time.monotonic() - self.started > PATIENCE:
            self.display = _rich_display()
            self.display.add_task(self.name, total=self.total)
            self.display.start()
        if self.display is not None:
            self.display.update(self.display.task_ids[0], completed=self.done)

    def stop(self) -> None:
        if self.display is not None:
            self.display.stop()


def _rich_display() -> RichProgress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress
    from rich.text import Text

    class _Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.0f}/s" if task.speed else "")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
    )
    return RichProgress(*columns, console=Console(stderr=True), transient=True)
