"""The parts of a deployment, one by one: names, the chosen file, checks in ONNX Runtime, costs, and how it is shown."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from byheart.data.read.account import settle_cells
from byheart.data.read.cells import CellTable, CellType, read_cells
from byheart.errors import DataError, ExportError
from byheart.export.lookup.hashed import HashedLookup
from byheart.export.lookup.rows import TableLookup
from byheart.export.onnx_table import GraphLabels, TableSignature
from byheart.export.targets.onnx import libraries, open_session
from byheart.memory.deploy import deploy
from byheart.memory.deploy.costs import costs, query_seconds
from byheart.memory.deploy.deployment import Cost, as_code, file_sizes
from byheart.memory.deploy.evaluation import evaluate_outside, recheck, refuse_false_accepts, short_row
from byheart.memory.deploy.job import DeployJob, NetworkOptions, check_texts, named, record_text
from byheart.memory.deploy.lookup import export_lookup, lookup_file
from byheart.memory.deploy.network import export_network
from byheart.memory.table_plan import plan_lookup
from byheart.progress import SILENT

onnx = pytest.importorskip("onnx", reason="needs byheart[onnx]")
pytest.importorskip("onnxruntime", reason="needs byheart[onnx]")

CODES = {"code": [f"{k:02}-{k * 7:03}" for k in range(60)], "place": [f"p{k % 4}" for k in range(60)]}
NETWORK = NetworkOptions("auto", None, "float64", 0)


def job_of(source, path=None, **record) -> DeployJob:
    table, account = settle_cells(read_cells(source))
    return DeployJob(table, account, record, path, SILENT)


def test_columns_without_a_name_and_texts_that_are_not_unicode():
    table = read_cells({"": ["a", "b"], "column 1": ["x", "y"], "label": ["p", "q"]})
    assert [column.name for column in named(table).columns] == ["column 2", "column 1"]
    assert named(table).remarks[-1] == "the column without a name is the input 'column 2'"
    with pytest.raises(DataError, match=r"row 1: .* in 'label' is not Unicode"):
        check_texts(read_cells({"x": ["a", "b"], "label": ["p", "\ud800"]}))


def test_the_record_has_what_the_graph_lacks():
    job = job_of(CODES, missing="drop")
    front = plan_lookup(job.table)
    answers = GraphLabels.of(("p0",), CellType.TEXT)
    assert record_text(job, front, answers, {}) == '{"read":{"missing":"drop"}}'
    assert '"label":"place"' in record_text(job, front, answers, {"as": "network"})
    truths = job_of({"n": [3, 5], "y": [True, False]})
    whole = GraphLabels.of((True, False), CellType.TRUTH)
    assert record_text(truths, plan_lookup(truths.table), whole, {}) == '{"label":["y","truth value"]}'


def test_a_lookup_lists_or_hashes_its_rows():
    job = job_of(CODES)
    assert isinstance(lookup_file(job, None).lookup, TableLookup) and lookup_file(job, None).bits is None
    hashed = lookup_file(job, 5)
    assert isinstance(hashed.lookup, HashedLookup) and hashed.bits == 5
    made = export_lookup(job, 16, "auto")
    assert made.exact_unknown, "sixty listed rows are smaller than sixty hashed ones with 16 bits"


def test_a_network_of_the_same_rows_is_proved(tmp_path):
    made = export_network(job_of(CODES, tmp_path / "m.onnx"), NETWORK)
    assert (made.form, made.verdict, made.exact_unknown) == ("network", "proved", True)
    assert (tmp_path / "m.onnx").read_bytes() == made.model


def swapped(made, table: CellTable) -> CellTable:
    cells = [table.label.cells[1], table.label.cells[0], *table.label.cells[2:]]
    return replace(table, label=replace(table.label, cells=cells))


def test_a_wrong_label_an_unknown_row_and_a_false_accept_are_refused():
    made, job = deploy(CODES, progress=False), job_of(CODES)
    session, signature = open_session(libraries()[1], made.model), TableSignature.of(made.front)
    recheck(session, made.front, signature, made.answers, job.table, SILENT)
    with pytest.raises(ExportError, match="returns 'p0' for row 0"):
        recheck(session, made.front, signature, made.answers, swapped(made, job.table), SILENT)
    other = read_cells({**CODES, "code": [*CODES["code"][:-1], "new"]})
    with pytest.raises(ExportError, match="returns '<unknown>' for row 59"):
        recheck(session, made.front, signature, made.answers, other, SILENT)
    count, accepted = evaluate_outside(session, made.front, signature, job.table)
    assert count > 20 and accepted == 0
    everything = SimpleNamespace(run=lambda names, feeds: [np.ones(len(feeds["code"]), dtype=bool)])
    assert evaluate_outside(everything, made.front, signature, job.table) == (count, count)
    with pytest.raises(ExportError, match=f"accepts {count} of {count} rows outside"):
        refuse_false_accepts((count, count))


def test_an_example_is_short():
    table = read_cells({"t": ["x" * 300, "y" * 40, "z"], "label": ["p", "q", "r"]})
    assert short_row(table) == 1 and short_row(table.take([0])) == 0


def test_costs_name_the_other_form(monkeypatch):
    monkeypatch.setattr("byheart.memory.deploy.costs._TIMED_SECONDS", 0.001)
    made = deploy(CODES, progress=False)
    own, other = costs(made, job_of(CODES), NETWORK)
    assert (own.form, own.bytes, other.form) == ("lookup", len(made.model), "network")
    assert other.bytes > own.bytes and not other.estimated
    monkeypatch.setattr("byheart.memory.deploy.costs.MOST_COMPARED", 20)
    _, sampled = costs(made, job_of(CODES), NETWORK)
    assert sampled.estimated and sampled.timed_rows == 20 and "(measured on 20 of the rows)" in sampled.line()
    assert 0 < query_seconds(made.model, made.example) < 1
    assert Cost("lookup", 1234, 2.5e-6).line() == "lookup: 1,234 bytes, 2.5 µs per query (measured)"


def test_sizes_add_up_and_values_are_code():
    for table in (CODES, {"a": [0.5, 1.5] * 20, "b": list(range(40)), "y": [k % 3 for k in range(40)]}):
        made = deploy(table, keep=["b"], progress=False)
        sizes = dict(made.sizes)
        assert sizes == file_sizes(onnx.load_from_string(made.model), len(made.model))
        assert sizes.pop("file") == sum(sizes.values()) == len(made.model) and sizes["list of rows"] > 40
    assert as_code({"x": [math.inf, "a", 1]}) == "{'x': [float('inf'), 'a', 1]}"
