"""Many kinds of tables: one command or one refusal that names the flags, every row correct, no unknown row answered."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("onnx", reason="needs byheart[onnx]")
pytest.importorskip("onnxruntime", reason="needs byheart[onnx]")
pytest.importorskip("sklearn", reason="some tables are scikit-learn's")

import onnxruntime as runtime
from onnx import TensorProto, helper

from byheart.cli import commands
from byheart.data.read.cells import CellType
from byheart.data.values import UNKNOWN
from byheart.errors import TableError
from byheart.export.onnx_table import tensor
from byheart.memory.deploy import deploy
from byheart.memory.deployed import DeployedModel
from tests.varied_tables import KINDS

# Cheap kinds of every type run by default, all of them with the slow tests.
QUICK = (
    "countries",
    "decimals_of_one_value",
    "empty_cells",
    "iris",
    "numbered",
    "one_label",
    "unknown_label",
    "weather",
)


def invoke(*arguments):
    return CliRunner().invoke(commands, list(map(str, arguments)), standalone_mode=False)


def check_table(name, folder):
    table, path, model = KINDS[name](), folder / f"{name}.csv", folder / f"{name}.onnx"
    path.write_text(table.csv(), encoding="utf-8", newline="")
    if table.flags:
        refused = invoke("deploy", path, "-o", model, "--quiet").exception
        assert isinstance(refused, TableError) and not model.exists()
        assert all(flag in str(refused) for flag in table.flags if flag.startswith("--"))
    made = invoke("deploy", path, "-o", model, "--json", *table.flags)
    assert made.exception is None, made.exception
    verified = json.loads(invoke("verify", model, path, "--json").stdout)
    assert verified["verdict"] == "proved" and not verified["differ"]
    assert json.loads(made.stdout)["false_accepts"] == 0
    return DeployedModel.load(model), path


def unknown_rows(model, path):
    """Rows of the table with one cell changed, and new combinations of cells, that are not in the table."""
    rng = random.Random(0)
    rows = model.read_rows(path)
    known, found = set(rows), []
    for _ in range(2000):
        one, two = list(rng.choice(rows)), rng.choice(rows)
        place = rng.randrange(len(one))
        cell = one[place]
        if rng.random() < 0.5 and len(one) > 1:
            one[place] = two[place]
        elif isinstance(cell, str):
            one[place] = cell + rng.choice("xé 0") if rng.random() < 0.7 else cell[:-1]
        elif isinstance(cell, bool):
            one[place] = not cell
        elif isinstance(cell, int):
            one[place] = cell + rng.choice((-1, 1, 1000))
        elif cell is not None:
            one[place] = float(np.nextafter(cell, np.inf)) if rng.random() < 0.5 else cell + 1
        if tuple(one) not in known:
            found.append(tuple(one))
    return found


@pytest.mark.parametrize("name", QUICK)
def test_a_table_is_deployed_or_refused_with_flags_that_work(name, tmp_path):
    model, path = check_table(name, tmp_path)
    outside = unknown_rows(model, path)
    assert len(outside) > 100
    assert all(label is UNKNOWN for label in model.predict([list(cells) for cells in zip(*outside, strict=True)]))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(KINDS) - set(QUICK)))
def test_further_tables(name, tmp_path):
    test_a_table_is_deployed_or_refused_with_flags_that_work(name, tmp_path)


def by_hand(keys, labels):
    """The one-node graph that an engineer writes by hand, with the types of the table."""
    texts = isinstance(keys[0], str), isinstance(labels[0], str)
    names = ["strings" if text else "int64s" for text in texts]
    default = {"default_string": "<unknown>"} if texts[1] else {"default_int64": -1}
    node = helper.make_node(
        "LabelEncoder", ["key"], ["label"], domain="ai.onnx.ml",
        **{f"keys_{names[0]}": keys, f"values_{names[1]}": labels}, **default,
    )  # fmt: skip
    kinds = [TensorProto.STRING if text else TensorProto.INT64 for text in texts]
    infos = [
        helper.make_tensor_value_info(name, kind, ["batch"]) for name, kind in zip(("key", "label"), kinds, strict=True)
    ]
    graph = helper.make_graph([node], "table", infos[:1], infos[1:])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 4)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def microseconds(sessions_and_feeds, runs):
    """The best time of one query for each model, measured in turns that are short beside a time slice."""
    best = [float("inf")] * len(sessions_and_feeds)
    for _ in range(80):
        for k, (session, feeds) in enumerate(sessions_and_feeds):
            started = time.perf_counter()
            for _ in range(runs):
                session.run(None, feeds)
            best[k] = min(best[k], (time.perf_counter() - started) * 1e6 / runs)
    return best


def open_one(data):
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", ["postal_codes", "phone_prefixes", "unicode_names"])
def test_the_default_file_is_as_small_as_one_written_by_hand(name):
    table = KINDS[name]()
    made = deploy(dict(zip(table.columns, map(list, zip(*table.rows, strict=True)), strict=True)), progress=False)
    keys, labels = map(list, zip(*table.rows, strict=True))
    if made.front.columns[0].type is CellType.WHOLE:
        keys = list(map(int, keys))
    assert made.form == "lookup" and made.sizes["file"] <= 1.1 * len(by_hand(keys, labels))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["postal_codes", "phone_prefixes", "unicode_names"])
def test_the_default_file_is_as_fast_as_one_written_by_hand(name):
    table = KINDS[name]()
    made = deploy(dict(zip(table.columns, map(list, zip(*table.rows, strict=True)), strict=True)), progress=False)
    keys, labels = map(list, zip(*table.rows, strict=True))
    kind = made.front.columns[0].type
    if kind is CellType.WHOLE:
        keys = list(map(int, keys))
    for count in (1, 1000):
        cells = tensor(keys[:count], kind)
        # The place of a session in memory changes its speed: the best of three sessions counts.
        pair = [(made.model, {made.signature.inputs[0]: cells}), (by_hand(keys, labels), {"key": cells})]
        runs = 2000 // (99 + count)
        turns = [microseconds([(open_one(data), feeds) for data, feeds in pair], runs) for _ in range(3)]
        ours, theirs = map(min, zip(*turns, strict=True))
        assert ours <= 1.5 * theirs, f"{count} rows: {ours:.1f} µs against {theirs:.1f} µs"


PROGRAM = """
import resource, sys, time
from byheart.memory.deploy import deploy
started = time.process_time()
deploy(sys.argv[1], sys.argv[2], progress=False)
print(time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_a_million_rows_within_a_minute_and_a_gibibyte(tmp_path):
    path = tmp_path / "large.csv"
    keys = np.random.default_rng(0).choice(10**9, 10**6, replace=False).tolist()
    with path.open("w") as file:
        file.write("code,kind\n")
        file.writelines(f"K{key:09d},k{key % 97}\n" for key in keys)
    command = [sys.executable, "-c", PROGRAM, str(path), str(tmp_path / "large.onnx")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, kibibytes = map(float, printed.split())
    assert seconds < 60 and kibibytes < 1.2 * 2**20
