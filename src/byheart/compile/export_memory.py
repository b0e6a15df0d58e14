"""A memory as an artifact of PyTorch, ONNX Runtime, safetensors or Transformers: proved, rechecked, then written."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byheart.certify import Certificate, Verdict
from byheart.certify.checkpoint import certify_classifier
from byheart.compile.memory import Memory
from byheart.compile.verify import check_rows
from byheart.data.dataset.dataset import Dataset
from byheart.data.dataset.targets import Target
from byheart.data.task import Task
from byheart.data.values import key
from byheart.errors import DataError, ExportError
from byheart.export.huggingface.classifier import (
    Classifier,
    TableRows,
    ask_transformers,
    classifier_card,
    write_classifier,
)
from byheart.export.request import About, Request
from byheart.files import write_atomically
from byheart.ir.decoder_network import DecoderNetwork
from byheart.progress import SILENT, Progress, timed

if TYPE_CHECKING:
    from byheart.export.torch_runtime import TorchMemory


def request_of(memory: Memory, dtype: str | None, dataset: Dataset | None, progress: Progress) -> Request:
    """What to export and what to check it with: the given data, which the memory must know, else its own if it has it.

    A verdict that a file records is passed on as that, a record.
    """
    if isinstance(memory.network, DecoderNetwork):
        raise ExportError(
            "a decoder computes exponentials in float64; other engines round these differently, so no export could "
            "promise the same answers"
        )
    data, certificate, proved = _data_of(memory, dataset, progress)
    details = {
        "construction": memory.construction,
        "options": dict(memory.options),
        "seed": memory.seed,
        "certificate" if proved else "recorded_certificate": certificate.as_dict(),
        "fingerprint": certificate.fingerprint,
        "tokens": str(memory.tokens),
    }
    return Request(
        network=memory.network,
        encoder=memory.encoder,
        about=About(memory.classes, details),
        dtype=dtype or str(memory.options.get("dtype", "float64")),
        dataset=data,
        certified=proved,
        progress=progress,
    )


def _data_of(memory: Memory, dataset: Dataset | None, progress: Progress) -> tuple[Dataset | None, Certificate, bool]:
    """The data to check with, its certificate, and whether that was made now; given data must be known by heart."""
    if dataset is None:
        certificate = memory.certificate
        return memory.dataset, certificate, certificate.verdict is Verdict.PROVED and not memory.recorded_by
    checked = check_rows(memory, dataset.sequences(), dataset.label_values(), progress)
    if checked.certificate.verdict is not Verdict.PROVED:
        raise DataError(f"the memory does not know this data by heart: {checked.certificate.reason}")
    return checked.asked, checked.certificate, True


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
    """The memory's rows as a stock sequence classifier: written, its margin proved from the folder, asked in
    Transformers where that is installed, and only then handed over. A summary of all that.

    A file of a memory has no rows, so a loaded memory needs `dataset`. What is not proved is said to be measured.
    """
    if memory.task is not Task.NEXT_TOKEN or memory.target is not Target.CLASS or memory.encoder.symbols is None:
        raise ExportError(
            "a stock classifier is made of rows of symbols with a class each (task next-token); texts become stock "
            "language models: memorize them with --construction recital"
        )
    data, _, known = _data_of(memory, dataset, progress)
    if data is None or not known:
        raise ExportError("the rows are not in the file of a memory; give them with --data (or dataset=...)")
    rows = _table_rows(memory, data)
    request, target = Classifier(rows, architecture, dtype, flavour, shape), Path(folder)
    with progress.stage(f"writing {target}"):
        checkpoint = write_classifier(request, target)
    try:
        with progress.stage("proving"):
            certificate = certify_classifier(target, rows.ids, rows.answers)
        with progress.stage("asking every row"):
            asked = ask_transformers(target, rows, "float32")  # bfloat16 takes ten times as long on a processor
        if asked is not None and asked.right < asked.rows:
            raise ExportError(f"{target}: {asked.sentence}; nothing was written")
        proof = "\n".join(certificate.lines()) + "\n\n" + (asked.sentence if asked else "No engine was asked.")
        write_atomically(target / "README.md", classifier_card(request, checkpoint, proof).encode())
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return {
        "folder": str(target),
        "architecture": checkpoint.architecture,
        "dtype": dtype,
        "parameters": checkpoint.parameters,
        "bytes": (target / "model.safetensors").stat().st_size,
        "rows": len(rows.ids),
        "labels": len(rows.label_names),
        "verdict": certificate.verdict.value,
        "reason": certificate.reason,
        "margins": {t.type: t.margin if t.verdict is Verdict.PROVED else None for t in certificate.types},
        "measured": None if asked is None else asdict(asked),
    }


def _table_rows(memory: Memory, data: Dataset) -> TableRows:
    number = {key(label): k for k, label in enumerate(memory.classes)}
    answers = [number[key(label)] for label in data.label_values()]
    return TableRows.of(data.sequences(), answers, memory.classes, memory.tokens)


def to_torch(
    memory: Memory,
    *,
    dtype: str | None = None,
    dataset: Dataset | None = None,
    fast: bool = False,
    progress: Progress = SILENT,
) -> TorchMemory:
    """The memory as an nn.Module; `fast` lays it out for speed."""
    from byheart.export.targets.torch import build_torch

    return build_torch(request_of(memory, dtype, dataset, progress), fast=fast)


@timed("exporting")
def export_file(
    memory: Memory,
    target: str,
    path: str | Path,
    *,
    dtype: str | None = None,
    dataset: Dataset | None = None,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Writes the memory for `target`; returns the file's name and its metadata."""
    request, where = request_of(memory, dtype, dataset, progress), Path(path)
    from byheart.export.targets import writer_of

    return writer_of(target)(request, where)
