"""One wish to export: a network, how to ask it, the float type, and what it is to be checked with."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from byheart.certify.any_order.proof import AnyOrder
from byheart.data.dataset.dataset import Dataset
from byheart.data.dataset.encoder import Encoder
from byheart.errors import ExportError
from byheart.export.fit import check_fit
from byheart.export.metadata import About, metadata
from byheart.export.recheck import Questions, Runner, questions, recheck
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

    def prove(self) -> AnyOrder:
        """That the float type holds every value in every order; an ExportError otherwise."""
        inputs = None if self.dataset is None else self.dataset.inputs
        return check_fit(self.network, self.encoder, inputs, self.dtype, self.progress)

    def questions(self) -> Questions:
        return questions(
            self.network, self.encoder, self.dataset, self.dtype, certified=self.certified, progress=self.progress
        )

    def recheck(self, run: Runner, asked: Questions, target: str) -> str:
        return recheck(run, asked, target, self.progress)

    def metadata(self, proof: AnyOrder, checked: str) -> dict[str, str]:
        return metadata(self.network, self.encoder, self.about, self.dtype, exactness=proof.sentence(), checked=checked)

    def write(self, path: Path, fill: Callable[[Path], object]) -> None:
        """`fill` writes a temporary file beside `path`, which then takes its place; a failure leaves nothing."""
        try:
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
            os.close(handle)
        except OSError as error:
            raise ExportError(f"cannot write {path}: {error.strerror}") from error
        part = Path(name)
        try:
            fill(part)
            mask = os.umask(0)
            os.umask(mask)
            part.chmod(0o666 & ~mask)
            part.replace(path)
        except OSError as error:
            raise ExportError(f"cannot write {path}: {error.strerror}") from error
        finally:
            part.unlink(missing_ok=True)
