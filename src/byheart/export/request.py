"""One wish to export: a network, how to ask it, the float type, and what it is to be checked with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from byheart.data.dataset.dataset import Dataset
from byheart.data.dataset.encoder import Encoder
from byheart.errors import ExportError, FileFormatError
from byheart.export.fit import Fit, check_fit
from byheart.export.metadata import About, metadata
from byheart.export.recheck import Questions, Runner, questions, recheck
from byheart.files import replacing
from byheart.ir.network import Network
from byheart.progress import SILENT, Progress


@dataclass(frozen=True)
class Request:
    """`dataset` is what the export is rechecked with; without it, with drawn inputs.

    `certified`: the network is proved to give the labels of `dataset`, so these are its exact answers.
    """

    network: Network
    encoder: Encoder
    about: About
    dtype: str = "float64"
    dataset: Dataset | None = None
    certified: bool = False
    progress: Progress = field(default=SILENT, repr=False)

    def prove(self) -> Fit:
        """That the float type holds every value in every order; an ExportError otherwise."""
        inputs = None if self.dataset is None else self.dataset.inputs
        return check_fit(self.network, self.encoder, inputs, self.dtype, self.progress)

    def questions(self) -> Questions:
        return questions(
            self.network, self.encoder, self.dataset, self.dtype, certified=self.certified, progress=self.progress
        )

    def recheck(self, run: Runner, asked: Questions, target: str) -> str:
        return recheck(run, asked, target, self.progress)

    def metadata(self, fit: Fit, checked: str) -> dict[str, str]:
        return metadata(self.network, self.encoder, self.about, self.dtype, fit=fit, checked=checked)

    def write(self, path: Path, fill: Callable[[Path], object]) -> None:
        """`fill` writes a temporary file beside `path`, which then takes its place; a failure leaves nothing."""
        try:
            with replacing(path) as part:
                fill(part)
        except FileFormatError as error:
            raise ExportError(str(error)) from error
