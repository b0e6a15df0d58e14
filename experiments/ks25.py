"""The numbers and pictures of docs/research/ks25.md: guaranteed and measured sizes, and how they grow.

    python experiments/ks25.py                    everything, a few minutes
    python experiments/ks25.py length bits        only these parts (an unknown name lists them)
    python experiments/ks25.py --docs FOLDER      write into another folder

Every part builds networks, certifies them (a network that is not proved stops the script), writes its table between the
markers of ks25.md and plots its picture.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from doc_tables import insert, markdown

import byheart
from byheart.ir.size import uniform_parameters
from byheart.memory import Memory
from byheart.plots.bounds import exponent
from byheart.plots.style import colour, label_axes, marker, new_figure, save, styled
from byheart.theory import lower_bound
from byheart.theory.theorems import transformer, worst_case

Table = list[list[str]]


def proved(rows: Any, labels: Any, construction: str, task: str = "next-token", **options: Any) -> Memory:
    """Built and certified, or the script stops."""
    memory = byheart.memorize(
        rows, labels, construction=construction, task=task, positions=False, progress=False, **options
    )
    if memory.certificate.verdict != "proved":
        raise SystemExit(f"{construction} {options}: {memory.certificate.reason}")
    return memory


def vectors(N: int, n: int, d: int, seed: int = 0) -> list[list[tuple[float, ...]]]:
    """N rows of n vectors of thousandths, normally distributed; nearly all of them different."""
    points = np.random.default_rng(seed).normal(size=(N, n, d)).round(3)
    return [[tuple(point) for point in row] for row in points.tolist()]


def symbols(N: int, n: int, vocabulary: int, seed: int = 0) -> list[list[int]]:
    return np.random.default_rng(seed).integers(0, vocabulary, size=(N, n)).tolist()


def classes(shape: Any, C: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(0, C, size=shape).tolist()


def number(value: float) -> str:
    return f"{value:,.0f}"


# --- guaranteed and measured, theorem by theorem


def sizes(docs: Path) -> None:
    """Every construction and form on data of one size: guaranteed and measured sizes."""
    N, n, d, C = 200, 8, 4, 10
    rows, labels = vectors(N, n, d), classes(N, C)
    short, each = vectors(40, n, d), classes((40, n), C)
    words = symbols(N, n, 500)
    ragged = [row[: 1 + i % n] for i, row in enumerate(words)]
    first = {tuple(sorted(row)): label for row, label in zip(ragged, labels, strict=True)}
    sets = [list(row) for row in first]
    jobs: list[tuple[str, str, str, Any, Any, dict[str, Any]]] = [
        ("Theorem B.1", "ks25", "next-token", rows, labels, {}),
        ("Corollary 4.1", "ks25", "seq-to-seq", short, each, {}),
        ("Theorem D.1", "ks25-sets", "set", sets, list(first.values()), {}),
        ("Theorem E.1", "ks25-embedding", "next-token", words, labels, {}),
        ("Theorem F.1, B = 4", "ks25-limited", "next-token", rows, labels, {"bits_parameter": 4}),
        ("Remark 4.5", "ks25-sparse", "next-token", rows, labels, {}),
    ]
    table = [["statement", "construction", "form", "constants", "width", "depth", "bits", "parameters", "not zero"]]
    for name, construction, task, data, known, options in jobs:
        for form in ("plain", "residual"):
            for constants in ("paper", "measured"):
                memory = proved(data, known, construction, task, form=form, constants=constants, **options)
                size, bounds = memory.size, memory.claim.bounds
                pairs = [
                    f"{number(getattr(size, key))} ≤ {number(bounds[key])}"
                    for key in ("width", "depth", "max_bits", "parameters")
                ]
                table.append([name, f"`{construction}`", form, constants, *pairs, number(size.nonzero)])
                print(*table[-1], flush=True)
    write(docs, "sizes", table)


# --- growth


def length(docs: Path) -> None:
    """Next-token: parameters against the length n of the sequences, at a fixed number N of them."""
    N, d, C = 100, 4, 2
    lengths = [4, 8, 16, 64, 256, 1024]
    built, guaranteed = [], []
    table = [["n", *map(str, lengths)]]
    for n in lengths:
        memory = proved(vectors(N, n, d), classes(N, C), "ks25")
        built.append(memory.size.parameters)
        guaranteed.append(_paper_guarantee(memory))
        print("length", n, built[-1], memory.seconds, flush=True)
    least = int(lower_bound(task="next-token", N=N, n=8, d=d, C=C).parameters)
    table.append(["parameters, built", *map(number, built)])
    table.append(["guaranteed by Theorem B.1", *map(number, guaranteed)])
    table.append(["built, relative to n = 8", *(f"{value / built[1]:.2f}" for value in built)])
    write(docs, "length", table)
    with styled():
        figure = new_figure(width=7.0, height=4.4)
        axes = figure.axes[0]
        axes.plot(lengths, guaranteed, "--", color="#7F7F7F", label="KS25's guarantee: log n only")
        axes.plot(lengths, built, marker(0) + "-", color=colour(0), label="ks25, built and certified")
        axes.axhline(least, linestyle=":", color="#000000", label="no network below")
        label_axes(axes, f"Next-token: {N} sequences, whatever their length", "sequence length n", "parameters")
        axes.legend()
    save(figure, docs / "pictures" / "ks25-length.png")


def _paper_guarantee(memory: Memory) -> int:
    data = memory.dataset
    if data is None:
        raise SystemExit("the memory has no data set")
    setting = worst_case(
        data.N,
        data.n,
        data.d,
        data.C,
        r_squared=data.separation.r_squared,
        delta_squared=data.separation.delta_squared or 1,
        every_token=data.labels.ndim == 2,
    )
    return transformer(setting, "residual").parameters


def tokens(docs: Path) -> None:
    """Seq-to-seq: parameters against the number nN of labels."""
    pairs = [(16, 8), (32, 8), (64, 8), (64, 16), (128, 16), (256, 16), (256, 32)]
    counts, built, guaranteed = [], [], []
    for N, n in pairs:
        memory = proved(vectors(N, n, 4), classes((N, n), 2), "ks25", "seq-to-seq")
        counts.append(N * n)
        built.append(memory.size.parameters)
        guaranteed.append(_paper_guarantee(memory))
        print("tokens", N, n, built[-1], memory.seconds, flush=True)
    slope = exponent(counts, built)
    table = [["N × n", *(f"{N} × {n}" for N, n in pairs)], ["nN", *map(number, counts)]]
    table += [["parameters, built", *map(number, built)], ["guaranteed by Corollary 4.1", *map(number, guaranteed)]]
    write(docs, "tokens", table, f"Built networks grow like (nN)^{slope:.2f}.")
    with styled():
        figure = new_figure(width=7.0, height=4.4)
        axes = figure.axes[0]
        axes.plot(
            counts,
            guaranteed,
            "--",
            color="#7F7F7F",
            label=f"KS25's guarantee, (nN)^{exponent(counts, guaranteed):.2f}",
        )
        axes.plot(counts, built, marker(0) + "-", color=colour(0), label=f"ks25, built: (nN)^{slope:.2f}")
        label_axes(axes, "Seq-to-seq: one label per token", "labels nN", "parameters")
        axes.legend()
    save(figure, docs / "pictures" / "ks25-tokens.png")


def bits(docs: Path) -> None:
    """Limited bits: parameters and their length against B."""
    N, C = 256, 2
    rows, labels = vectors(N, 4, 2), classes(N, C)
    chosen = [1, 2, 4, 8, 16]
    built = [proved(rows, labels, "ks25-limited", constants="paper", bits_parameter=B) for B in chosen]
    table = [["B", *map(str, chosen)]]
    table.append(["bits per weight, measured", *(str(m.size.max_bits) for m in built)])
    table.append(["bits per weight, guaranteed", *(str(m.claim.bounds["max_bits"]) for m in built)])
    table.append(["parameters, measured", *(number(m.size.parameters) for m in built)])
    table.append(["parameters, guaranteed", *(number(m.claim.bounds["parameters"]) for m in built)])
    table.append(["parameters × bits", *(number(m.size.parameters * m.size.max_bits) for m in built)])
    table.append(["total bits, measured", *(number(m.size.total_bits) for m in built)])
    write(docs, "bits", table)
    with styled():
        figure = new_figure(width=7.0, height=4.4)
        axes = figure.axes[0]
        series = {
            "parameters": [m.size.parameters for m in built],
            "bits of the longest weight": [m.size.max_bits for m in built],
            "parameters × bits": [m.size.parameters * m.size.max_bits for m in built],
        }
        for place, (name, values) in enumerate(series.items()):
            axes.plot(chosen, values, marker(place) + "-", color=colour(place), label=name)
        label_axes(axes, f"Short weights or few weights: {N} sequences", "B", "")
        axes.set_xticks(chosen, [str(B) for B in chosen])
        axes.legend()
    save(figure, docs / "pictures" / "ks25-bits.png")


def total(docs: Path) -> None:
    """All bits of all weights against the N·log2 C bits that the labels carry."""
    C = 16
    counts = [50, 100, 200, 400, 800, 1600]
    built = [proved(vectors(N, 8, 4), classes(N, C), "ks25") for N in counts]
    need = [math.ceil(N * math.log2(C)) for N in counts]
    held = [m.size.total_bits for m in built]
    table = [["N", *map(str, counts)], ["N·log2 C", *map(number, need)], ["total bits", *map(number, held)]]
    table.append(["bits per bit of label", *(f"{h / m:.1f}" for h, m in zip(held, need, strict=True))])
    slope = exponent(counts, held)
    write(docs, "total", table, f"Total bits grow like N^{slope:.2f}: proportional to the labels, up to logarithms.")
    with styled():
        figure = new_figure(width=7.0, height=4.4)
        axes = figure.axes[0]
        axes.plot(counts, held, marker(0) + "-", color=colour(0), label=f"ks25, all bits of all weights: N^{slope:.2f}")
        axes.plot(counts, need, ":", color="#000000", label="N·log2 C: no network below")
        label_axes(axes, "Bits: stored by the network and carried by the labels", "sequences N", "bits")
        axes.legend()
    save(figure, docs / "pictures" / "ks25-total.png")


# --- shapes: eq. (4) as printed, and Remark 3.1


def shapes(docs: Path) -> None:
    """The same memory as fitted blocks, as eq. (4) stores it, and without E_in, for tokens of several dimensions."""
    N, n, C = 100, 4, 4
    table = [["d", "fitted", "eq. (4), counted", "eq. (4), built", "without E_in", "eq. (4) without E_in", "blocks"]]
    for d in (10, 20, 40, 80):
        rows, labels = vectors(N, n, d), classes(N, C)
        kinds: list[dict[str, Any]] = [{}, {"shape": "uniform"}, {"input_map": False}]
        kinds.append({"shape": "uniform", "input_map": False})
        built = [proved(rows, labels, "ks25", attention="softmax", **options) for options in kinds]
        stored = [number(memory.size.parameters) for memory in built]
        counted = number(uniform_parameters(built[0].network) or 0)
        table.append([str(d), stored[0], counted, *stored[1:], number(built[1].size.blocks)])
        print(table[-1], flush=True)
    write(docs, "shapes", table)


# --- bounded depth


def depth(docs: Path) -> None:
    """V22's trade-off: weights against the depth that is allowed."""
    N, C = 1000, 2
    rows, labels = symbols(N, 6, 20), classes(N, C)
    depths = [60, 80, 110, 150, 200, 270, 360]
    table = [["depth L", "`vardi22`: lanes", "weights not zero", "stored dense", "× L / N", "`ks25`: lanes"]]
    table[0] += ["weights not zero", "stored dense", "× L / N"]
    found: dict[str, list[Memory]] = {"vardi22": [], "ks25": []}
    for L in depths:
        row = [str(L)]
        for construction, built in found.items():
            built.append(proved(rows, labels, construction, depth=L))
            size = built[-1].size
            lanes = max(1, round(size.width / 14))
            row += [str(lanes), number(size.nonzero), number(size.parameters), f"{size.nonzero * L / N:.0f}"]
        table.append(row)
        print(row, flush=True)
    write(docs, "depth", table)
    with styled():
        figure = new_figure(width=7.0, height=4.4)
        axes = figure.axes[0]
        for place, (construction, built) in enumerate(found.items()):
            actual = [memory.size.depth for memory in built]
            axes.plot(
                actual, [m.size.nonzero for m in built], marker(place) + "-", color=colour(place),
                label=f"{construction}, weights that are not zero",
            )  # fmt: skip
            axes.plot(
                actual, [m.size.parameters for m in built], marker(place) + ":", color=colour(place),
                fillstyle="none", label=f"{construction}, stored dense",
            )  # fmt: skip
        start = found["vardi22"][0].size.nonzero * depths[0]
        axes.plot(depths, [start / L for L in depths], "--", color="#7F7F7F", label="N/L")
        label_axes(axes, f"Depth for width: {N:,} rows, two classes", "depth", "weights")
        axes.legend()
    save(figure, docs / "pictures" / "ks25-depth.png")


# --- universal approximation


def approximate(docs: Path) -> None:
    """sin on [−3, 3] to smaller and smaller errors: cells, levels, parameters, and the largest error that was met."""
    table = [["error", "cells", "levels", "parameters, `compact`", "verdict", "largest error at 20,001 points"]]
    for error in (0.5, 0.2, 0.1, 0.05, 0.02, 0.01):
        found = byheart.approximate(math.sin, lipschitz=1, error=error, low=-3, high=3, noise=1e-15)
        points = np.linspace(-3, 3, 20_001).tolist()
        met = max(abs(float(v) - math.sin(x)) for v, x in zip(found.values([[x] for x in points]), points, strict=True))
        levels = len(set(found.values([[x] for x in points])))
        size, verdict = found.memory.size, found.memory.certificate.verdict.value
        table.append([f"{error}", number(found.cells), number(levels), number(size.parameters), verdict, f"{met:.4f}"])
        print(table[-1], flush=True)
    write(docs, "approximate", table)


# --- the page


def write(docs: Path, name: str, table: Sequence[Sequence[str]], sentence: str = "") -> None:
    insert(docs / "research" / "ks25.md", name, markdown(table, sentence))


PARTS: dict[str, Callable[[Path], None]] = {
    "sizes": sizes,
    "length": length,
    "tokens": tokens,
    "bits": bits,
    "total": total,
    "shapes": shapes,
    "depth": depth,
    "approximate": approximate,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--docs", type=Path, default=Path(__file__).parent.parent / "docs")
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; parts are {', '.join(PARTS)}")
    for name in arguments.parts or PARTS:
        PARTS[name](arguments.docs)


if __name__ == "__main__":
    main()
