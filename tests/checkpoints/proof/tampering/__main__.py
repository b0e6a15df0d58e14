"""Draw tampered folders and print counts by architecture and kind, and every fault.

    python -m tests.checkpoints.proof.tampering 1000 --seed 3 --quick

A draw writes a folder of a sampled architecture and variant, applies one to three sampled edits of one kind, proves it,
and runs it in every proved type, in eager and sdpa attention, left padded, after unknown tokens, and with a cache. A
fault is a position whose measured margin lies below the proved one, and a folder that Transformers refuses or decodes
otherwise. Margins are compared position by position, so that a bound that is too narrow by a little is found too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.checkpoints.proof.tampering.draws import EDITS, Bases, draw


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--kind", choices=list(EDITS))
    parser.add_argument("--quick", action="store_true", help="margins alone, and only of folders that are proved")
    options = parser.parse_args()
    counts: Counter[tuple[str, str, str]] = Counter()
    wrong = 0
    with tempfile.TemporaryDirectory() as root:
        bases = Bases(Path(root))
        with suppress(KeyboardInterrupt):
            for number in range(options.first, options.first + options.count):
                found = draw(number, options.seed, bases, tuple(options.only), options.kind, options.quick)
                counts[found.architecture, found.kind, "proved" if found.proved else "not proved"] += 1
                wrong += bool(found.faults)
                for fault in found.faults:
                    print(f"FAULT {number} {found.architecture} {found.kind} [{found.edit}] {fault}", flush=True)
    for (architecture, kind, outcome), count in sorted(counts.items()):
        print(f"{architecture:18} {kind:8} {outcome:11} {count}")
    proved = sum(count for key, count in counts.items() if key[2] == "proved")
    print(f"{counts.total()} folders, {proved} proved in some type, {wrong} with a fault")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
