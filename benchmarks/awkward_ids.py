"""Ids that are not random, beside random ones of the same number and length: how much larger a memory of them is.

    python benchmarks/awkward_ids.py --sizes 100,400 --classes 2,16 --seeds 3
    python benchmarks/awkward_ids.py --whole --sizes 100,400      whole Transformers: an id is a vector of one number

Every label of every memory is checked. One line per memory; the three worst families, over all seeds, last.
"""

from __future__ import annotations

import argparse
import random
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate
from math import factorial
from statistics import mean

import byheart
from byheart.build.fold import build_label_memory

LENGTHS = (0, 30, 50, 75, 110, 210, 500, 1000, 4000)  # of random ids to compare with
LONGEST = 2000  # ids up to which powers are passed: the last has as many bits


def clusters(rng: random.Random, count: int, size: int, within: int, apart: int, regular: bool) -> list[int]:
    """Ids in clusters of `size` within `within`, at multiples of 2^apart, or anywhere in as wide a range."""
    number = -(-count // size)
    found: set[int] = set()
    for c in range(number):
        start = c << apart if regular else rng.randrange(number << apart)
        found.update(start + x for x in rng.sample(range(within), size))
    while len(found) < count:
        found.add(rng.randrange(number << apart))
    return sorted(found)[:count]


def fibonacci(count: int) -> list[int]:
    found = [1, 2]
    while len(found) < count:
        found.append(found[-1] + found[-2])
    return found[:count]


def families(count: int, rng: random.Random) -> Iterator[tuple[str, list[int]]]:
    short = 16 * count * count + 64
    yield "consecutive", list(range(count))
    for step in (3, 1000003, 1 << 20, 1 << 100):
        yield f"progression, step {step if step < 1 << 30 else '2^100'}", [12345 + step * i for i in range(count)]
    yield "squares", [i * i for i in range(count)]
    yield "cubes", [i**3 for i in range(count)]
    yield "dense with holes", rng.sample(range(2 * count), count)
    yield "runs of 20 with holes of 20", [i + i // 20 * 20 for i in range(count)]
    yield "200 bits", [rng.getrandbits(200) for _ in range(count)]
    yield "common low bits", [(x << 60) + 12345 for x in rng.sample(range(short), count)]
    yield "common high bits", [(12345 << 150) + x for x in rng.sample(range(short), count)]
    yield "two halves, 2^100 apart", [*range(count // 2), *((1 << 100) + i for i in range(count - count // 2))]
    yield "one far away", [*range(count - 1), 1 << 100]
    root = round(count ** (1 / 3)) + 1
    inner = [rng.sample(range(256), root) for _ in range(root * root)]
    scales = sorted({((k // root) << 60) + ((k % root) << 30) + c for k, part in enumerate(inner) for c in part})
    yield "two scales", scales[:count]
    if count <= LONGEST:
        yield "powers of two", [1 << i for i in range(count)]
        yield "powers of three", [3**i for i in range(count)]
        yield "Fibonacci", fibonacci(count)
        yield "geometric, 1.1", sorted({11**i // 10**i + i for i in range(count)})
        yield "mirrored powers of two", [(1 << count) - (1 << i) for i in reversed(range(count))]
        yield "pairs at powers of sixteen", [16 ** (i // 2) + i % 2 for i in range(count)]
        yield "factorials", [factorial(i + 1) for i in range(count)]
    for base in (12, 40):
        yield (
            f"sets within sets, 2^{base}",
            [sum(((i >> b) & 1) << (base * b) for b in range(16)) for i in range(count)],
        )
    for bits in (30, 100):
        gaps = [1 + rng.getrandbits(rng.randrange(1, bits)) for _ in range(count)]
        yield f"gaps of all lengths to {bits} bits", list(accumulate(gaps))
    pairs = clusters(rng, count // 2, 2, 8, 60, False) if count > 3 else []
    yield "half pairs", sorted({*pairs, *(rng.randrange(count << 59) for _ in range(count - len(pairs)))})
    for size in (2, 4, 10, 16, 64):
        if 2 * size > count:
            continue
        for within, apart in ((size, 40), (16 * size, 20), (16 * size, 40), (100 * size, 60)):
            kind = f"{size}s in {within}, 2^{apart}"
            yield f"{kind}, regular", clusters(rng, count, size, within, apart, True)
            yield f"{kind}, anywhere", clusters(rng, count, size, within, apart, False)


def memory_size(ids: list[int], labels: list[int], classes: int, effort: str) -> int:
    memory = build_label_memory(ids, labels, classes, effort=effort)
    if any(memory.label(x) != y for x, y in zip(ids, labels, strict=True)):
        raise SystemExit("a label is wrong")
    return memory.parameters


def whole_size(ids: list[int], labels: list[int], classes: int, effort: str) -> int:
    memory = byheart.memorize([[[x]] for x in ids], labels, effort=effort, progress=False)
    if memory.certificate.verdict.value != "proved":
        raise SystemExit(f"{memory.certificate.verdict.value}: {memory.certificate.reason}")
    return memory.size.parameters


def reference(size: Callable[..., int], bits: int, labels: list[int], classes: int, effort: str) -> float:
    """The mean size for random ids of this length (at least as long as so many random ids are) with these labels."""
    sizes = []
    for draw in range(3):
        rng = random.Random(f"reference {draw} {bits}")
        ids: set[int] = set()
        while len(ids) < len(labels):
            ids.add(rng.getrandbits(max(bits, 2 * len(labels).bit_length() + 4)))
        sizes.append(size(sorted(ids), labels, classes, effort))
    return mean(sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="10,30,100,400")
    parser.add_argument("--classes", default="2,16")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--only", default="", help="families whose name holds this")
    parser.add_argument("--whole", action="store_true", help="whole Transformers over vectors of one number")
    arguments = parser.parse_args()
    size = whole_size if arguments.whole else memory_size
    for count in map(int, arguments.sizes.split(",")):
        for classes in (int(c) if c != "many" else max(17, count // 2) for c in arguments.classes.split(",")):
            found: dict[str, list[float]] = {}
            for seed in range(arguments.first, arguments.first + arguments.seeds):
                rng, known = random.Random(f"awkward {seed} {count}"), {}
                labels = [rng.randrange(classes) for _ in range(count)]
                for name, ids in families(count, rng):
                    if arguments.only not in name:
                        continue
                    bits = LENGTHS[bisect_left(LENGTHS, max(ids).bit_length())]
                    if bits not in known:
                        known[bits] = reference(size, bits, labels, classes, arguments.effort)
                    start = time.process_time()
                    taken = size(sorted(ids), labels, classes, arguments.effort)
                    found.setdefault(name, []).append(taken / known[bits])
                    print(
                        f"{count} ids, C={classes}, {name}: {taken}, {taken / known[bits]:.2f}, "
                        f"{time.process_time() - start:.1f} s",
                        flush=True,
                    )
            for ratio, name in sorted(((max(ratios), name) for name, ratios in found.items()), reverse=True)[:3]:
                print(f"{count} ids, C={classes}, among the worst: {ratio:.2f} ({name})", flush=True)


if __name__ == "__main__":
    main()
