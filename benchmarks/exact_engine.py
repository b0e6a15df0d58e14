"""The limb engine against the pure-Python reference on one network, in one run.

    python benchmarks/exact_engine.py [N] [n]

Both evaluate the second feed-forward part of a `ks25` network (the longest one) on the same inputs; the reference on
a part of them, scaled up. The ratio is what matters; seconds depend on the machine.
"""

from __future__ import annotations

import random
import sys
import time

import numpy as np

from byheart.exact import limbs, reference
from byheart.exact.reference import Block, Map
from byheart.ir.evaluate import outputs
from byheart.ir.layers import Affine, Attention
from byheart.ir.network import Network, Read
from byheart.memory import memorize


def steps_of(layers):
    found = []
    for layer in layers:
        if isinstance(layer, Affine):
            found.append(Map(layer.weight.rows, layer.bias or (0,) * layer.width_out, layer.relu))
        else:
            found.append(Block(layer.weight1.rows, layer.bias1, layer.weight2.rows, layer.bias2))
    return found


def main(N: int = 1000, n: int = 8, sample: int = 60) -> None:
    rng = random.Random(0)
    rows = [[rng.randrange(200) for _ in range(n)] for _ in range(N)]
    labels = [rng.randrange(10) for _ in rows]
    for form in ("plain", "residual"):
        memory = memorize(rows, labels, construction="ks25", form=form, progress=False)
        layers = memory.network.layers
        cut = next(i for i, layer in enumerate(layers) if isinstance(layer, Attention)) + 1
        width = layers[cut - 1].width_out
        head = Affine(_identity(width))
        probe = Network((*layers[:cut], head), Read.LAST, _any_readout(width))
        values = outputs(probe, memory.dataset.inputs).points
        steps = steps_of(layers[cut:])
        limbs.run(steps[:1], values)  # compile
        start = time.perf_counter()
        fast = limbs.run(steps, values)
        quick = time.perf_counter() - start
        part = values.take(np.arange(min(sample, values.count)))
        start = time.perf_counter()
        slow = reference.run(steps, part)
        python = (time.perf_counter() - start) * values.count / part.count
        equal = all(fast.row(i) == slow.row(i) for i in range(part.count))
        print(
            f"ks25 {form} N={N} n={n}: {len(steps)} layers, {memory.size.max_bits} bits, {values.count} inputs: "
            f"reference {python:.1f} s, limbs {quick:.2f} s, ratio {python / quick:.1f}, equal {equal}"
        )


def _identity(width: int):
    from byheart.ir.layers import Matrix

    return Matrix.of([{i: 1} for i in range(width)], width)


def _any_readout(width: int):
    from byheart.ir.network import Decode, Readout

    return Readout(Decode.ARGMAX, width)


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
