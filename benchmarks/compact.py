"""The compact memory: parameters and seconds beside its limit, the parity memory it replaced, ks25 and the lower bound.

    python benchmarks/compact.py                          N = 10^3 and 10^4, two and sixteen classes (a few minutes)
    python benchmarks/compact.py --sizes 1000,10000 --classes 2 --parity --picture docs/pictures/compact-sizes.png
    python benchmarks/compact.py --picture docs/pictures/compact-sizes.png --redraw       from the numbers beside it
    python benchmarks/compact.py --efforts quick,normal,high --sizes 10000      parameters against seconds
    python benchmarks/compact.py --codes 42000            short codes with 60 labels of several kinds
    python benchmarks/compact.py --text FILE              its first 100,000 characters, to be recited

Rows have 8 tokens; a third are random, the others permutations or one-token edits of them. Sizes count the whole
Transformer, and every memory must be proved; awkward_ids.py measures ids that are not random. Lines are rows of a
Markdown table. `--parity` takes the last version that had the parity memory out of git's history and runs it on the
same rows, in the same run. Processor seconds are those of build and proof together, on all cores; on a busy machine
they are longer than on a free one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import string
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import byheart

PARITY = "81c0c75"  # the last commit with the parity memory
LIMIT = 2 * math.sqrt(6)  # of lines over folds that are fixed beforehand: docs/compact.md, Lemma 4
TEXT = 100_000  # characters
Rows = tuple[list[tuple[int, ...]], list[int]]
Measured = tuple[int, int, dict[str, float], dict[str, float] | None]  # rows, classes, compact, parity


def rows(count: int, vocabulary: int, classes: int, seed: int) -> Rows:
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


def measure(construction: str, given: Any, positions: bool = False, **options: object) -> dict[str, float]:
    """Parameters and seconds of one memory, which must be proved; `given` are rows and labels, or a text."""
    processor = time.process_time()
    if isinstance(given, str):
        memory = byheart.memorize_text(given, construction=construction, progress=False, **options)
    else:
        if construction in ("compact", "native"):
            options = {"abstain_bits": 0} | options
        memory = byheart.memorize(*given, construction=construction, positions=positions, progress=False, **options)
    if memory.certificate.verdict.value != "proved":
        raise SystemExit(f"{construction}: {memory.certificate.verdict.value}, {memory.certificate.reason}")
    return {
        "parameters": memory.size.parameters,
        "contexts": memory.certificate.contexts,
        "classes": len(memory.classes),
        "promised": memory.claim.bounds.get("parameters", 0),
        "total_bits": memory.size.total_bits,
        "build": memory.seconds["build"],
        "certify": memory.seconds["certify"],
        "processor": time.process_time() - processor,
    }


CHILD = """
import json, sys, time, byheart
given = json.load(open(sys.argv[1]))
byheart.memorize(given[0][:600], given[1][:600], positions=False, progress=False)   # compiles
start = time.process_time()
memory = byheart.memorize(*given, positions=False, progress=False)
print(json.dumps({"parameters": memory.size.parameters, "verdict": memory.certificate.verdict.value,
    "build": memory.seconds["build"], "certify": memory.seconds["certify"], "processor": time.process_time() - start}))
"""


def parity(given: Rows) -> dict[str, float] | None:
    """The same rows with the version of PARITY, from git's history; None where there is no history."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", PARITY, "src"], capture_output=True, check=False)
        if archive.returncode:
            return None
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        data = Path(folder, "rows.json")
        data.write_text(json.dumps(given))
        environment = {**os.environ, "PYTHONPATH": f"{folder}/src"}
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(data)], capture_output=True, env=environment, check=True
        )
        found: dict[str, float] = json.loads(done.stdout)
        return found


COLUMNS = (
    "rows", "C", "effort", "parameters", "/√(contexts·log2 C)", "promised", "limit", "lower bound",
    "bits per label bit", "processor s", "of them proof", "parity (before)",
)  # fmt: skip


def head() -> None:
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)


def show(name: str, effort: str, found: dict[str, float], old: dict[str, float] | None = None) -> None:
    """One row of the table. The proof's processor seconds are estimated by its share of the wall-clock time."""
    contexts, classes = int(found["contexts"]), int(found["classes"])
    bits = math.log2(classes)
    root = math.sqrt(contexts * bits)
    least = byheart.lower_bound(task="next-token", N=contexts, n=8, d=1, C=classes).parameters
    proof = found["processor"] * found["certify"] / (found["build"] + found["certify"])
    cells = (
        name, classes, effort, f"{found['parameters']:,}", f"{found['parameters'] / root:.2f}",
        f"{found['promised']:,}", f"{LIMIT * root:,.0f}", f"{least:,}",
        f"{found['total_bits'] / contexts / bits:.2f}", f"{found['processor']:.1f}", f"{proof:.1f}",
        f"{old['parameters']:,}, {old['processor']:.1f} s" if old else "",
    )  # fmt: skip
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def codes(count: int, kind: str, classes: int = 60) -> tuple[list[str], list[int]]:
    """Different codes of 3 to 7 letters and digits; labels uniform, by Zipf's law, or alike among neighbours."""
    rng = random.Random(f"codes {kind}")
    letters = string.ascii_uppercase + string.digits
    found: set[str] = set()
    while len(found) < count:
        found.add("".join(rng.choices(letters, k=rng.randint(3, 7))))
    ordered = sorted(found)
    weights = [1.0 if kind == "uniform" else 1 / (k + 2) for k in range(classes)]
    labels = rng.choices(range(classes), weights, k=count)
    if kind == "by prefix":  # four in five have the label of their first two letters
        common: dict[str, int] = {}
        labels = [
            common.setdefault(c[:2], y) if rng.random() < 0.8 else y for c, y in zip(ordered, labels, strict=True)
        ]
    if kind == "runs":  # three neighbours, on average, share a label
        for k in range(1, count):
            labels[k] = labels[k - 1] if rng.random() < 2 / 3 else labels[k]
    order = rng.sample(range(count), count)
    return [ordered[k] for k in order], [labels[k] for k in order]


def keep(path: Path, found: list[Measured], ks25: dict[int, dict[str, float]]) -> None:
    """What was measured so far, beside the picture: a drawing needs no second run."""
    given = {"command": " ".join(sys.argv[1:]), "rows": found, "ks25": list(ks25.items())}
    path.with_suffix(".json").write_text(json.dumps(given, indent=1) + "\n")


def redraw(path: Path) -> None:
    """The picture from the numbers beside it."""
    given = json.loads(path.with_suffix(".json").read_text())
    picture(path, [tuple(row) for row in given["rows"]], dict(given["ks25"]))


def picture(path: Path, found: list[Measured], ks25: dict[int, dict[str, float]]) -> None:
    """Parameters and processor seconds against N; further numbers of classes as lines of compact alone."""
    from byheart.plots.style import colour, label_axes, new_figure, save, styled

    kinds = list(dict.fromkeys(classes for _, classes, _, _ in found))
    series = [[(n, c, o) for n, k, c, o in found if k == classes] for classes in kinds]
    figure = new_figure(columns=2)
    sized, timed = figure.axes
    with styled():
        for axes, what in ((sized, "parameters"), (timed, "processor")):
            if ks25:
                axes.plot(list(ks25), [k[what] for k in ks25.values()], "^-", color=colour(3), label="ks25")
            old = [(n, o[what]) for n, _, o in series[0] if o]
            if old:
                name = "parity (previous version)"
                axes.plot([n for n, _ in old], [v for _, v in old], "s-", color=colour(5), label=name)
            for place, (classes, points) in enumerate(zip(kinds, series, strict=True)):
                values = [c[what] for _, c, _ in points]
                name = "compact" if len(kinds) == 1 else f"compact, C = {classes}"
                axes.plot([n for n, _, _ in points], values, "oD"[place % 2] + "-", color=colour(place), label=name)
        sizes = [n for n, _, _ in series[0]]
        roots = [math.sqrt(c["contexts"] * math.log2(kinds[0])) for _, c, _ in series[0]]
        least = [
            byheart.lower_bound(task="next-token", N=int(c["contexts"]), n=8, d=1, C=kinds[0]).parameters
            for _, c, _ in series[0]
        ]
        words = f"4.90·√N: folds fixed beforehand, C = {kinds[0]}"
        sized.plot(sizes, [LIMIT * r for r in roots], "--", color=colour(6), label=words)
        sized.plot(sizes, least, ":", color=colour(7), label="worst-case lower bound")
        beside = f"; ks25, parity: C = {kinds[0]}" if len(kinds) > 1 else f", C = {kinds[0]}"
        label_axes(sized, f"Parameters that memorize N rows{beside}", "N", "parameters")
        label_axes(timed, "Build and proof", "N", "processor seconds")
        sized.legend()
        timed.legend()
        save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="1000,10000")
    parser.add_argument("--classes", default="2,16")
    parser.add_argument("--vocabulary", type=int, default=5000)
    parser.add_argument("--efforts", default="normal")
    parser.add_argument("--objective", default="parameters")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parity", action="store_true", help="also measure the previous version, from git's history")
    parser.add_argument("--ks25", default="100,300", help="sizes at which ks25 is built; empty for none")
    parser.add_argument("--picture", type=Path, help="draw it here, and keep the numbers beside it")
    parser.add_argument("--redraw", action="store_true", help="only --picture, from the numbers beside it")
    parser.add_argument("--codes", type=int, help="only codes with 60 labels, this many")
    parser.add_argument("--text", type=Path, help="only a text")
    arguments = parser.parse_args()
    if arguments.redraw:
        redraw(arguments.picture)
        return
    sizes = [int(n) for n in arguments.sizes.split(",")]
    kinds = [int(c) for c in arguments.classes.split(",")]
    efforts = arguments.efforts.split(",")
    head()
    if arguments.codes or arguments.text:
        for effort in efforts:
            for kind in ("uniform", "skewed", "by prefix", "runs") if arguments.codes else ():
                rows_of_kind = codes(arguments.codes, kind)
                show(f"codes, {kind}", effort, measure("compact", rows_of_kind, positions=True, effort=effort))
            if arguments.text:
                text = arguments.text.read_text(encoding="utf-8")[:TEXT]
                show(f"{len(text):,} characters", effort, measure("compact", text, effort=effort))
        return
    found: list[Measured] = []
    for classes in kinds:
        for count in sizes:
            given = rows(count, arguments.vocabulary, classes, arguments.seed)
            old = parity(given) if arguments.parity else None
            for effort in efforts:
                compact = measure("compact", given, effort=effort, objective=arguments.objective, seed=arguments.seed)
                show(f"{count:,}", effort, compact, old)
            found.append((count, classes, compact, old))
            if arguments.picture:
                keep(arguments.picture, found, {})
    ks25: dict[int, dict[str, float]] = {}
    for count in map(int, filter(None, arguments.ks25.split(","))):
        built = measure("ks25", rows(count, arguments.vocabulary, kinds[0], arguments.seed))
        ks25[count] = built
        words = f"{built['parameters']:,} parameters, {built['processor']:.1f} s"
        print(f"N={count} C={kinds[0]} ks25: {words}", flush=True)
    if arguments.picture:
        keep(arguments.picture, found, ks25)
        picture(arguments.picture, found, ks25)


if __name__ == "__main__":
    main()
