"""A limit on work and memory: an untrusted file must not fill the machine's memory or run without end.

Code that evaluates such a file runs inside `with limited(budget)`. The engines then estimate a job's cost beforehand
(one input is tried, metered step by step, and counts for all), and raise a BudgetError beyond the budget. The unit
of work is one product of two 56-bit limbs; a core does a hundred million to a billion of them in a second, so that the
usual budget is about ten minutes.

Inside `limited`, a job that grows on inputs which were not tried is stopped by the limit on memory: the fast engine's
buffers are sized by its longest number.

The user's own data has no budget, but memory is finite: `check_free_memory` refuses rows that exceed the free memory,
before they fill it.

    >>> with limited(Budget(work=10)) as spent:
    ...     spent.spend(8)
    ...     spent.work
    8
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from byheart.errors import BudgetError

# Bits of a limb.
LIMB = 56
PADDING = 1 << 23  # positions that rows may be padded to, whatever their own length
TIMES = 64  # or this many times their tokens
AT_ONCE = 2048  # numbers of the greatest length that the engines may hold together: 256 inputs with a few registers


@dataclass(frozen=True)
class Budget:
    """How much a file may cost: products of limbs, and bytes for its numbers."""

    work: int = 4 * 10**11
    memory: int = 2 << 30


@dataclass
class Meter:
    """The spent part of a budget."""

    budget: Budget
    work: int = 0

    def spend(self, work: int) -> None:
        """Add work that is about to be done; a BudgetError if that is too much."""
        self.work += work
        if self.work > self.budget.work:
            raise BudgetError(
                f"this needs about {self.work:,} units of work, the limit is {self.budget.work:,}; raise it with "
                "--max-work if you trust the file"
            )

    def hold(self, size: int) -> None:
        """Memory that is about to be used, in bytes; a BudgetError if that is too much."""
        if size > self.budget.memory:
            raise BudgetError(
                f"this needs about {size:,} bytes for its numbers, the limit is {self.budget.memory:,}; raise it with "
                "--max-memory if you trust the file"
            )


_METER: ContextVar[Meter | None] = ContextVar("byheart budget", default=None)


def meter() -> Meter | None:
    """The meter of the enclosing `limited`, if there is one."""
    return _METER.get()


@contextmanager
def limited(budget: Budget | None) -> Iterator[Meter | None]:
    """Evaluation inside stays within the budget; None sets no limit."""
    token = _METER.set(None if budget is None else Meter(budget))
    try:
        yield _METER.get()
    finally:
        _METER.reset(token)


def check_padding(rows: int, length: int, tokens: int) -> None:
    """Rows that would be padded far beyond their own tokens, because a file demands it."""
    places, found = rows * length, meter()
    if found is not None and places > max(PADDING, TIMES * tokens):
        found.hold(256 * places)  # an index, a mask and a point with its numbers for each of them


ROW_BYTES, TOKEN_BYTES = 300, 40  # added by memorizing and proving for a row and its tokens, at most (measured)


def check_free_memory(rows: int, tokens: int) -> None:
    """Raise BudgetError if the machine has too little memory to memorize and prove this many rows and tokens."""
    needed, free = ROW_BYTES * rows + TOKEN_BYTES * tokens, free_memory()
    if free is not None and needed > free:
        raise BudgetError(
            f"{rows:,} rows with {tokens:,} tokens need about {needed / 2**30:.1f} GiB to be memorized and proved, and "
            f"{free / 2**30:.1f} GiB are free; use fewer rows (--max-rows), shorter ones (--max-length), or a machine "
            "with more memory"
        )


def free_memory() -> int | None:
    """Bytes that this process may still take, by the machine and by the limits of a container; None: not known."""
    found: list[int] = []
    with suppress(OSError, ValueError, IndexError):  # only Linux reports it without a library
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        found.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    with suppress(ImportError, OSError, ValueError, IndexError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            found.append(limit - 4096 * int(Path("/proc/self/statm").read_text().split()[0]))
    return min(found, default=None)


def limbs(bits: int) -> int:
    """How many limbs numbers of this many bits take.

    >>> limbs(1), limbs(57)
    (1, 2)
    """
    return max(1, -(-bits // LIMB))
