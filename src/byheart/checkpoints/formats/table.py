"""A table's rows as a stock sequence classifier: written, proved from the folder, queried in Transformers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from byheart.certify import Verdict
from byheart.checkpoints.formats.classifier import (
    Classifier,
    TableRows,
    ask_transformers,
    classifier_card,
    write_classifier,
)
from byheart.checkpoints.formats.folder import check_target
from byheart.checkpoints.proof import certify_classifier
from byheart.data.dataset.dataset import Dataset
from byheart.data.dataset.targets import Target
from byheart.data.task import Task
from byheart.data.values import key
from byheart.errors import ExportError
from byheart.files import building, write_atomically
from byheart.memory.export_memory import data_of
from byheart.memory.memory import Memory
from byheart.progress import SILENT, Progress, timed


@timed("exporting")
def to_huggingface(
    memory: Memory,
    folder: str | Path,
    architecture: str = "llama",
    *,
    dtype: str = "bfloat16",
    flavour: str = "parabola",
    dataset: Dataset | None = None,
    progress: Progress = SILENT,
    **shape: Any,
) -> dict[str, Any]:
    """The memory's rows as a stock sequence classifier: written, its margin proved from the folder, evaluated in
    Transformers where that is installed, and only then subset over. A summary of all that.

    A file of a memory has no rows, so a loaded memory needs `dataset`. What is not proved is reported as measured.
    """
    if memory.task is not Task.NEXT_TOKEN or memory.target is not Target.CLASS or memory.encoder.symbols is None:
        raise ExportError(
            "a stock classifier needs rows of symbols with a class each (task next-token); texts become stock "
            "language models: memorize them with --construction recital"
        )
    data, _, known = data_of(memory, dataset, progress)
    if data is None or not known:
        raise ExportError("the rows are not in the file of a memory; give them with --data (or dataset=...)")
    rows = _table_rows(memory, data)
    request, place = Classifier(rows, architecture, dtype, flavour, shape), Path(folder)
    check_target(place)
    with building(place) as target:
        with progress.stage(f"writing {place}"):
            checkpoint = write_classifier(request, target)
        with progress.stage("proving"):
            certificate = certify_classifier(target, rows.ids, rows.answers)
        with progress.stage("evaluating every row"):
            queried = ask_transformers(target, rows, "float32")  # bfloat16 takes ten times as long on a processor
        if queried is not None and queried.right < queried.rows:
            raise ExportError(f"{place}: {queried.sentence}; nothing was written")
        proof = "\n".join(certificate.lines()) + "\n\n" + (queried.sentence if queried else "No engine was run.")
        write_atomically(target / "README.md", classifier_card(request, checkpoint, proof).encode())
    return {
        "folder": str(place),
        "architecture": checkpoint.architecture,
        "dtype": dtype,
        "parameters": checkpoint.parameters,
        "bytes": (place / "model.safetensors").stat().st_size,
        "rows": len(rows.ids),
        "labels": len(rows.label_names),
        "verdict": certificate.verdict.value,
        "reason": certificate.reason,
        "margins": {t.type: t.margin if t.verdict is Verdict.PROVED else None for t in certificate.types},
        "measured": None if queried is None else asdict(queried),
    }


def _table_rows(memory: Memory, data: Dataset) -> TableRows:
    number = {key(label): k for k, label in enumerate(memory.classes)}
    answers = [number[key(label)] for label in data.label_values()]
    return TableRows.of(data.sequences(), answers, memory.classes, memory.tokens)
