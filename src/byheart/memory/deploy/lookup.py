"""A table as a lookup: listed, joined or hashed, whichever is smaller; proved from its bytes, evaluated, written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from byheart.data.read.cells import CellTable, CellType
from byheart.data.tokens.front import Front
from byheart.errors import ExportError
from byheart.export.lookup.files import read_table_file
from byheart.export.lookup.hash_table import MOST_CHECK_BITS
from byheart.export.lookup.hashed import HashedLookup, build_hashed_model
from byheart.export.lookup.joined import JoinedLookup, build_joined_model
from byheart.export.lookup.listed import build_lookup_model, lookup_record
from byheart.export.lookup.rows import TableLookup
from byheart.export.onnx_table import RECORD, GraphLabels, TableSignature
from byheart.export.targets.onnx import libraries, open_session
from byheart.files import write_atomically
from byheart.memory.deploy.deployment import Deployment, file_sizes
from byheart.memory.deploy.evaluation import evaluate_outside, example_of, recheck, refuse_false_accepts
from byheart.memory.deploy.job import DeployJob, record_text
from byheart.memory.table_plan import plan_lookup
from byheart.progress import timed

# Joined rows are taken where they make a file smaller by this factor. They take up to 1.4 times as long for one row and
# twice as long for a batch, as in a graph that is written by hand, whose size bounds the file so: 1.08 times its rows.
MUCH_SMALLER = 1.08


@dataclass(frozen=True)
class LookupFile:
    """A lookup and its bytes; `bits` None: it lists the rows, else it hashes them."""

    front: Front
    lookup: TableLookup | JoinedLookup | HashedLookup
    bits: int | None
    written: bytes


def lookup_file(job: DeployJob, bits: int | None) -> LookupFile:
    """The lookup of the rows."""
    table = job.table
    labels = tuple(dict.fromkeys(table.label.cells))
    answers = GraphLabels.of(labels, table.label.type)
    number = {label: k for k, label in enumerate(labels)}
    classes = [number[label] for label in table.label.cells]
    cells = [column.cells for column in table.columns]
    front = plan_lookup(table)
    if bits is None:
        listed = TableLookup.of(front, cells, classes, answers)
        about = {RECORD: record_text(job, front, answers, lookup_record(listed))}
        model = build_lookup_model(listed, about, table.label.name)
        file = LookupFile(front, listed, None, bytes(model.SerializeToString()))
        matrix = TableSignature.of(front).matrix
        joined = JoinedLookup.of(front.named_types, matrix, cells, classes, answers)
        return file if joined is None else _smaller_file(job, file, joined)
    hashed = HashedLookup.of(front, cells, classes, answers, bits)
    about = {RECORD: record_text(job, front, answers, hashed.record())}
    model = build_hashed_model(hashed, about, table.label.name)
    return LookupFile(front, hashed, hashed.table.check_bits, bytes(model.SerializeToString()))


def _smaller_file(job: DeployJob, file: LookupFile, joined: JoinedLookup) -> LookupFile:
    """The lookup that joins the cells of a row where it is much smaller than the other one, else that one."""
    most = len(file.written) / MUCH_SMALLER
    if joined.stored_bytes > most:
        return file
    about = {RECORD: record_text(job, file.front, joined.answers, joined.record())}
    written = bytes(build_joined_model(joined, about, job.table.label.name).SerializeToString())
    return LookupFile(file.front, joined, None, written) if len(written) < most else file


def _chosen_lookup(job: DeployJob, bits: int | None, form: str) -> LookupFile:
    """Without `--as lookup` a small table is listed where that takes fewer bytes than hashing it."""
    if bits is None or form == "lookup":
        return lookup_file(job, bits)
    listed = lookup_file(job, None)
    hashed = lookup_file(job, bits) if bits <= MOST_CHECK_BITS else listed
    return hashed if len(hashed.written) < len(listed.written) else listed


@timed("exporting")
def export_lookup(job: DeployJob, bits: int | None, form: str) -> Deployment:
    """The lookup, proved from its bytes, evaluated on every row, and written if there is a path."""
    onnx, runtime = libraries()
    table, account = job.table, job.account
    with job.progress.stage("building the lookup"):
        file = _chosen_lookup(job, bits, form)
    front, answers, written = file.front, file.lookup.answers, file.written
    model = onnx.load_from_string(written)
    with job.progress.stage("proving the file's contents"):
        _prove_lookup(model, table, answers.type)
    signature = TableSignature.of(front)
    session = open_session(runtime, written)
    recheck(session, front, signature, answers, table, job.progress)
    outside = evaluate_outside(session, front, signature, table)
    if file.bits is None:
        refuse_false_accepts(outside)
    if job.path is not None:
        write_atomically(job.path, written)
    return Deployment(
        form="lookup",
        memory=None,
        front=front,
        answers=answers,
        signature=signature,
        account=account,
        sizes=file_sizes(model, len(written)),
        alternatives={},
        outside=outside,
        exact_unknown=file.bits is None,
        check_bits=file.bits or 0,
        label=table.label.name,
        example=example_of(signature, front, table),
        remarks=table.remarks,
        reading=table.reading,
        model=written,
        file="model.onnx" if job.path is None else str(job.path),
    )


def _prove_lookup(model: Any, table: CellTable, label_type: CellType) -> None:
    """Read the file's tables again and compare them with the rows."""
    record = json.loads(next(part.value for part in model.metadata_props if part.key == RECORD))
    contents = read_table_file(model, [(column.name, column.type) for column in table.columns], label_type, record)
    labels = table.label.cells if table.label.type is label_type else list(map(int, table.label.cells))
    cells = [column.cells for column in table.columns]
    if isinstance(contents, HashedLookup):
        equal = contents.predict(cells) == labels
    elif isinstance(contents, TableLookup):
        # Every row is listed with its label, and the list has no other row: without a dictionary of a million tuples.
        places = contents.places(cells)
        equal = bool((places >= 0).all()) and len(np.unique(places)) == len(contents.classes)
        names, classes = contents.answers.labels, contents.classes[places].tolist()
        equal = equal and all(names[k] == label for k, label in zip(classes, labels, strict=True))
    else:
        equal = contents.rows() == dict(zip(zip(*cells, strict=True), labels, strict=True))
    if not equal:
        raise ExportError("the file's rows differ from the table's; nothing was written. Please report this")
