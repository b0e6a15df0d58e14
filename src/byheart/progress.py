"""Progress of long work, reported to a terminal, a logger or the caller.

Builders and checkers report stages; the command line draws them, other callers see nothing. A stage is
interrupted by raising from `advance` (Ctrl-C arrives there as KeyboardInterrupt), so nothing is left half-made.

    >>> with SILENT.stage("solving groups", total=3) as stage:
    ...     stage.advance(3)

Programs listen to the logger `byheart` of the standard library, which prints nothing by default: reading,
building, proving and exporting at INFO, the stages inside them at DEBUG, each with its seconds when it is done, and at
WARNING how many rows were omitted and why. Records carry `stage` and `seconds`, for logs that machines read.

    >>> import logging
    >>> logging.getLogger("byheart").setLevel(logging.INFO)     # and a handler, for example logging.basicConfig()
    >>> logging.getLogger("byheart").setLevel(logging.NOTSET)
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

LOGGER = logging.getLogger("byheart")
LOGGER.addHandler(logging.NullHandler())  # without it, warnings would go to standard error where no log was requested

PATIENCE = 2.0  # seconds before a stage is worth a bar


@contextmanager
def timed(name: str, level: int = logging.INFO) -> Iterator[None]:
    """Log the duration of the enclosed block or of the decorated function.

    >>> with timed("building nothing"):
    ...     pass
    """
    if not LOGGER.isEnabledFor(level):
        yield
        return
    started, end = time.perf_counter(), ""
    try:
        yield
    except BaseException as error:
        end = f", ended by {type(error).__name__}"
        raise
    finally:
        seconds = time.perf_counter() - started
        facts = {"stage": name, "seconds": seconds}
        LOGGER.log(level, "%s: %.1f s%s", name, seconds, end, extra=facts)


def warn_left_out(what: str, counts: Mapping[str, int]) -> None:
    """Log how many rows are not in what was made, by reason.

    >>> warn_left_out("rows", {"missing=drop": 0})
    """
    found = {why: count for why, count in counts.items() if count}
    if found:
        reasons = ", ".join(f"{count:,} by {why}" for why, count in found.items())
        LOGGER.warning("%s omitted: %s", what, reasons, extra={"left_out": found})


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
        with _logged(name, total):
            yield _SilentStage()

    def say(self, message: str) -> None:
        LOGGER.info("%s", message)


def _logged(name: str, total: int | None) -> AbstractContextManager[None]:
    return timed(name if total is None else f"{name} ({total:,})", logging.DEBUG)


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
            with _logged(name, total):
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
        LOGGER.info("%s", message)
        print(message, file=sys.stderr)


@contextmanager
def log_to_stderr() -> Iterator[None]:
    """Everything that is logged, one line each, on standard error: `--verbose`."""
    handler, level = logging.StreamHandler(), LOGGER.level
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)


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
        """The rate, and how long it still takes; how long it has taken where that is unknown."""

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
