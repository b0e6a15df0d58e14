"""The pictures of docs/compact.md: one input travelling through a compact memory.

    python experiments/compact_pictures.py [--docs FOLDER]

A small label memory is built and one of its ids is followed, block by block, in exact integers.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from byheart.build.fold import Block, LabelMemory, build_label_memory
from byheart.plots.style import colour, label_axes, new_figure, save, styled

COUNT, CLASSES = 150, 4


def small_memory() -> tuple[list[int], list[int], LabelMemory]:
    rng = random.Random(4)
    ids = sorted(rng.sample(range(60_000), COUNT))
    labels = [rng.randrange(CLASSES) for _ in ids]
    return ids, labels, build_label_memory(ids, labels, CLASSES)


def draw_selector(ids: list[int], first: Block, path: Path) -> None:
    """The function of the first block, with the ids on it."""
    figure = new_figure(width=9, height=3.6)
    (axes,) = figure.axes
    kinks = [-b / w for w, b, _ in first.units[1:]]
    ends = [ids[0], *kinks, ids[-1]]
    heights = [float(first(round(x))) for x in ends]
    with styled():
        axes.plot(ends, heights, color=colour(0), linewidth=1)
        axes.plot(ids, [float(first(x)) for x in ids], ".", color=colour(1), markersize=5, label="ids")
        axes.plot(kinks, [float(first(round(x))) for x in kinks], "|", color=colour(6), markersize=9, label="kinks")
        label_axes(axes, "One unit per group: a kink's place carries the group's payload", "id x", "z", log=False)
        axes.legend(loc="upper right")
        save(figure, path)


def journey(x: int, memory: LabelMemory) -> list[tuple[int, int, bool, bool]]:
    """(level, value before its fold, folded?, counted?) for every fold."""
    z = int(memory.blocks[0](x))
    steps = []
    for block in memory.blocks[1:]:
        place = -int(block.units[0][1])
        level = place.bit_length() - 1
        steps.append((level, z, z > place, place != 1 << level))
        z = int(block(z))
    return steps


def draw_folds(x: int, label: int, memory: LabelMemory, path: Path) -> None:
    """Above: where z stands in its interval at every fold. Below: what the counted folds have added up."""
    steps = journey(x, memory)
    figure = new_figure(columns=2, width=6.2, height=3.8)
    left, right = figure.axes
    with styled():
        levels = [level for level, _, _, _ in steps]
        for folded, name, hue in ((True, "folded", 1), (False, "left alone", 0)):
            chosen = [(level, z / (1 << level)) for level, z, f, _ in steps if f is folded]
            left.plot([p for p, _ in chosen], [v for _, v in chosen], "o", color=colour(hue), markersize=4, label=name)
        left.axhline(1, color=colour(6), linewidth=0.8)
        left.invert_xaxis()
        label_axes(left, f"id {x}, label {label}: z / 2^p in front of each fold", "level p", "z / 2^p", log=False)
        left.legend(loc="upper right")
        guard = memory.guard
        sums, total = [], 0
        above = 0
        for level, _, folded, counted in steps:
            bit = above ^ folded
            if counted:
                section = (level - guard) // memory.layout.search.levels + 1 if memory.layout else 1
                total += (above - bit) << (section + 1)
            above = bit
            sums.append(total)
        right.step(levels, sums, where="mid", color=colour(2))
        right.axvline(guard, color=colour(6), linewidth=0.8, linestyle=":")
        right.invert_xaxis()
        label_axes(
            right, "what the counted folds leave in the low bits", "level p (dotted: guard)", "4·Y so far", log=False
        )
        save(figure, path)


def draw_shrinking(x: int, memory: LabelMemory, path: Path) -> None:
    """The size of z: every fold halves the interval, and the label is what remains."""
    steps = journey(x, memory)
    figure = new_figure(width=9, height=3.0)
    (axes,) = figure.axes
    with styled():
        axes.plot([p for p, _, _, _ in steps], [max(1, z).bit_length() for _, z, _, _ in steps], ".-", color=colour(0))
        counted = [(p, max(1, z).bit_length()) for p, z, _, c in steps if c]
        axes.plot([p for p, _ in counted], [b for _, b in counted], "s", color=colour(1), label="counted folds")
        axes.invert_xaxis()
        label_axes(axes, "A bit a fold: from the sum S·x + U to the label", "level p", "bits of z", log=False)
        axes.legend()
        save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--docs", default="docs")
    folder = Path(parser.parse_args().docs) / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    ids, labels, memory = small_memory()
    first = memory.blocks[0]
    x, label = ids[70], labels[70]
    draw_selector(ids, first, folder / "compact-selector.png")
    draw_folds(x, label, memory, folder / "compact-folds.png")
    draw_shrinking(x, memory, folder / "compact-shrinking.png")
    print(f"{COUNT} ids, {CLASSES} classes: {memory.parameters} parameters, {memory.groups} groups; wrote {folder}")


if __name__ == "__main__":
    main()
