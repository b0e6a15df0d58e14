"""Where work is done: processes of this machine, threads, this process, a cluster, or an executor of the caller.

>>> with opened("serial", 1) as executor:
...     executor.submit(max, 2, 3).result()
3
"""

from __future__ import annotations

import atexit
import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from byheart.errors import MissingExtraError, OptionError

KNOWN = "processes[:N], threads[:N], serial, dask[:ADDRESS], ray[:ADDRESS], module:function"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class AnyExecutor:
    """The type of a construction's option `executor`: anything that can `submit` like a concurrent.futures.Executor."""

    def __new__(cls, value: Any) -> Any:
        if not callable(getattr(value, "submit", None)):
            raise TypeError(value)
        return value


@contextmanager
def opened(name: str, processes: int) -> Iterator[Executor]:
    """The executor, shut down at the end; after an error or Ctrl-C without waiting for work that is not done."""
    executor = make_executor(name, processes)
    try:
        yield executor
    except BaseException:
        for process in list((getattr(executor, "_processes", None) or {}).values()):
            process.terminate()
        executor.shutdown(wait=False, cancel_futures=True)
        raise
    executor.shutdown()


def make_executor(name: str, processes: int) -> Executor:
    """processes, threads, serial, dask (a cluster on this machine), dask:ADDRESS (a scheduler), ray, ray:ADDRESS, or
    module:function, any function without arguments that gives a `concurrent.futures.Executor`.

    `processes:4` and `threads:4` give the number of workers; otherwise `processes` does.
    """
    kind, colon, rest = name.partition(":")
    if kind in ("processes", "threads") and colon:
        if not rest.isascii() or not rest.isdigit() or not 1 <= int(rest[:6]) <= 4096:
            raise OptionError(f"--executor {name}: write {kind}:N with a number N from 1 to 4096")
        processes = int(rest)
    if processes < 1:
        raise OptionError(f"--processes {processes}: at least 1")
    if kind == "processes":
        return process_pool(processes)
    if kind == "threads":
        return ThreadPoolExecutor(processes)
    if name == "serial":
        return SerialExecutor()
    if kind == "dask":
        return DaskExecutor(rest, processes)
    if kind == "ray":
        return RayExecutor(rest, processes)
    if colon:
        return _named(name)
    raise OptionError(f"unknown executor {name!r}; known: {KNOWN}")


def process_pool(processes: int) -> ProcessPoolExecutor:
    """One process per trial, one thread per process; processes end when their parent has ended."""
    saved = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))  # read by libraries when a child loads them
    try:
        pool = ProcessPoolExecutor(
            processes, mp_context=multiprocessing.get_context("spawn"), initializer=_leave_with_parent
        )
        for started in [pool.submit(os.getpid) for _ in range(processes)]:
            started.result()
    finally:
        for name, value in saved.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    return pool


def _leave_with_parent() -> None:
    """A parent that is killed cannot end its children; they watch it instead. Ctrl-C is the parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class SerialExecutor(Executor):
    """Run each call at once, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class DaskExecutor(Executor):
    """Calls on a Dask cluster: the one whose scheduler is at `address`, else one on this machine."""

    def __init__(self, address: str, processes: int) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise MissingExtraError("--executor dask", "distributed") from None
        try:
            self.client = (
                Client(address, timeout="20s") if address else Client(n_workers=processes, threads_per_worker=1)
            )
        except (OSError, ValueError) as error:
            reply = " ".join(str(error).split())[:160]
            raise OptionError(f"--executor dask:{address}: no scheduler answers there ({reply})") from None
        self.executor = self.client.get_executor()
        atexit.register(self.client.close)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        called: Future[Any] = self.executor.submit(fn, *args, **kwargs)
        return called

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.executor.shutdown(wait=wait)
        self.client.close()


class RayExecutor(Executor):
    """Calls on a Ray cluster: the one at `address` (`auto` for the running one), else one on this machine."""

    def __init__(self, address: str, processes: int) -> None:
        try:
            import ray
        except ImportError:
            raise MissingExtraError("--executor ray", "ray") from None
        self.ray = ray
        where = {"address": address} if address else {"num_cpus": processes, "include_dashboard": False}
        try:
            ray.init(**where, ignore_reinit_error=True, log_to_driver=False)
        except (ConnectionError, ValueError) as error:
            raise OptionError(
                f"--executor ray:{address}: no cluster answers there ({' '.join(str(error).split())[:160]})"
            ) from None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        called: Future[Any] = self.ray.remote(fn).remote(*args, **kwargs).future()
        return called

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.ray.shutdown()


def _named(name: str) -> Executor:
    module, _, function = name.partition(":")
    try:
        made = getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError) as error:
        raise OptionError(f"--executor {name}: {error}; give module:function") from None
    if not isinstance(made, Executor):
        raise OptionError(f"--executor {name} gives a {type(made).__name__}, need a concurrent.futures.Executor")
    return made
