"""A separate process that builds and certifies, so that a construction can be stopped when its time is up.

The parent sends (data set, construction, seed) and receives a row. Both ends are this program; nothing else is read.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import IO, Any

from byheart.data.dataset.dataset import Dataset
from byheart.memory.compare.rows import CompareRow

_START = "from byheart.memory.compare.worker import serve; serve()"


@dataclass
class Worker:
    """One process at a time; a new one is started after a time-out or a crash."""

    memory_gb: float | None = None
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    replies: queue.Queue[CompareRow | None] = field(default_factory=queue.Queue, repr=False)
    listener: threading.Thread | None = field(default=None, repr=False)

    def measure(self, dataset: Dataset, construction: str, seed: int, seconds: float) -> CompareRow | str:
        """The row, or why it is missing: the time was up, or the process ended (memory)."""
        process = self._running()
        if process.stdin is None:
            return "the worker has no input"
        try:
            pickle.dump((dataset, construction, seed), process.stdin)
            process.stdin.flush()
            found = self.replies.get(timeout=seconds)
        except queue.Empty:
            self.stop()
            return f"not finished within {seconds:g} seconds"
        except OSError:
            found = None
        if found is None:
            self.stop()
            return "the building process ended, probably for lack of memory"
        return found

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is not None and self.process.poll() is None:
            return self.process
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        if self.memory_gb is not None:
            environment["BYHEART_MEMORY_GB"] = str(self.memory_gb)
        self.replies = queue.Queue()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self.listener = threading.Thread(target=_listen, args=(self.process.stdout, self.replies), daemon=True)
        self.listener.start()
        return self.process

    def stop(self) -> None:
        """Ends the process, if there is one."""
        process, self.process = self.process, None
        if process is None:
            return
        process.kill()
        process.wait()
        if self.listener is not None:
            self.listener.join(5)  # its stream must not be closed while it reads
        for stream in (process.stdin, process.stdout):
            reading = stream is process.stdout and self.listener is not None and self.listener.is_alive()
            if stream is not None and not reading:
                with contextlib.suppress(OSError):  # unsent bytes of a job that will never be read
                    stream.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def _listen(stream: IO[bytes], replies: queue.Queue[CompareRow | None]) -> None:
    try:
        while True:
            replies.put(pickle.load(stream))
    except (EOFError, OSError, ValueError, pickle.UnpicklingError):
        replies.put(None)


def serve() -> None:
    """The process: answers jobs until its input ends."""
    from byheart.memory.compare.comparison import measured_row

    _limit_memory()
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # prints of libraries must not mix with replies
    while True:
        try:
            job: Any = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(measured_row(*job), output)
        output.flush()


def _end_with(parent: int) -> None:
    """Ends this process when its parent is gone, however busy it is."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _limit_memory() -> None:
    wanted = os.environ.get("BYHEART_MEMORY_GB")
    if not wanted:
        return
    try:
        import resource
    except ImportError:  # not on this system: the time limit has to do
        return
    size = int(float(wanted) * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))
