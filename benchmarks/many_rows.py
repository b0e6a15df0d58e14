"""From a large CSV file to a proved memory: processor time and the peak of memory, step by step.

    python benchmarks/many_rows.py [N] [construction]          default: 1000000 native

Rows are codes of nine digits with one of two labels, written by its own process, so that the peak of memory is
that of byheart: of this process so far.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

import byheart

T = TypeVar("T")


def step(name: str, work: Callable[[], T]) -> T:
    started = time.process_time()
    found = work()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    print(f"{name:10} {time.process_time() - started:8.1f} s   {peak:6.2f} GiB", flush=True)
    return found


def write_rows(path: Path, count: int) -> None:
    """Different codes in random order, a part at a time."""
    rng = np.random.default_rng(2)
    codes = np.unique(rng.integers(0, 10**9, count + count // 50 + 100))
    rng.shuffle(codes)
    with path.open("w") as file:
        file.write("code,kind\n")
        for start in range(0, count, 100_000):
            part = codes[start : min(count, start + 100_000)].tolist()
            file.write("".join(f"{k:09d},{k * 7919 % 10007 % 2}\n" for k in part))


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    construction = sys.argv[2] if len(sys.argv) > 2 else "native"
    with tempfile.TemporaryDirectory() as folder:
        path, file = Path(folder) / "rows.csv", Path(folder) / "rows.byheart"
        writer = multiprocessing.get_context("spawn").Process(target=write_rows, args=(path, count))
        writer.start()
        writer.join()
        table = step("read", lambda: byheart.read(path))
        memory = step("memorize", lambda: byheart.memorize(table, construction=construction, progress=False))
        print(f"           {memory.certificate.verdict}, {memory.size.parameters:,} parameters")
        step("save", lambda: memory.save(file))
        again = step("load", lambda: byheart.load(file))
        print(f"           {step('verify', lambda: again.verify(table)).verdict}")


if __name__ == "__main__":
    main()
