"""The pictures of docs/compact.md: hashed tokens, one unit per group, a fold with a trap, keys in traps and in bands,
keys on walks, a zigzag, cells of lines, clusters under a lens.

    python experiments/compact_pictures.py [--docs FOLDER]

Small label memories are built and their ids followed, block by block, in exact integers.
"""

from __future__ import annotations

import argparse
import random
from itertools import combinations
from pathlib import Path

import numpy as np

from byheart.build.fold import LabelMemory, StreamBlock, build_label_memory
from byheart.build.fold.block import run_blocks
from byheart.build.fold.lens import FINE, focus
from byheart.build.fold.pins import PinBeam, pin
from byheart.build.fold.zigzag import zigzag
from byheart.exact import dyadic
from byheart.plots.style import colour, label_axes, new_figure, save, styled

COUNT = 150


def small_memory(classes: int) -> tuple[list[int], list[int], LabelMemory]:
    rng = random.Random(4)
    ids = sorted(rng.sample(range(60_000), COUNT))
    labels = [rng.randrange(classes) for _ in ids]
    return ids, labels, build_label_memory(ids, labels, classes, head="logits")


def draw_hash(path: Path) -> None:
    """Plot the images of token numbers under bends, and of sums of two of them."""
    rng, tokens = random.Random(3), list(range(64))
    phi = [64.0 * t for t in tokens]
    for _ in range(3):
        middle, slope = (min(phi) + max(phi)) / 2 + rng.uniform(-200, 200), rng.uniform(0.5, 1.5)
        phi = [h if h < middle else middle - slope * (h - middle) for h in phi]
    phi = [round(h) for h in phi]
    figure = new_figure(columns=2, width=4.6, height=3.4)
    left, right = figure.axes
    with styled():
        left.plot(tokens, phi, ".-", color=colour(0), linewidth=0.6, markersize=4)
        label_axes(left, "Three bends with random slopes", "token t", "φ(t)", log=False)
        pairs = list(combinations(tokens, 2))
        plain, hashed = [a + b for a, b in pairs], [phi[a] + phi[b] for a, b in pairs]
        right.plot(plain, hashed, ".", color=colour(1), markersize=2)
        words = f"{len(pairs):,} pairs: {len(set(plain))} sums of t, {len(set(hashed)):,} of φ"
        label_axes(right, words, "t + t'", "φ(t) + φ(t')", log=False)
        save(figure, path)


def draw_bands(path: Path) -> None:
    """Where the ids of four labels end: each label in a separate band."""
    ids, labels, memory = small_memory(4)
    folds = len(memory.blocks) - 2
    apart = max(-int(b) // int(w * w) for w, b in memory.reading.rows if w)  # type: ignore[call-overload]
    ends = [float(run_blocks(memory.blocks, x)) / (2 * apart) for x in ids]
    figure = new_figure(width=9, height=2.8)
    (axes,) = figure.axes
    rng = random.Random(1)
    with styled():
        for h, y in zip(ends, labels, strict=True):
            axes.plot(min(h, 3.5), rng.uniform(0, 1), ".", color=colour(y), markersize=5)
        for k in range(3):
            axes.axvline(k + 0.5, color=colour(7), linewidth=0.8, linestyle="--")
        title = f"{COUNT} keys of four labels (colours) after {folds} folds: each in the band of its label"
        label_axes(axes, title, "number of the band", "", log=False)
        axes.set_yticks([])
        axes.set_xlim(min(-0.6, min(ends) - 0.1), 3.6)
        save(figure, path)


def draw_zigzag(path: Path) -> None:
    """Two labels in seven runs: five units cross zero between them."""
    ids = [2, 5, 9, 11, 16, 20, 22, 27, 31, 36, 38, 43]
    labels = [0, 0, 1, 1, 0, 1, 1, 1, 0, 1, 0, 0]
    found = zigzag(ids, labels)
    figure = new_figure(width=9, height=2.8)
    (axes,) = figure.axes
    with styled():
        line = [dyadic(x, -2) for x in range(4 * 46)]
        axes.plot([float(x) for x in line], [float(found.block(x) + found.shift) for x in line], color=colour(7))
        axes.axhline(0, color=colour(7), linewidth=0.8)
        for x, y in zip(ids, labels, strict=True):
            axes.plot(x, float(found.block(x) + found.shift), "o", color=colour(y), markersize=6)
        title = f"{found.runs} runs of two labels, {len(found.block.units)} units: the sign is the label"
        label_axes(axes, title, "id x", "h", log=False)
        save(figure, path)


def draw_trap(path: Path) -> None:
    """The map of one fold, and the image of a range of values after three of them."""
    top, share = 100.0, 0.2
    figure = new_figure(columns=2, width=4.6, height=3.4)
    left, right = figure.axes
    edge = (1 - share) * top
    with styled():
        left.axhline(0, color=colour(7), linewidth=0.8)
        left.plot([0, edge / 2], [0, edge / 2], color=colour(0), label="stays")
        left.plot([edge / 2, edge], [edge / 2, 0], color=colour(2), label="reflected")
        left.plot([edge, top], [0, edge - top], color=colour(1), label="trapped for good")
        label_axes(left, "v - relu(2v - T)", "v, before", "v, after", log=False)
        left.legend()
        span = top
        steps: list[StreamBlock] = []
        for _ in range(6):
            edge = (1 - share) * span
            steps.append(StreamBlock(((2, -round(edge), -1),)))
            span = edge / 2
        for start in range(2, 100, 7):
            h, heights = start, [float(start)]
            for block in steps:
                h = int(block(h))  # type: ignore[call-overload]
                heights.append(float(h))
            right.plot(range(len(heights)), heights, ".-", color=colour(1 if h < 0 else 0), linewidth=0.9)
        right.axhline(0, color=colour(7), linewidth=0.8)
        label_axes(right, "six folds, a fifth trapped at each", "fold", "value", log=False)
        save(figure, path)


def draw_selector(ids: list[int], first: StreamBlock, path: Path) -> None:
    """The function of the first block, with the ids on it."""
    figure = new_figure(width=9, height=3.4)
    (axes,) = figure.axes
    kinks = [float(-b) / float(w) for w, b, _ in first.units[1:]]
    ends = [ids[0], *kinks, ids[-1]]
    with styled():
        axes.plot(ends, [float(first(round(x))) for x in ends], color=colour(0), linewidth=1)
        axes.plot(ids, [float(first(x)) for x in ids], ".", color=colour(1), markersize=5, label="ids")
        label_axes(axes, "One unit per group: lines that meet between their groups", "id x", "z", log=False)
        axes.legend(loc="upper right")
        save(figure, path)


def heights(memory: LabelMemory, x: int) -> list[int]:
    """Plot the stream before every block after the selector, and at the end."""
    z = int(memory.blocks[0](x))  # type: ignore[call-overload]
    found = [z]
    for block in memory.blocks[1:]:
        z = int(block(z))  # type: ignore[call-overload]
        found.append(z)
    return found


def draw_keys(ids: list[int], labels: list[int], memory: LabelMemory, path: Path) -> None:
    """Keys in their range, level by level: those of label 1 fall below zero, one after the other."""
    figure = new_figure(width=9, height=3.6)
    (axes,) = figure.axes
    ranges = [-float(block.units[0][1]) for block in memory.blocks[1:]]
    with styled():
        trapped = next(y for y, (w, _) in enumerate(memory.reading.rows) if w)
        for x, y in list(zip(ids, labels, strict=True))[:40]:
            found = [z / r for z, r in zip(heights(memory, x), ranges, strict=False)]
            alive = [v for v in found if v >= 0]
            axes.plot(
                range(len(alive)), alive, ".-", color=colour(1 if y == trapped else 0), linewidth=0.4, markersize=3
            )
            if len(alive) < len(found):
                axes.plot(len(alive) - 1, alive[-1], "x", color=colour(6), markersize=6)
        axes.axhspan(1, 1.15, color=colour(1), alpha=0.12)
        label_axes(axes, "Forty keys: values above 1 are trapped (x), the others stay", "level", "v / T", log=False)
        save(figure, path)


def draw_walk(path: Path) -> None:
    """Sums of marks along the digits of z: from anywhere into the label's cell."""
    ids, labels, memory = small_memory(40)
    folds = memory.blocks[1:-1]
    figure = new_figure(width=9, height=3.6)
    (axes,) = figure.axes
    marks = []
    lattice = -int(memory.blocks[-1].units[0][1])  # type: ignore[call-overload]
    for j, block in enumerate(folds):
        marks.append(-int(block.units[0][1]) - (lattice << (len(folds) - j)))  # type: ignore[call-overload]
    with styled():
        for x, y in list(zip(ids, labels, strict=True))[:14]:
            z = (int(memory.blocks[0](x)) - lattice // 4) // lattice  # type: ignore[call-overload]
            digits = [0, *(int(d) for d in f"{z:0{len(folds)}b}")]
            walk = [0]
            for j, mark in enumerate(marks):
                walk.append(walk[-1] + mark * (digits[j] - digits[j + 1]))
            axes.plot(range(len(walk)), walk, color=colour(y % 6), linewidth=0.9)
        label_axes(axes, "Fourteen walks: every digit moves a key a little, towards its cell", "fold", "sum", log=False)
        save(figure, path)


def draw_cells(path: Path) -> None:
    """Slopes and offsets that label three ids alike: between lines, one for every id and every edge of the folds."""
    edges, ids = [0.0, 0.28, 0.36, 0.64, 0.72, 1.0], [0.15, 0.55, 0.9]
    figure = new_figure(width=6.4, height=3.6)
    (axes,) = figure.axes
    slope, offset = np.meshgrid(np.linspace(-1, 1, 500), np.linspace(0, 1, 400))
    labels = sum((np.searchsorted(edges, slope * x + offset) % 2) << k for k, x in enumerate(ids))
    with styled():
        axes.imshow(
            labels, extent=(-1, 1, 0, 1), origin="lower", aspect="auto", cmap="Pastel1", interpolation="nearest"
        )
        for x in ids:
            for e in edges:
                axes.plot([-1, 1], [e + x, e - x], color=colour(7), linewidth=0.6)
        label_axes(axes, "Three ids, six edges: the labels (colours) are constant in cells", "S", "U", log=False)
        axes.set_xlim(-1, 1)
        axes.set_ylim(0, 1)
        save(figure, path)


def draw_lens(path: Path) -> None:
    """Clusters of four, two to a line: their images under the lines, and the input of the last folds."""
    rng = random.Random(6)
    starts = sorted(rng.sample(range(0, 1 << 26, 1 << 12), 16))
    ids = [start + x for start in starts for x in sorted(rng.sample(range(64), 4))]
    labels = np.array([rng.randrange(2) for _ in ids], np.int64)
    found = focus(ids, labels, 1000, 1e6)
    assert found is not None
    first, *folds = found.blocks
    unit = float(found.chain.places[-1].position * found.scale)
    copies = sum(t > 8 * FINE for t in found.chain.thresholds)
    figure = new_figure(columns=2, width=4.8, height=3.4)
    left, right = figure.axes
    kinks = [float(-b) / float(w) for w, b, _ in first.units[1:]]
    with styled():
        for place in found.chain.places:
            left.axhline(place.position * found.scale / unit, color=colour(2), linewidth=0.8, linestyle="--")
        ends = [ids[0], *kinks, ids[-1]]
        left.plot(ends, [float(first(round(x))) / unit for x in ends], color=colour(7), linewidth=0.8)
        for k, x in enumerate(ids):
            z = first(x)
            left.plot(x, float(z) / unit, ".", color=colour(int(labels[k])), markersize=6)
            v = float(run_blocks(folds[:copies], z)) / (FINE * found.scale)
            if v <= 1.1:
                right.plot(v, k // 4, ".", color=colour(int(labels[k])), markersize=6)
        left.set_ylim(-0.4, 1.4)
        label_axes(left, f"{len(starts)} clusters of four, {len(found.lines)} lines", "id x", "z / range", log=False)
        edges = [e / FINE for e in found.chain.edges if e <= FINE]
        for k, (a, b) in enumerate(zip(edges, [*edges[1:], 1.1], strict=True)):
            right.axvspan(a, b, color=colour(found.chain.trapped if k % 2 else 1 - found.chain.trapped), alpha=0.12)
        label_axes(right, "the same ids at the fine positions", "v / width", "cluster", log=False)
        save(figure, path)


def draw_pins(path: Path) -> None:
    """Pairs at random positions: each line meets two changes of the label at two edges, however narrow their gaps."""
    rng = random.Random(4)
    starts = sorted(rng.sample(range(0, 1 << 26, 1 << 12), 14))
    ids = [start + x for start in starts for x in (0, 1 + rng.randrange(6))]
    labels = np.array([rng.randrange(2) for _ in ids], np.int64)
    found = pin(ids, labels, 1000, PinBeam(8, 24, 1))
    assert found is not None
    first, unit = found.blocks[0], float(found.chain.edges[-1] * found.scale)
    figure = new_figure(width=6.4, height=3.6)
    (axes,) = figure.axes
    with styled():
        edges = [e * found.scale / unit for e in found.chain.edges]
        for k, (a, b) in enumerate(zip([-0.3, *edges], [*edges, 1.3], strict=True)):
            axes.axhspan(a, b, color=colour(found.chain.trapped if k % 2 == 0 else 1 - found.chain.trapped), alpha=0.12)
        kinks = [float(-b) / float(w) for w, b, _ in first.units[1:]]
        ends = [ids[0], *kinks, ids[-1]]
        axes.plot(ends, [float(first(round(x))) / unit for x in ends], color=colour(7), linewidth=0.8)
        for x, y in zip(ids, labels.tolist(), strict=True):
            axes.plot(x, float(first(x)) / unit, ".", color=colour(y), markersize=6)
        for a, b, changed in zip(ids, ids[1:], np.diff(labels) != 0, strict=False):
            if changed and b - a < 8:
                axes.plot(a, float(first(a)) / unit, "o", color=colour(7), markersize=10, fillstyle="none")
        axes.set_ylim(-0.3, 1.3)
        words = f"{len(starts)} pairs, {len(found.lines)} lines, {len(found.chain.thresholds)} folds"
        label_axes(axes, f"{words}: pairs of two labels sit on edges", "id x", "z / range", log=False)
        save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--docs", default="docs")
    folder = Path(parser.parse_args().docs) / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    ids, labels, memory = small_memory(2)
    draw_hash(folder / "compact-hash.png")
    draw_bands(folder / "compact-bands.png")
    draw_zigzag(folder / "compact-zigzag.png")
    draw_trap(folder / "compact-trap.png")
    draw_selector(ids, memory.blocks[0], folder / "compact-selector.png")
    draw_keys(ids, labels, memory, folder / "compact-keys.png")
    draw_walk(folder / "compact-walk.png")
    draw_cells(folder / "compact-cells.png")
    draw_lens(folder / "compact-lens.png")
    draw_pins(folder / "compact-pins.png")
    print(f"{COUNT} ids, two classes: {memory.parameters} parameters, {memory.groups} groups; wrote {folder}")


if __name__ == "__main__":
    main()
