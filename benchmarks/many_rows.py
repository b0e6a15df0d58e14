"""From a large CSV file to a proved memory: processor time and the peak of memory, step by step.

    python benchmarks/many_rows.py [N] [construction]          default: 1000000 native

Rows are codes of nine digits with one of two labels. The peak of memory is that of the process so far.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import byheart

T = TypeVar("T")


def step(name: str, work: Callable[[], T]) -> T:
    started = time.process_time()
    found = work()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    print(f"{name:10} {time.process_time() - started:8.1f} s   {peak:6.2f} GiB", flush=True)
    return found


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    construction = sys.argv[2] if len(sys.argv) > 2 else "native"
    with tempfile.TemporaryDirectory() as folder:
        path, file = Path(folder) / "rows.csv", Path(folder) / "rows.byheart"
        numbers = random.Random(2).sample(range(10**9), count)
        path.write_text("code,kind\n" + "".join(f"{k:09d},{k * 7919 % 10007 % 2}\n" for k in numbers))
        del numbers
        table = step("read", lambda: byheart.read(path))
        memory = step("memorize", lambda: byheart.memorize(table, construction=construction, progress=False))
        print(f"           {memory.certificate.verdict}, {memory.size.parameters:,} parameters")
        step("save", lambda: memory.save(file))
        again = step("load", lambda: byheart.load(file))
        print(f"           {step('verify', lambda: again.verify(table)).verdict}")


if __name__ == "__main__":
    main()
