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
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from importlib.util import find_spec
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
    """Bars in a notebook, and on standard error where that is a terminal; silence otherwise."""
    if "IPython" in sys.modules:
        from rich.console import Console

        if Console().is_jupyter:  # there rich draws with ipywidgets, and warns at every turn where they are missing
            return ConsoleProgress() if find_spec("ipywidgets") else SILENT
    return ConsoleProgress() if sys.stderr.isatty() else SILENT


class ConsoleProgress:
    """rich's bars, with rate and time left, for stages that take more than two seconds, however seldom they advance.

    rich redraws ten times a second and then looks how far the stages are; `advance` only counts, so it may be called
    for every row. Stages inside stages share one display. It opens when the first of them has lasted long enough.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.stages: list[_Counter] = []

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:
        with self.lock:
            if not self.stages:
                self.display = _display()
                self.clock = threading.Timer(PATIENCE, self._open, [self.display])
                self.clock.daemon = True
                self.clock.start()
            counter = _Counter()
            task = self.display.add_task(name, total=total, visible=False, counter=counter)
            self.stages.append(counter)
        try:
            yield counter
        finally:
            with self.lock:
                self.stages.remove(counter)
                if self.stages:
                    self.display.remove_task(task)
                else:
                    self.clock.cancel()
                    if self.display.live.is_started:
                        self.display.stop()

    def _open(self, display: RichProgress) -> None:
        with self.lock:
            if self.stages and display is self.display:
                display.start()

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


class _Counter:
    """How far a stage is."""

    def __init__(self) -> None:
        self.done = 0

    def advance(self, count: int = 1) -> None:
        self.done += count


def _display() -> RichProgress:
    from rich.console import Console, RenderableType
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn
    from rich.progress import Progress as RichProgress
    from rich.text import Text

    class Pace(ProgressColumn):
        """The rate, and how long it still takes; how long it has taken where nobody can know that."""

        def render(self, task: Task) -> Text:
            speed, left = task.finished_speed or task.speed, task.time_remaining
            rate = f"{speed:,.{0 if speed >= 10 else 1}f}/s, " if speed else ""
            seconds, words = (task.elapsed or 0.0, "so far") if left is None else (left, "left")
            return Text(f"{rate}{timedelta(seconds=round(seconds))} {words}")

    class Bars(RichProgress):
        """Looks at the counters whenever it draws."""

        def get_renderables(self) -> Iterable[RenderableType]:
            for task in self.tasks:
                self.update(task.id, completed=task.fields["counter"].done, visible=(task.elapsed or 0.0) > PATIENCE)
            return super().get_renderables()

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Pace())
    return Bars(*columns, console=Console(stderr=True), transient=True)
