"""Progress of long work, reported to whoever listens.

Builders and checkers report stages; the command line draws them, everybody else hears nothing. A stage is
interrupted by raising from `advance` (Ctrl-C arrives there as KeyboardInterrupt), so nothing is left half-made.

    >>> with SILENT.stage("solving groups", total=3) as stage:
    ...     stage.advance(3)
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

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
    """Bars with stage, rate and time left for stages that take more than two seconds, however seldom they advance."""

    def __init__(self) -> None:
        self.screen = _Screen()

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:
        bar = _Bar(self.screen, name, total)
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


class _Screen:
    """The display that stages inside stages share; it is there as long as one of them has a bar."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.display: RichProgress | None = None
        self.bars = 0

    def add(self, name: str, total: int | None, done: int, started: float) -> TaskID:
        with self.lock:
            if self.display is None:
                self.display = _rich_display()
                self.display.start()
            self.bars += 1
            task = self.display.add_task(name, total=total, completed=done, visible=False)
            self.display.tasks[-1].start_time = started  # the rate counts from the stage's beginning
            self.display.update(task, visible=True, refresh=True)
            return task

    def update(self, task: TaskID, done: int) -> None:
        with self.lock:
            if self.display is not None:
                self.display.update(task, completed=done)

    def remove(self, task: TaskID) -> None:
        with self.lock:
            self.bars -= 1
            if self.display is not None and self.bars == 0:
                self.display.stop()
                self.display = None
            elif self.display is not None:
                self.display.remove_task(task)


class _Bar:
    """Shown by `advance`, or by a clock where a stage is slow to advance."""

    def __init__(self, screen: _Screen, name: str, total: int | None) -> None:
        self.screen, self.name, self.total, self.done = screen, name, total, 0
        self.started = time.monotonic()
        self.task: TaskID | None = None
        self.over = False
        self.clock = threading.Timer(PATIENCE, self.show)
        self.clock.daemon = True
        self.clock.start()

    def show(self) -> None:
        with self.screen.lock:
            if self.task is None and not self.over:
                self.task = self.screen.add(self.name, self.total, self.done, self.started)

    def advance(self, count: int = 1) -> None:
        self.done += count
        if self.task is None and time.monotonic() - self.started > PATIENCE:
            self.show()
        if self.task is not None:
            self.screen.update(self.task, self.done)

    def stop(self) -> None:
        self.clock.cancel()
        with self.screen.lock:
            self.over = True
            if self.task is not None:
                self.screen.remove(self.task)
                self.task = None


def _rich_display() -> RichProgress:
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
    from rich.progress import Progress as RichProgress
    from rich.text import Text

    class _Words(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(progress_words(int(task.completed), task.total, task.elapsed or 0.0))

    columns = (TextColumn("{task.description}"), BarColumn(), _Words())
    return RichProgress(*columns, console=Console(stderr=True), transient=True)


def progress_words(done: int, total: float | None, seconds: float) -> str:
    """How far a stage is, how fast, and how long it still takes; how long it has taken where nobody can know that.

    >>> progress_words(300, 1200, 3.0), progress_words(5000, None, 2.0), progress_words(0, None, 4.0)
    ('300/1,200, 100/s, 0:09 left', '5,000, 2,500/s, 0:02 so far', '0:04 so far')
    """
    rate = done / seconds if seconds > 0 else 0.0
    parts = [f"{done:,}/{total:,.0f}"] if total is not None else [f"{done:,}"] if done else []
    parts += [f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"] if done else []
    if total is not None and done:
        parts.append(f"{_clock((total - done) / rate if rate else 0.0)} left")
    else:
        parts.append(f"{_clock(seconds)} so far")
    return ", ".join(parts)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
