"""A table with one text key beside its rivals: bytes, load, one query, 10,000 queries, and unknown keys.

    python benchmarks/table_rivals.py [ROWS] [LABELS] [text|whole]     default: 42789 62 text

The table has keys like postal codes and labels that follow their beginnings, as states do. Every rival runs in one
process and one thread, on the same keys. Each figure is processor time, the best of several runs in turns, in both
orders. A rival whose package is not installed is named and skipped. With `whole`, keys are whole numbers and the rivals
are ONNX graphs alone. The output is the Markdown table of docs/deploy.md.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from byheart.memory.deploy import deploy

TURNS, MANY = 5, 10_000
STRING, INT64 = TensorProto.STRING, TensorProto.INT64
Query = Callable[[list[str]], Any]


@dataclass(frozen=True)
class Rival:
    """A way to store the table: its file, how it is opened, and what an unknown key gets."""

    name: str
    file: Path
    load: Callable[[], Query]
    unknown: str


def rows(count: int, labels: int) -> dict[str, str]:
    """Keys of five digits, or as many as it takes, and labels that follow their beginnings."""
    rng = np.random.default_rng(7)
    width = max(5, len(str(2 * count)))
    keys = np.sort(rng.choice(10**width, count, replace=False))
    borders = np.sort(rng.choice(10**width, labels - 1, replace=False))
    names = [f"{chr(65 + k // 26 % 26)}{chr(65 + k % 26)}" for k in range(labels)]
    return {f"{key:0{width}d}": names[int(np.searchsorted(borders, key))] for key in keys.tolist()}


def session(path: Path) -> Any:
    """ONNX Runtime in one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def by_session(path: Path) -> Callable[[], Query]:
    """A loader of an ONNX file with one input."""

    def load() -> Query:
        opened = session(path)
        name = opened.get_inputs()[0].name
        kind = object if opened.get_inputs()[0].type == "tensor(string)" else np.int64
        return lambda keys: opened.run(None, {name: np.array(keys, dtype=kind)})

    return load


def label_encoder(table: dict[str, str], path: Path) -> Rival:
    """The graph that an engineer writes by hand: one LabelEncoder node from keys to labels."""
    keys = list(table)
    listed = {"keys_strings": keys} if isinstance(keys[0], str) else {"keys_int64s": keys}
    node = helper.make_node(
        "LabelEncoder", ["key"], ["label"], domain="ai.onnx.ml",
        values_strings=list(table.values()), default_string="<unknown>", **listed,
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "table",
        [helper.make_tensor_value_info("key", STRING if "keys_strings" in listed else INT64, ["batch"])],
        [helper.make_tensor_value_info("label", STRING, ["batch"])],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 4)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return Rival("one `LabelEncoder` node, written by hand", path, by_session(path), "`<unknown>`")


def dictionary(table: dict[str, str], path: Path) -> Rival:
    """A JSON file, read into a dict."""
    path.write_text(json.dumps(table, separators=(",", ":")))

    def load() -> Query:
        found = json.loads(path.read_text())
        return lambda keys: [found.get(key) for key in keys]

    return Rival("Python `dict` from JSON", path, load, "`None`")


def sqlite(table: dict[str, str], path: Path) -> Rival:
    """A table without row ids, one SELECT for each key."""
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE t (key TEXT PRIMARY KEY, label TEXT) WITHOUT ROWID")
        base.executemany("INSERT INTO t VALUES (?, ?)", table.items())
    base.execute("VACUUM")
    base.close()

    def load() -> Query:
        cursor = sqlite3.connect(path).cursor()
        ask = "SELECT label FROM t WHERE key = ?"
        return lambda keys: [cursor.execute(ask, (key,)).fetchone() for key in keys]

    return Rival("SQLite", path, load, "no row")


def parquet_polars(table: dict[str, str], path: Path) -> Rival:
    """Parquet, joined with the keys by polars."""
    import polars

    polars.DataFrame({"key": list(table), "label": list(table.values())}).write_parquet(path, compression="zstd")

    def load() -> Query:
        frame = polars.read_parquet(path)
        return lambda keys: polars.DataFrame({"key": keys}).join(frame, on="key", how="left")

    return Rival("Parquet with polars", path, load, "`null`")


def parquet_duckdb(table: dict[str, str], path: Path) -> Rival:
    """Parquet, joined with the keys by DuckDB."""
    import duckdb

    base = duckdb.connect()
    file = path.with_suffix(".polars")

    def load() -> Query:
        connection = duckdb.connect(config={"threads": 1})
        connection.execute(f"CREATE TABLE t AS SELECT * FROM read_parquet('{file}')")
        ask = "SELECT label FROM (SELECT unnest(?) AS key) LEFT JOIN t USING (key)"
        return lambda keys: connection.execute(ask, [keys]).fetchall()

    base.close()
    return Rival("Parquet with DuckDB", file, load, "`NULL`")


def marisa(table: dict[str, str], path: Path) -> Rival:
    """A recursive trie with one byte for each label."""
    import marisa_trie

    number = {label: k for k, label in enumerate(dict.fromkeys(table.values()))}
    names = list(number)
    trie = marisa_trie.RecordTrie("<H", [(key, (number[label],)) for key, label in table.items()])
    trie.save(str(path))

    def load() -> Query:
        found = marisa_trie.RecordTrie("<H")
        found.load(str(path))
        return lambda keys: [names[found[key][0][0]] if key in found else None for key in keys]

    return Rival("marisa-trie", path, load, "`KeyError`")


def decision_tree(table: dict[str, str], path: Path) -> Rival:
    """A tree over the key as a number, through skl2onnx: it answers every number."""
    import skl2onnx
    from sklearn.tree import DecisionTreeClassifier

    inputs = np.array([[int(key)] for key in table], dtype=np.int64)
    tree = DecisionTreeClassifier(random_state=0).fit(inputs, list(table.values()))
    kinds = [("key", skl2onnx.common.data_types.Int64TensorType([None, 1]))]
    path.write_bytes(skl2onnx.convert_sklearn(tree, initial_types=kinds).SerializeToString())

    def load() -> Query:
        opened = session(path)
        return lambda keys: opened.run(None, {"key": np.array([[int(key)] for key in keys], dtype=np.int64)})

    return Rival("decision tree through skl2onnx", path, load, "some label")


def deployed(table: dict[str, str], path: Path, name: str, gets: str, **options: Any) -> Rival:
    """What `byheart deploy` writes."""
    columns = {"key": list(table), "label": list(table.values())}
    texts = ["key"] if isinstance(columns["key"][0], str) else []
    deploy(columns, path, label="label", texts=texts, keep=["key"], progress=False, **options)
    return Rival(name, path, by_session(path), gets)


def rivals(table: dict[str, str], folder: Path) -> list[Rival]:
    """All rivals whose packages are installed; the others are named on standard error."""
    found = [
        deployed(table, folder / "lookup.onnx", "`byheart deploy`", "`<unknown>`, exact"),
        deployed(
            table, folder / "hashed.onnx", "`--unknown approximate`", "`<unknown>`, except 1 in 2¹⁶",
            unknown="approximate",
        ),
        deployed(table, folder / "labels.onnx", "`--abstain-bits 0`", "some label, mostly", abstain_bits=0),
    ]  # fmt: skip
    if not isinstance(next(iter(table)), str):
        return [*found, label_encoder(table, folder / "hand.onnx")]
    found += [
        deployed(table, folder / "exact.onnx", "`--as network`", "`<unknown>`, exact", form="network"),
        deployed(
            table, folder / "near.onnx", "`--as network --unknown approximate`", "`<unknown>`, except 1 in 2¹⁶",
            form="network", unknown="approximate", tokens="characters",
        ),
        deployed(
            table, folder / "bare.onnx", "`--as network --abstain-bits 0`", "some label, mostly",
            form="network", abstain_bits=0, tokens="characters",
        ),
        label_encoder(table, folder / "hand.onnx"),
        dictionary(table, folder / "dict.json"),
        sqlite(table, folder / "table.sqlite"),
    ]  # fmt: skip
    optional = (
        ("polars", parquet_polars, "rival.polars"), ("duckdb", parquet_duckdb, "rival.duckdb"),
        ("marisa_trie", marisa, "rival.marisa"), ("skl2onnx", decision_tree, "tree.onnx"),
    )  # fmt: skip
    for package, make, file in optional:
        if importlib.util.find_spec(package) is None:
            print(f"not installed, skipped: {package}", file=sys.stderr)
            continue
        found.append(make(table, folder / file))
    return found


def seconds(action: Callable[[], Any], least: float = 0.02) -> float:
    """Processor seconds of one call: the mean over `least` seconds."""
    count, started = 0, time.process_time()
    while time.process_time() - started < least or not count:
        action()
        count += 1
    return (time.process_time() - started) / count


def measure(found: list[Rival], table: dict[str, str]) -> list[list[float]]:
    """(bytes, load, one query, many queries) of every rival: the best of several turns."""
    rng = np.random.default_rng(1)
    many = [list(table)[k] for k in rng.integers(0, len(table), MANY).tolist()]
    one = many[:1]
    best = [[float(rival.file.stat().st_size), math.inf, math.inf, math.inf] for rival in found]
    for turn in range(TURNS):
        # Forwards and backwards, so that no rival always follows the same one.
        for rival, figures in list(zip(found, best, strict=True))[:: 1 if turn % 2 else -1]:
            started = time.process_time()
            query = rival.load()
            query(one)
            figures[1] = min(figures[1], time.process_time() - started)
            figures[2] = min(figures[2], seconds(lambda ask=query: ask(one)))
            figures[3] = min(figures[3], seconds(lambda ask=query: ask(many)))
    return best


def main() -> None:
    """Print the table."""
    given = sys.argv[1:] + ["42789", "62", "text"][len(sys.argv) - 1 :]
    count, labels = int(given[0]), int(given[1])
    table: dict[Any, str] = dict(rows(count, labels))
    if given[2] == "whole":
        table = {int(key): label for key, label in table.items()}
    with tempfile.TemporaryDirectory() as folder:
        found = rivals(table, Path(folder))
        print(f"{count:,} keys, {labels} labels\n")
        print(
            "| file | bytes | load and first query (ms) | one query (µs) | 10,000 queries (ms) | an unknown key gets |"
        )
        print("|---|---:|---:|---:|---:|---|")
        for rival, (size, load, one, many) in zip(found, measure(found, table), strict=True):
            times = f"{load * 1e3:.1f} | {one * 1e6:.1f} | {many * 1e3:.2f}"
            print(f"| {rival.name} | {int(size):,} | {times} | {rival.unknown} |")


if __name__ == "__main__":
    main()
