"""A memory as an artifact of PyTorch, ONNX Runtime or safetensors: proved, rechecked, then written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from byheart.certify import Certificate, Verdict
from byheart.data.dataset.dataset import Dataset
from byheart.errors import DataError, ExportError
from byheart.export.request import About, ExportRequest
from byheart.ir.decoder_network import DecoderNetwork
from byheart.memory.memory import Memory
from byheart.memory.verify import check_rows
from byheart.progress import SILENT, Progress, timed

if TYPE_CHECKING:
    from byheart.export.torch_runtime import TorchMemory


def request_of(memory: Memory, dtype: str | None, dataset: Dataset | None, progress: Progress) -> ExportRequest:
    """What to export and what to check it with: the given data, which the memory must know, else its own if it has it.

    A verdict that a file records is passed on as that, a record.
    """
    if isinstance(memory.network, DecoderNetwork):
        raise ExportError(
            "a decoder computes exponentials in float64; other engines round these differently, so no export could "
            "guarantee the same answers"
        )
    data, certificate, proved = data_of(memory, dataset, progress)
    details = {
        "construction": memory.construction,
        "options": dict(memory.options),
        "seed": memory.seed,
        "certificate" if proved else "recorded_certificate": certificate.as_dict(),
        "fingerprint": certificate.fingerprint,
        "tokens": str(memory.tokens),
    }
    return ExportRequest(
        network=memory.network,
        encoder=memory.encoder,
        about=About(memory.classes, details),
        dtype=dtype or str(memory.options.get("dtype", "float64")),
        dataset=data,
        certified=proved,
        progress=progress,
    )


def data_of(memory: Memory, dataset: Dataset | None, progress: Progress) -> tuple[Dataset | None, Certificate, bool]:
    """The data to check with, its certificate, and whether that was made now; given data must be known by heart."""
    if dataset is None:
        certificate = memory.certificate
        return memory.dataset, certificate, certificate.verdict is Verdict.PROVED and not memory.recorded_by
    checked = check_rows(memory, dataset.sequences(), dataset.label_values(), progress)
    if checked.certificate.verdict is not Verdict.PROVED:
        raise DataError(f"the memory does not know this data by heart: {checked.certificate.reason}")
    return checked.asked, checked.certificate, True


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
