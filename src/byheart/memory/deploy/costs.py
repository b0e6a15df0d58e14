"""Bytes and query time of the form that was written and of the other one: what `deploy` prints for a choice."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.errors import BuildError, ExportError, MissingLibraryError
from byheart.export.targets.onnx import libraries, open_session
from byheart.memory.deploy.deployment import Cost, Deployment
from byheart.memory.deploy.job import DeployJob, NetworkOptions
from byheart.memory.deploy.lookup import lookup_file
from byheart.memory.deploy.network import export_network
from byheart.memory.table_plan import plan_fronts
from byheart.progress import SILENT

# A network of this many rows builds in about a second; larger ones are timed on a sample of this size.
MOST_COMPARED = 500
# For timing a query.
_TIMED_SECONDS = 0.05


def costs(made: Deployment, job: DeployJob, network: NetworkOptions) -> tuple[Cost, ...]:
    """Bytes and query time of the form that was written, and of the other one."""
    own = Cost(made.form, made.sizes["file"], query_seconds(made.model, made.example))
    if made.form == "network":
        written = lookup_file(job, network.bits).written
        return own, Cost("lookup", len(written), query_seconds(written, made.example))
    rows = min(len(job.table), MOST_COMPARED)
    sample = (
        job.table
        if rows == len(job.table)
        else job.table.take(np.linspace(0, len(job.table) - 1, rows, dtype=int).tolist())
    )
    silent = replace(job, table=sample, path=None, progress=SILENT)
    try:
        other = export_network(silent, replace(network, executor=None, resume=None))
    except (BuildError, ExportError, MissingLibraryError):
        return (own,)
    seconds = query_seconds(other.model, other.example)
    if sample is job.table:
        return own, Cost("network", other.sizes["file"], seconds)
    plans, _ = plan_fronts(job.table, network.tokens, network.bits, network.dtype)
    return own, Cost("network", plans[0].bytes, seconds, estimated=True, timed_rows=rows)


def query_seconds(model: bytes, example: dict[str, list[Any]]) -> float:
    """Seconds of one query of one row: the best of five runs."""
    _, runtime = libraries()
    session = open_session(runtime, model)
    feeds = {name: _as_array(session, name, cells) for name, cells in example.items()}
    session.run(None, feeds)
    best = math.inf
    for _ in range(5):
        count, started = 0, time.perf_counter()
        while time.perf_counter() - started < _TIMED_SECONDS / 5:
            session.run(None, feeds)
            count += 1
        best = min(best, (time.perf_counter() - started) / count)
    return best


def _as_array(session: Any, name: str, cells: list[Any]) -> npt.NDArray[Any]:
    kinds = {
        "tensor(string)": object,
        "tensor(int64)": np.int64,
        "tensor(double)": np.float64,
        "tensor(bool)": np.bool_,
    }
    kind = next(part.type for part in session.get_inputs() if part.name == name)
    return np.array(cells, dtype=kinds[kind])
