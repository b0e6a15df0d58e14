"""One thread per engine: small matrices gain nothing from more, and threads that wait for each other cost minutes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def single_thread() -> Iterator[None]:
    """Limit PyTorch, and NumPy's matrix products where threadpoolctl is installed, to one thread.

    A fixture's matrices are so small that two threads spend most of their time waiting for each other as soon as
    another process runs. PyTorch gets its number of threads back at the end.

    Returns:
        A context manager.

    Example:
        >>> with single_thread():
        ...     pass
    """
    with ExitStack() as stack:
        try:
            from threadpoolctl import threadpool_limits
        except ImportError:
            pass
        else:
            stack.enter_context(threadpool_limits(1))
        try:
            import torch
        except ImportError:
            yield
            return
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        stack.callback(torch.set_num_threads, before)
        yield
