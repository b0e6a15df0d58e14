"""HTML entities, memorized: a table that ships with Python, twice, as the paper builds it and as compactly as we can.

`python examples/entities.py [FOLDER]`. Prints one screen and draws the sizes beside the information limit.
"""

from __future__ import annotations

import sys
from html.entities import html5
from pathlib import Path

import byheart
from byheart.plots import style

NAMES = sorted(html5)[:500]  # KS25's own constants make deep networks: a part of the table is enough to compare
BUILT = ("compact", "ks25")


def main(folder: Path) -> None:
    answers = [html5[name] for name in NAMES]
    # Without fingerprints of the rows: the limit counts the bits of the labels alone.
    options = {"compact": {"abstain_bits": 0}}
    memories = {name: byheart.memorize(NAMES, answers, construction=name, **options.get(name, {})) for name in BUILT}
    floor = byheart.lower_bound(
        task="next-token", N=len(NAMES), n=memories["compact"].encoder.length, d=2, C=len(set(answers))
    )
    print(f"{len(NAMES)} names, {len(set(answers))} different characters")
    for name, memory in memories.items():
        size, verdict = memory.size, memory.certificate.verdict.value
        print(f"  {name:8} {size.parameters:9,} parameters, {size.total_bits:11,} bits, {verdict}")
    print(f"  {'at least':8} {'':9} {'':10}  {floor.total_bits:11,} bits in any network")
    queried = ["Auml;", "Delta;", "Eacute;"]
    print("  " + "  ".join(map("&{} {}".format, queried, memories["compact"].predict(queried))))
    print(f"picture: {draw(memories, floor.total_bits, folder / 'entities.png')}")


def draw(memories: dict[str, byheart.Memory], floor: int, path: Path) -> Path:
    """Bars of bits on a logarithmic scale."""
    figure = style.new_figure(width=6.4, height=2.6)
    sizes = {**{name: memory.size.total_bits for name, memory in memories.items()}, "no network below": floor}
    with style.styled():
        axes = figure.axes[0]
        bars = axes.barh(list(sizes), list(sizes.values()), color=[style.colour(k) for k in range(len(sizes))])
        axes.bar_label(bars, [f"{size:,}" for size in sizes.values()], padding=4)
        axes.set_xscale("log")
        axes.set_xlim(1000, 300_000)
        axes.invert_yaxis()
        axes.set_title(f"Bits of all weights, {len(NAMES)} HTML entities")
    return style.save(figure, path)


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
    target.mkdir(parents=True, exist_ok=True)
    main(target)
