"""Sizes of built networks for the article "KS25 in one scroll": `python experiments/one_scroll.py [largest N]`.

Prints one line per network: construction, N, parameters, and whether it was proved. The article keeps them as
`byheart.report.article.BUILT`. Up to `PROVED` rows a network is certified too. Above that `ks25` is only built and
counted.
"""

from __future__ import annotations

import sys

import numpy as np

import byheart
from byheart.build.ks25.construction import build_ks25
from byheart.data.dataset.dataset import load
from byheart.ir.size import measure
from byheart.report.article import ALPHABET, BUILT, CLASSES, LETTERS

PROVED = 10_000


def random_words(N: int, seed: int = 0) -> tuple[list[str], list[int]]:
    """Return N different words of five letters and a label for each, sampled uniformly."""
    generator = np.random.default_rng(seed)
    found: dict[str, None] = {}
    while len(found) < N:
        for row in generator.integers(0, ALPHABET, size=(N, LETTERS)):
            found.setdefault("".join(chr(ord("a") + letter) for letter in row))
            if len(found) == N:
                break
    return list(found), generator.integers(0, CLASSES, size=N).tolist()


def size_of(construction: str, N: int) -> tuple[int, str]:
    """Return the parameters of the network for N words, and its verdict."""
    words, labels = random_words(N)
    if construction == "ks25" and N > PROVED:
        built = build_ks25(load(words, labels, task="next-token", positions=True))
        return measure(built.network).parameters, "built, not proved"
    options = {"abstain_bits": 0} if construction == "compact" else {}
    memory = byheart.memorize(words, labels, construction=construction, progress=False, **options)
    return memory.size.parameters, memory.certificate.verdict.value


def main(largest: int) -> None:
    for construction, sizes in BUILT.items():
        for N in sorted(sizes):
            if largest >= N:
                print(construction, N, *size_of(construction, N), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else PROVED)
