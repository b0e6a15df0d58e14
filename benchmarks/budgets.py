"""How much of its budget of parameters `compact` or `native` takes: built on random, adversarial and real rows.

    python benchmarks/budgets.py compact --sizes 1,3,10,100,1000            the whole grid (minutes)
    python benchmarks/budgets.py native --sizes 10,1000 --options dtype=float32
    python benchmarks/budgets.py compact --sizes 100000 --kinds random,edits --rest 16
    python benchmarks/budgets.py native --folder DATA                      JSON Lines and texts of a folder as well

One line per memory: what it is, parameters, guaranteed, share. At the end the largest shares and everything that was
refused. A share above 1 cannot be printed: the builder refuses such a memory, which is what this looks for.
"""

from __future__ import annotations

import argparse
import html.entities
import json
import random
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import byheart
from byheart.errors import ByheartError

Row = tuple[Any, ...]
Kind = Callable[[int, random.Random], list[Row]]
KINDS: dict[str, Kind] = {}
LABELS = ("2", "3", "16", "300", "distinct", "skewed")
SHAPES = ("next-token", "next-token placed", "seq-to-seq", "set", "causal placed", "causal")


def kind(function: Kind) -> Kind:
    KINDS[function.__name__] = function
    return function


def _filled(count: int, draw: Callable[[], Row]) -> list[Row]:
    """Different rows, as many as requested or as a while of sampling gives."""
    found: dict[Row, None] = {}
    for _ in range(20 * count + 100):
        if len(found) == count:
            break
        found.setdefault(draw())
    return list(found)


@kind
def random_rows(count: int, rng: random.Random) -> list[Row]:
    return _filled(count, lambda: tuple(rng.randrange(5000) for _ in range(8)))


@kind
def one_token(count: int, rng: random.Random) -> list[Row]:
    return [(number,) for number in range(count)]


@kind
def progressions(count: int, rng: random.Random) -> list[Row]:
    return _filled(count, lambda: tuple(range(a := rng.randrange(4 * count), a + 5 * (s := rng.randrange(1, 9)), s)))


@kind
def edits(count: int, rng: random.Random) -> list[Row]:
    base = [rng.randrange(60) for _ in range(12)]

    def draw() -> Row:
        row = list(base)
        for _ in range(rng.randint(1, 3)):
            row[rng.randrange(12)] = rng.randrange(60)
        return tuple(row)

    return _filled(count, draw)


@kind
def permutations(count: int, rng: random.Random) -> list[Row]:
    return _filled(count, lambda: tuple(rng.sample(range(10), 10)))


@kind
def clusters(count: int, rng: random.Random) -> list[Row]:
    """Whole numbers far apart and close together: powers of two and their neighbours."""
    return _filled(count, lambda: tuple((1 << rng.randrange(0, 60)) + rng.randrange(9) for _ in range(4)))


@kind
def bit_strings(count: int, rng: random.Random) -> list[Row]:
    length = max(1, (count - 1).bit_length())
    return [tuple(number >> k & 1 for k in range(length)) for number in range(count)]


@kind
def long_rows(count: int, rng: random.Random) -> list[Row]:
    """About a hundred thousand tokens in all: few rows are 400 long, many are shorter."""
    length = max(20, min(400, 100_000 // count))
    return _filled(count, lambda: tuple(rng.choices("acgt", k=length)))


@kind
def moving_symbol(count: int, rng: random.Random) -> list[Row]:
    count = min(count, 300)
    return [tuple(int(k == place) for k in range(count)) for place in range(count)]


@kind
def one_letter(count: int, rng: random.Random) -> list[Row]:
    return [("a",) * (k + 1) for k in range(min(count, 200))]


@kind
def vectors(count: int, rng: random.Random) -> list[Row]:
    return _filled(count, lambda: tuple((rng.randrange(256) / 16, float(rng.randrange(7))) for _ in range(3)))


@kind
def near_vectors(count: int, rng: random.Random) -> list[Row]:
    return _filled(count, lambda: tuple((1 + rng.randrange(1 << 16) * 2.0**-20, 0.5) for _ in range(2)))


@kind
def entities(count: int, rng: random.Random) -> list[Row]:
    return _sample([tuple(name.rstrip(";")) for name in html.entities.html5], count, rng)


@kind
def unicode_names(count: int, rng: random.Random) -> list[Row]:
    names = (unicodedata.name(chr(code), "") for code in range(0x20000))
    return _sample([tuple(name) for name in names if name], count, rng)


@kind
def library_words(count: int, rng: random.Random) -> list[Row]:
    words = {word for module in sys.stdlib_module_names for word in (module, *dir(sys.modules.get(module)))}
    return _sample([tuple(word) for word in sorted(words) if word], count, rng)


def _sample(rows: list[Row], count: int, rng: random.Random) -> list[Row]:
    rows = list(dict.fromkeys(rows))
    return rng.sample(rows, min(count, len(rows)))


def _from_folder(path: Path) -> Iterator[tuple[str, Kind]]:
    """Windows of a text; cut texts and word rows of JSON Lines."""
    for file in sorted(path.iterdir()):
        if file.suffix == ".txt":
            text = file.read_text()
            windows = [tuple(text[k : k + 12]) for k in range(0, min(len(text), 600_000), 3)]
            yield file.stem, lambda count, rng, rows=windows: _sample(rows, count, rng)
        elif file.suffix == ".jsonl":
            texts = [" ".join(map(str, json.loads(line).values())) for line in file.read_text().splitlines()]
            words = [tuple(text.split()[k : k + 9]) for text in texts for k in range(0, 90, 9)]
            letters = [tuple(text[k : k + 40]) for text in texts for k in range(0, 400, 40)]
            for name, rows in (("words", words), ("letters", letters)):
                rows = [row for row in rows if row]
                yield f"{file.stem} {name}", lambda count, rng, rows=rows: _sample(rows, count, rng)


def _label(name: str, count: int, rng: random.Random) -> Callable[[Any], Any]:
    """A label per context, the same whenever it is queried again."""
    known: dict[Any, Any] = {}
    draw: dict[str, Callable[[], int]] = {
        "distinct": lambda: len(known),
        "skewed": lambda: 0 if rng.random() < 0.97 else rng.randrange(1, 9),
    }
    return lambda key: (
        known[key] if key in known else known.setdefault(key, draw.get(name, lambda: rng.randrange(int(name)))())
    )


def case(rows: list[Row], shape: str, labels: str, rng: random.Random) -> tuple[list[Row], list[Any], dict[str, Any]]:
    """Rows and labels that are consistent for the shape, and how to memorize them."""
    task, placed = shape.split()[0], shape.endswith("placed")
    label = _label(labels, len(rows), rng)
    if task == "set":
        rows = list({tuple(sorted(row, key=repr)): row for row in rows}.values())
        given = [label(tuple(sorted(row, key=repr))) for row in rows]
    elif task == "next-token":
        longest = max(map(len, rows))
        wide = [(None,) * (longest - len(row)) + row for row in rows]  # what padding makes of them
        given = [label(row if placed else (row[-1], tuple(sorted(row, key=repr)))) for row in wide]
    elif task == "seq-to-seq":
        longest = max(map(len, rows))
        rows = [row for row in rows if len(row) == longest]
        given = [[label((token, tuple(sorted(row, key=repr)))) for token in row] for row in rows]
    else:
        start = (
            (lambda row, k: row[: k + 1])
            if placed
            else (lambda row, k: (row[k], tuple(sorted(row[: k + 1], key=repr))))
        )
        given = [[label(start(row, k)) for k in range(len(row))] for row in rows]
    return rows, given, {"task": task, "positions": placed}


def measure(
    construction: str, what: tuple[Any, ...], rows: list[Row], labels: list[Any], options: dict[str, Any]
) -> dict[str, Any]:
    started = time.process_time()
    if construction in ("compact", "native"):
        options = {"abstain_bits": 0} | options
    try:
        memory = byheart.memorize(rows, labels, construction=construction, progress=False, **options)
    except ByheartError as error:
        return {"what": what, "error": f"{type(error).__name__}: {error}"}
    guaranteed = memory.claim.bounds.get("parameters")
    return {
        "what": what,
        "K": memory.certificate.contexts,
        "parameters": memory.size.parameters,
        "promised": guaranteed,
        "share": round(memory.size.parameters / guaranteed, 3) if guaranteed else None,
        "verdict": memory.certificate.verdict.value,
        "seconds": round(time.process_time() - started, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("construction", choices=["compact", "native"])
    parser.add_argument("--sizes", default="1,3,10,100,1000")
    parser.add_argument("--kinds", default="")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--labels", default=",".join(LABELS))
    parser.add_argument("--options", default="", help="key=value,… of the construction")
    parser.add_argument("--folder", type=Path)
    parser.add_argument(
        "--most", type=int, default=20_000, help="tokens of one data set, at most, for causal and seq-to-seq"
    )
    parser.add_argument("--share", type=int, default=1, help="build every K-th case only")
    given = parser.parse_args()
    options = {k: int(v) if v.isdigit() else v for k, _, v in (p.partition("=") for p in given.options.split(",") if p)}
    kinds = dict(KINDS) | (dict(_from_folder(given.folder)) if given.folder else {})
    kinds = {name: kinds[name] for name in given.kinds.split(",")} if given.kinds else kinds
    found, number = [], 0
    for name, make in kinds.items():
        for size in map(int, given.sizes.split(",")):
            for shape in given.shapes.split(","):
                for labels in given.labels.split(","):
                    number += 1
                    if number % given.share:
                        continue
                    rng = random.Random(f"{name} {size} {shape} {labels}")
                    rows = make(size, rng)
                    if shape[0] in "c" or shape == "seq-to-seq":
                        while sum(map(len, rows)) > given.most and len(rows) > 1:
                            rows = rows[: len(rows) // 2]
                    rows, answers, how = case(rows, shape, labels, rng)
                    line = measure(given.construction, (name, size, shape, labels), rows, answers, how | options)
                    print(json.dumps(line), flush=True)
                    found.append(line)
    summary(found)


def summary(found: list[dict[str, Any]]) -> None:
    built = sorted((line for line in found if line.get("share")), key=lambda line: -line["share"])
    print(f"{len(found)} cases, {len(built)} with a budget; the largest shares:")
    for line in built[:12]:
        print(
            f"  {line['share']}  {line['parameters']:,} of {line['promised']:,}  {' · '.join(map(str, line['what']))}"
        )
    for line in found:
        if "error" in line or line["verdict"] != "proved":
            print(f"  not built: {' · '.join(map(str, line['what']))}: {line.get('error', line.get('verdict'))}")


if __name__ == "__main__":
    main()
