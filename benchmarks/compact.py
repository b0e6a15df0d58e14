"""The compact memory: sizes against the promises, and build and check times against the plain solver, in one run.

    python benchmarks/compact.py                   sizes at N = 10^3 and 10^4, speed at 10^5 (some minutes)
    python benchmarks/compact.py --sizes 1000,100000 --classes 2,16 --effort normal
    python benchmarks/compact.py --speed 20000     the ratio at another size

Rows have 8 tokens; a third are random, the others permutations or one-token edits of them. Sizes count the whole
Transformer. The speed part gives both solvers the same random ids; its times are wall-clock and processor seconds.
"""

from __future__ import annotations

import argparse
import math
import random
import resource
import time

import compact_reference as reference
import numpy as np

import byheart
from byheart.build.fold import build_label_memory
from byheart.exact import engine
from byheart.exact.steps import Block as Step
from byheart.exact.values import Values
from byheart.progress import SILENT

PLAIN = {2: (470, 16), 16: (222, 16)}  # K and tau of the plain solver at 10^5


def rows(count: int, vocabulary: int, classes: int, seed: int) -> tuple[list[tuple[int, ...]], list[int]]:
    rng = random.Random(seed)
    base = [[rng.randrange(vocabulary) for _ in range(8)] for _ in range(max(1, count // 3))]
    found = {tuple(row) for row in base}
    while len(found) < count:
        row = list(rng.choice(base))
        if rng.random() < 0.5:
            rng.shuffle(row)
        else:
            row[rng.randrange(8)] = rng.randrange(vocabulary)
        found.add(tuple(row))
    sequences = sorted(found)
    rng.shuffle(sequences)
    label: dict[object, int] = {}
    return sequences, [label.setdefault((row[-1], tuple(sorted(row))), rng.randrange(classes)) for row in sequences]


def sizes(count: int, vocabulary: int, classes: int, effort: str, objective: str, seed: int) -> None:
    sequences, labels = rows(count, vocabulary, classes, seed)
    processor = time.process_time()
    memory = byheart.memorize(
        sequences, labels, positions=False, progress=False, effort=effort, objective=objective, seed=seed
    )
    contexts, bits = memory.certificate.contexts, math.log2(classes)
    root = math.sqrt(contexts * bits)
    factor = {"high": 10 if count <= 20_000 else 14}.get(effort, 13 if count <= 20_000 else 16)
    print(
        f"N={count} V={vocabulary} C={classes} {effort} {objective}: {memory.certificate.verdict.value}, "
        f"{contexts} contexts, {memory.size.parameters} parameters = "
        f"{memory.size.parameters / root:.2f}·sqrt(contexts·log2 C), "
        f"allowed {factor * root + 300:.0f}; {memory.size.total_bits / contexts / bits:.2f} bits per label bit; "
        f"build {memory.seconds['build']:.1f} s, certify {memory.seconds['certify']:.1f} s, "
        f"processor {time.process_time() - processor:.1f} s, "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MB",
        flush=True,
    )


def speed(count: int, classes: int) -> None:
    """Both solvers on the same ids: build, then evaluate every id exactly."""
    rng = random.Random(count)
    ids = sorted(rng.sample(range(16 * count * count), count))
    labels = [rng.randrange(classes) for _ in ids]
    build_label_memory(ids[:2000], labels[:2000], classes)  # compiles the solver, or loads it from its cache
    wall, processor = time.perf_counter(), time.process_time()
    memory = build_label_memory(ids, labels, classes)
    built, built_cpu = time.perf_counter() - wall, time.process_time() - processor
    layers = [block.layer() for block in memory.blocks]
    steps = [Step(layer.weight1.rows, layer.bias1, layer.weight2.rows, layer.bias2) for layer in layers]
    out = engine.run(steps, Values.of([[x] for x in ids]), SILENT, "checking")
    if out.numerators[:, 0].tolist() != [2 * y + 1 for y in labels]:
        raise SystemExit("the label memory is wrong")
    total = time.perf_counter() - wall
    total_cpu = time.process_time() - processor
    K, tau = PLAIN[classes]
    K = max(tau + 6, round(K * math.sqrt(count / 1e5)) // 2 * 2)
    wall, processor = time.perf_counter(), time.process_time()
    blocks = reference.build(ids, labels, classes, K, tau)
    plain_built, plain_cpu = time.perf_counter() - wall, time.process_time() - processor
    found = reference.run(blocks, ids)
    if not np.array_equal(found, 2 * np.array(labels, dtype=object) + 1):
        raise SystemExit("the plain memory is wrong")
    plain_total, plain_total_cpu = time.perf_counter() - wall, time.process_time() - processor
    plain_size = sum(3 * len(units) + 1 for units, _ in blocks)
    print(
        f"N={count} C={classes}: byheart {memory.parameters} parameters, build {built:.1f} s ({built_cpu:.1f} "
        f"processor), with check {total:.1f} s ({total_cpu:.1f}); plain {plain_size} parameters, "
        f"build {plain_built:.1f} s ({plain_cpu:.1f}), with check {plain_total:.1f} s ({plain_total_cpu:.1f}); "
        f"build {plain_built / built:.1f}x ({plain_cpu / built_cpu:.1f}x processor), "
        f"build and check {plain_total / total:.1f}x ({plain_total_cpu / total_cpu:.1f}x processor)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="1000,10000")
    parser.add_argument("--classes", default="2,16")
    parser.add_argument("--vocabularies", default="50,50000")
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--objective", default="parameters")
    parser.add_argument("--speed", default="100000", help="sizes for the comparison of speed; empty for none")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for count in map(int, filter(None, arguments.sizes.split(","))):
        for vocabulary in map(int, arguments.vocabularies.split(",")):
            for classes in map(int, arguments.classes.split(",")):
                sizes(count, vocabulary, classes, arguments.effort, arguments.objective, arguments.seed)
    for count in map(int, filter(None, arguments.speed.split(","))):
        for classes in map(int, arguments.classes.split(",")):
            speed(count, classes)


if __name__ == "__main__":
    main()
