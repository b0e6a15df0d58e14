"""The first minutes of a new user, timed: every path as commands in an empty folder, with what came out.

    python benchmarks/first_minutes.py                  # with this Python
    python benchmarks/first_minutes.py --fresh          # in a new environment, installation included
    python benchmarks/first_minutes.py --only deploy    # some paths

Seven kinds of people come: with scikit-learn, with PyTorch, with a table for ONNX Runtime, with a notebook, for the
theory, with an engine to test, to learn. The tables are made here, so nothing but byheart is needed. A path is at most
three commands and, where a deployed model is queried, three lines of Python without byheart.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROWS = 40_000
ASK = "import onnxruntime; s = onnxruntime.InferenceSession('model.onnx'); print(s.run(None, {feeds}))"


@dataclass(frozen=True)
class Step:
    """One command of a user; `refused`: it is expected to name the mistake, with the flags to add."""

    arguments: tuple[str, ...]
    refused: bool = False


@dataclass(frozen=True)
class Journey:
    """What a user wants, the file that they have, and the commands that they type."""

    name: str
    make: Callable[[Path], None]
    steps: tuple[Step, ...]


def byheart(*arguments: str, refused: bool = False) -> Step:
    return Step(("-m", "byheart", *arguments), refused)


def python(code: str) -> Step:
    return Step(("-c", code))


def write(path: Path, rows: list[list[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def postal_codes(folder: Path) -> None:
    """Codes with a space in six regions."""
    rng, letters = random.Random(1), "ABCDEFGHJKLMNPRSTUVWXY"
    codes = {"AA00 0AA"}
    while len(codes) < ROWS:
        first = "".join(rng.choice(letters) for _ in range(rng.randint(1, 2)))
        codes.add(f"{first}{rng.randint(1, 99)} {rng.randint(1, 9)}{rng.choice(letters)}{rng.choice(letters)}")
    regions = ["north", "south", "east", "west", "mid", "isles"]
    write(folder / "codes.csv", [["code", "region"], *([code, rng.choice(regions)] for code in sorted(codes))])


def people(folder: Path) -> None:
    """Spaces, quotes, unicode, decimals, a row number, empty cells and rows that contradict each other."""
    rng = random.Random(5)
    first = ["José", "Anna", "李", "O'Brien", "Mary Ann", '"Q"', "Ana-María", "Ørsted"]
    cities = ["São Paulo", "New York", "Los Angeles, CA", "東京", 'A "quoted" town']
    tiers = ["gold", "bronze, old", 'no "class"']
    rows: list[list[object]] = [
        [k + 1, f"{rng.choice(first)} {rng.choice('ABCDEFGH')}{rng.randint(0, 99999)}", rng.choice(cities),
         f"{rng.uniform(0, 1000):.2f}", rng.randint(18, 99), rng.choice(tiers)]
        for k in range(ROWS)
    ]  # fmt: skip
    rows[0] = [1, "Ann", "Rome", "12.50", 40, "gold"]
    for row in rng.sample(rows[1:], 300):
        row[rng.randint(1, 5)] = ""
    for row in rng.sample(rows[1:], 200):
        row[1:5] = rng.choice(rows)[1:5]
    write(folder / "people.csv", [["uid", "name", "city", "spent", "age", "tier"], *rows])


def measurements(folder: Path) -> None:
    """Twenty columns of decimals."""
    rng = random.Random(3)
    rows = [[round(rng.gauss(5, 2), 3) for _ in range(20)] + [rng.choice("abc")] for _ in range(5_000)]
    rows[0] = [*(k / 4 for k in range(20)), "a"]
    write(folder / "sensors.csv", [[*(f"s{k}" for k in range(20)), "kind"], *rows])


def words(folder: Path) -> None:
    rng = random.Random(4)
    rows = [["".join(rng.choice("aeioulnrst") for _ in range(7)), rng.choice(["yes", "no"])] for _ in range(1_000)]
    write(folder / "words.csv", [["word", "answer"], *dict(rows).items()])


def poem(folder: Path) -> None:
    (folder / "poem.txt").write_text(
        "The sun was warm but the wind was chill.\nYou know how it is with an April day.\n"
    )


def flowers(folder: Path) -> None:
    """The iris table, as scikit-learn ships it."""
    from sklearn.datasets import load_iris

    load_iris(as_frame=True).frame.to_csv(folder / "iris.csv", index=False)


def digits(folder: Path) -> None:
    """1,797 pictures of 64 numbers."""
    from sklearn.datasets import load_digits

    load_digits(as_frame=True).frame.to_csv(folder / "digits.csv", index=False)


def notebook(folder: Path) -> None:
    """The notebook of the documentation, as it is."""
    source = Path(__file__).resolve().parents[1] / "examples" / "notebooks" / "table_deployed.ipynb"
    shutil.copy(source, folder)


SKLEARN = """
from sklearn.datasets import load_digits
from byheart.sklearn import MemoryClassifier
X, y = load_digits(return_X_y=True)
model = MemoryClassifier().fit(X, y)
print(model.score(X, y), model.memory_.certificate.verdict, model.predict(X[:1] + 0.5))
"""
TORCH = """
import byheart
memory = byheart.memorize(byheart.read("words.csv"), construction="native", progress=False)
module = memory.to_torch()
rows = byheart.read("words.csv").sequences
print(module.answers(rows[:2]), module.answers([list("zz")]))
"""
NOTEBOOK = """
import nbclient, nbformat
notebook = nbformat.read("table_deployed.ipynb", 4)
nbclient.NotebookClient(notebook, kernel_name="python3").execute()
print(sum(cell.cell_type == "code" for cell in notebook.cells), "cells ran")
"""
FLAGS = ("--drop", "uid", "--missing", "drop", "--conflicts", "first")
PATHS = (
    Journey("deploy postal codes", postal_codes, (
        byheart("deploy", "codes.csv", "-o", "model.onnx"),
        python(ASK.format(feeds="{'code': ['AA00 0AA', 'never seen']}")),
    )),
    Journey("deploy a table with everything", people, (
        byheart("deploy", "people.csv", "-o", "model.onnx", refused=True),
        byheart("deploy", "people.csv", "-o", "model.onnx", *FLAGS),
        python(ASK.format(feeds="{'name': ['Ann'], 'city': ['Rome'], 'spent': [12.5], 'age': [40.0]}")),
    )),
    Journey("deploy 20 columns of decimals", measurements, (
        byheart("deploy", "sensors.csv", "-o", "model.onnx"),
        python(ASK.format(feeds="{'rows': [[k / 4 for k in range(20)]]}")),
    )),
    Journey("deploy iris", flowers, (
        byheart("deploy", "iris.csv", "--label", "target", "--conflicts", "first", "-o", "model.onnx"),
        python(ASK.format(feeds="{'rows': [[5.1, 3.5, 1.4, 0.2]]}")),
    )),
    Journey("deploy digits", digits, (
        byheart("deploy", "digits.csv", "--label", "target", "-o", "model.onnx"),
        python(ASK.format(feeds="{'rows': [[7] * 64]}")),
    )),
    Journey("memorize decimals for ONNX", measurements, (
        byheart("memorize", "sensors.csv", "--sequence-column", "*", "--label-column", "kind", "--token-type", "float",
                "--for", "onnx", "-o", "sensors.byheart"),
        byheart("export", "sensors.byheart", "--to", "onnx", "-o", "sensors.onnx"),
    )),
    Journey("scikit-learn", words, (python(SKLEARN),)),
    Journey("PyTorch", words, (python(TORCH),)),
    Journey("a notebook", notebook, (python(NOTEBOOK),)),
    Journey("the theory", words, (
        byheart("paper", "Thm 4.1"),
        byheart("bounds", "--N", "10000", "--n", "8", "--C", "16"),
        byheart("compare", "words.csv", "--max-rows", "100"),
    )),
    Journey("an engine to test", poem, (
        byheart("fixture", "--arch", "qwen3", "-o", "tiny-qwen3"),
        Step(("-m", "pytest", "-q", "-p", "no:cacheprovider", "tiny-qwen3")),
    )),
    Journey("to learn", words, (byheart("explain", "-o", "page.html"),)),
    Journey("memorize, verify, ask", words, (
        byheart("memorize", "words.csv", "-o", "words.byheart"),
        byheart("verify", "words.byheart", "words.csv"),
    )),
    Journey("recite a text", poem, (
        byheart("memorize", "poem.txt", "--task", "causal", "-o", "poem.byheart"),
        byheart("recite", "poem.byheart"),
    )),
)  # fmt: skip


def fresh_python(folder: Path) -> tuple[str, float]:
    """A new environment with byheart of this source in it, and the seconds that took."""
    started = time.perf_counter()
    venv.create(folder, with_pip=True)
    program = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    root = Path(__file__).resolve().parents[1]
    wanted = [f"{root}[export,sklearn,decoder]", "nbclient", "ipykernel", "pandas", "pytest"]
    subprocess.run(
        [program, "-m", "pip", "install", "--quiet", "-c", str(root / "constraints.txt"), *wanted], check=True
    )
    return program, time.perf_counter() - started


def walk(path: Journey, program: str) -> list[dict[str, object]]:
    """Runs the commands of a path in its own folder; one row for each."""
    found: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path.make(folder)
        for step in path.steps:
            started, before = time.perf_counter(), os.times()
            done = subprocess.run([program, *step.arguments], cwd=folder, capture_output=True, text=True, check=False)
            expected = done.returncode == (2 if step.refused else 0) and (not step.refused or "--" in done.stderr)
            lines = (done.stderr if step.refused else done.stdout).strip().splitlines() or [done.stderr.strip()[-300:]]
            found.append(
                {
                    "path": path.name,
                    "command": " ".join(step.arguments[1:])[:100],
                    "seconds": round(time.perf_counter() - started, 1),
                    "processor": round(os.times().children_user - before.children_user, 1),
                    "as_expected": expected,
                    "result": lines[-1][:160],
                }
            )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fresh", action="store_true", help="make a new environment first")
    parser.add_argument("--only", default="", help="paths whose names hold this")
    parser.add_argument("--json", action="store_true", help="one JSON object for each command")
    given = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as place:
        program = sys.executable
        if given.fresh:
            program, seconds = fresh_python(Path(place) / "env")
            print(f"a new environment with byheart[export,sklearn,decoder]: {seconds:.0f} s", flush=True)
        for path in PATHS:
            if given.only in path.name:
                for row in walk(path, program):
                    failed += not row["as_expected"]
                    if given.json:
                        print(json.dumps(row, ensure_ascii=False), flush=True)
                    else:
                        mark = "" if row["as_expected"] else "  NOT AS EXPECTED"
                        times = f"{row['seconds']:>7} s ({row['processor']} of a processor)"
                        print(f"{row['path']:32} {times}  {row['command']}{mark}\n    {row['result']}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
