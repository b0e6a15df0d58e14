"""A memory as an artifact of PyTorch, ONNX Runtime or safetensors: proved, rechecked, then written."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from byheart.certify import Certificate, Verdict
from byheart.data.dataset.dataset import Dataset
from byheart.errors import BuildError, DataError, ExportError, OptionError
from byheart.exact.number import from_float
from byheart.export.request import About, ExportRequest
from byheart.ir.decoder_network import DecoderNetwork
from byheart.memory.memory import Memory
from byheart.memory.verify import check_rows
from byheart.progress import SILENT, Progress, timed

if TYPE_CHECKING:
    from byheart.export.torch_runtime import TorchMemory

Artifact = TypeVar("Artifact")


def request_of(memory: Memory, dtype: str | None, dataset: Dataset | None, progress: Progress) -> ExportRequest:
    """What to export and what to check it with: the given data, which the memory must store, else its own if it has it.

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
    """The data to check with, its certificate, and whether that is new; the memory must store given data."""
    if dataset is None:
        certificate = memory.certificate
        return memory.dataset, certificate, certificate.verdict is Verdict.PROVED and not memory.recorded_by
    checked = check_rows(memory, dataset.sequences(), dataset.label_values(), progress)
    if checked.certificate.verdict is not Verdict.PROVED:
        raise DataError(f"the memory does not store this data: {checked.certificate.reason}")
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

    def build(chosen: Memory, data: Dataset | None) -> TorchMemory:
        return build_torch(request_of(chosen, dtype, data, progress), fast=fast)

    return _exported(build, memory, dtype, dataset, progress)


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
    """Write the memory for `target`; returns the file's name and its metadata."""
    from byheart.export.targets import writer_of

    def write(chosen: Memory, data: Dataset | None) -> dict[str, Any]:
        return writer_of(target)(request_of(chosen, dtype, data, progress), Path(path))

    return _exported(write, memory, dtype, dataset, progress)


def _exported(
    export: Callable[[Memory, Dataset | None], Artifact],
    memory: Memory,
    dtype: str | None,
    dataset: Dataset | None,
    progress: Progress,
) -> Artifact:
    """The artifact of the memory, or of a native memory of the same rows where floats do not hold its numbers."""
    try:
        return export(memory, dataset)
    except ExportError as refusal:
        twin = native_twin(memory, dtype, dataset, progress)
        if twin is None:
            raise
        words = f"{memory.construction} has no exact form in floats ({refusal.args[0].split(';')[0]})"
        warnings.warn(f"{words}; exported the same rows and labels as construction native, proved again", stacklevel=4)
        return export(twin, None)


def native_twin(
    memory: Memory, dtype: str | None = None, dataset: Dataset | None = None, progress: Progress = SILENT
) -> Memory | None:
    """A memory of the same rows and labels by the construction that floats hold.

    Args:
        memory: A memory whose numbers are longer than floats.
        dtype: The float type; by default float64.
        dataset: The rows, where the memory no longer has them.
        progress: Where to show progress.

    Returns:
        The memory, proved; None where there are no rows to build it from, where the construction is for floats
        itself, or where its task has no native form.
    """
    from byheart.build import recipe
    from byheart.memory.memorize import memorize

    data = memory.dataset if dataset is None else dataset
    foreign = isinstance(memory.network, DecoderNetwork) or data is None
    if foreign or data is None or recipe(memory.construction).floats:
        return None
    rows = data.sequences()
    if data.encoder.symbols is None:
        if any(len(token) != 1 for row in rows for token in row):
            return None
        rows = [[_as_float(token[0]) for token in row] for row in rows]
        if any(value is None for row in rows for value in row):
            return None
    options: dict[str, Any] = {} if dtype is None else {"dtype": dtype}
    options["abstain_bits"] = memory.options["abstain_bits"] if memory.abstains else 0
    try:
        twin = memorize(
            rows,
            data.label_values(),
            task=memory.task.value,
            construction="native",
            positions=memory.encoder.positions,
            seed=memory.seed,
            progress=progress,
            **options,
        )
    except (BuildError, OptionError, DataError):
        return None
    proved = twin.certificate.verdict is Verdict.PROVED
    return replace(twin, tokens=memory.tokens, selection=memory.selection) if proved else None


def _as_float(value: Any) -> float | None:
    """The same number as a float; None where there is none."""
    try:
        found = float(value)
        return found if from_float(found) == value else None
    except OverflowError:
        return None
