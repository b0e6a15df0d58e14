"""How the number of parameters grows with the number of rows: docs/pictures/growth.png and the numbers below it.

    python benchmarks/growth.py [--constructions ks25,compact] [--sizes 100,200,...] [--output growth.png]

Random rows of 8 real vectors of dimension 4, two classes, positions off: the setting of KS25 Theorem 4.1.
The exponent is the slope of a straight line through the points in the log-log picture.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import byheart
from byheart.plots.bounds import exponent, growth_figure
from byheart.plots.style import save
from byheart.theory import Problem

N_DEFAULT = (100, 200, 500, 1000, 2000, 4000)


def rows(count: int, seed: int) -> tuple[list[list[tuple[float, ...]]], list[int]]:
    rng = random.Random(seed)
    vectors = [[tuple(round(rng.gauss(0, 1), 3) for _ in range(4)) for _ in range(8)] for _ in range(count)]
    return vectors, [rng.randrange(2) for _ in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--constructions", default="ks25,compact")
    parser.add_argument("--sizes", default=",".join(map(str, N_DEFAULT)))
    parser.add_argument("--output", default="docs/pictures/growth.png")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    measured: dict[str, list[int]] = {}
    for name in arguments.constructions.split(","):
        for size in sizes:
            sequences, labels = rows(size, seed=size)
            memory = byheart.memorize(sequences, labels, construction=name, positions=False, progress=False)
            measured.setdefault(name, []).append(memory.size.parameters)
            print(
                f"{name} N={size}: {memory.size.parameters:,} parameters, {memory.certificate.verdict.value}",
                flush=True,
            )
        print(f"{name}: parameters grow like N^{exponent(sizes, measured[name]):.3f}")
    problem = Problem("next-token", N=sizes[-1], n=8, d=4, C=2)
    path = Path(arguments.output)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(growth_figure(problem, sizes, measured), path)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
