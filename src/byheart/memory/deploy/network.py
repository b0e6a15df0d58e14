"""A table as a computed Transformer: cells to codes by size, built, proved, evaluated on every row, written."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.certify import Verdict
from byheart.data.dataset.dataset import load
from byheart.data.read.account import Account
from byheart.data.read.cells import CellTable, CellType
from byheart.data.tokens.front import Front
from byheart.data.tokens.row_keys import RowKeys
from byheart.errors import BuildError, ExportError
from byheart.export.onnx_table import RECORD, GraphLabels, TableSignature, build_table_model
from byheart.export.targets.onnx import libraries, open_session
from byheart.files import write_atomically
from byheart.ir.decoder_network import DecoderNetwork
from byheart.memory.deploy.deployment import Deployment, file_sizes
from byheart.memory.deploy.evaluation import evaluate_outside, example_of, recheck, refuse_false_accepts
from byheart.memory.deploy.job import DeployJob, NetworkOptions, record_text
from byheart.memory.memorize import memorize_dataset
from byheart.memory.memory import Memory
from byheart.memory.table_plan import TablePlan, plan_fronts
from byheart.progress import timed
from byheart.version import __version__


def export_network(job: DeployJob, options: NetworkOptions) -> Deployment:
    """The network, proved, evaluated on every row, and written if there is a path."""
    plans, alternatives = plan_fronts(job.table, options.tokens, options.bits, options.dtype)
    memory, plan = _build(job, plans, options)
    if memory.certificate.verdict is not Verdict.PROVED:
        raise BuildError(f"the memory was not proved, so nothing is written: {memory.certificate.reason}")
    return _export(memory, plan, job, alternatives)


def _build(job: DeployJob, plans: list[TablePlan], network: NetworkOptions) -> tuple[Memory, TablePlan]:
    """The memory of the first plan for which one can be built."""
    table = job.table
    labels: Any = table.label.cells
    if table.label.type is CellType.WHOLE:
        labels = np.array(labels, dtype=np.int64)
    options = {name: getattr(network, name) for name in ("executor", "resume")}
    divided = {name: value for name, value in options.items() if value is not None}
    refusal: BuildError | None = None
    for plan in plans:
        front = plan.front
        codes, known = front.encode([column.cells for column in table.columns])
        if not known.all():
            raise BuildError("a row of the table has a cell that its own front does not contain; please report this")
        rows = codes[:, :, None].astype(np.float64) if front.scalars else codes
        dataset = load(rows, labels, positions=False)
        try:
            memory = memorize_dataset(
                dataset,
                construction="native",
                seed=network.seed,
                progress=job.progress,
                left_out=job.account.counts(),
                abstain_bits=plan.abstain_bits,
                dtype=network.dtype,
                **divided,
            )
        except BuildError as error:
            refusal = refusal or error
            continue
        return memory, plan
    raise refusal or BuildError("this table cannot be tokenized")


@timed("exporting")
def _export(memory: Memory, plan: TablePlan, job: DeployJob, alternatives: dict[str, int]) -> Deployment:
    """The graph of a network, evaluated on every row, and written if there is a path."""
    onnx, runtime = libraries()
    front, table, account = plan.front, job.table, job.account
    answers = GraphLabels.of(memory.classes, table.label.type)
    signature = TableSignature.of(front)
    if isinstance(memory.network, DecoderNetwork):
        raise ExportError("a decoder is not a memory of labels; deploy builds construction native")
    keys = RowKeys.of(front.sizes, _places(table, front)) if plan.listed else None
    model = build_table_model(front, memory.network, memory.encoder, memory.options["dtype"], answers, keys)
    session = open_session(runtime, model)
    recheck(session, front, signature, answers, table, job.progress)
    outside = evaluate_outside(session, front, signature, table)
    if plan.exact_unknown:
        refuse_false_accepts(outside)
    about = _metadata(memory, front, answers, account)
    about[RECORD] = record_text(job, front, answers, {"as": "network", "exact": plan.exact_unknown})
    onnx.helper.set_model_props(model, about)
    written = model.SerializeToString()
    if job.path is not None:
        write_atomically(job.path, written)
    return Deployment(
        form="network",
        memory=memory,
        front=front,
        answers=answers,
        signature=signature,
        account=account,
        sizes=file_sizes(model, len(written)),
        alternatives=alternatives | plan.others,
        outside=outside,
        exact_unknown=plan.exact_unknown,
        label=table.label.name,
        example=example_of(signature, front, table),
        remarks=table.remarks,
        reading=table.reading,
        model=written,
        file="model.onnx" if job.path is None else str(job.path),
    )


def _places(table: CellTable, front: Front) -> npt.NDArray[np.int64]:
    """The codes of the rows (N, places), counted from 0 at every place."""
    codes, _ = front.encode([column.cells for column in table.columns])
    return np.asarray(codes - np.array(front.first_codes))


def _metadata(memory: Memory, front: Front, answers: GraphLabels, account: Account) -> dict[str, str]:
    """Metadata of a network: its inputs, the proof and the checks.

    The memory's certificate proves that the float type represents every value in any order of evaluation.
    """
    structured = {
        "input": {column.name: column.type.value for column in front.columns},
        "unknown": str(answers.unknown),
        "construction": memory.construction,
        "options": dict(memory.options),
        "seed": memory.seed,
        "proved": dict(memory.certificate.proofs),
        "certificate": memory.certificate.as_dict(),
        "left_out": account.counts(),
    }
    return {
        "byheart.version": __version__,
        "byheart.dtype": str(memory.options["dtype"]),
        "byheart.parameters": str(memory.size.parameters),
        "byheart.checked": f"every row of the table ({account.kept}), cells in and label out, in ONNX Runtime",
        **{f"byheart.{name}": json.dumps(value, default=str) for name, value in structured.items()},
    }
