"""A request to export: a network, its queries, the float type, and what it is to be checked with.

`check_fit` proves that the network fits the float type: every weight, and every value that any input can reach, in any
order. `metadata` travels with the exported model, so that it can be used without byheart: symbols, labels, the proof.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from byheart.certify.any_order.lattice import FORMATS, facts_of
from byheart.certify.any_order.proof import ASSUMED, AnyOrder, prove_any_order
from byheart.data.dataset.dataset import Dataset
from byheart.data.dataset.encoder import Encoder
from byheart.errors import ExportError, FileFormatError, OptionError
from byheart.export.recheck import ExportQueries, Runner, queries, recheck
from byheart.files import replacing
from byheart.ir.network import Inputs, Network
from byheart.ir.size import measure
from byheart.progress import SILENT, Progress
from byheart.version import __version__

TYPES = ("float32", "float64")  # smallest first


@dataclass(frozen=True)
class FloatFit:
    """The proof for the requested float type, and for every other type in which the same weights are exact."""

    proof: AnyOrder
    others: tuple[AnyOrder, ...] = ()

    @property
    def types(self) -> tuple[str, ...]:
        """The float types that the weights may be cast to."""
        return (self.proof.dtype, *(other.dtype for other in self.others))

    def as_dict(self) -> dict[str, str]:
        """What is proved, by float type, and what of the engine is assumed."""
        return {**{p.dtype: p.sentence() for p in (self.proof, *self.others)}, "assumed of the engine": ASSUMED}


def check_fit(
    network: Network, encoder: Encoder, inputs: Inputs | None, dtype: str, progress: Progress = SILENT
) -> FloatFit:
    """The proof that `dtype` evaluates `network` exactly; an ExportError names the smallest type that would.

    Symbols are known from the encoder; a network of vectors is proved for the box of `inputs`.
    """
    if dtype not in FORMATS:
        raise OptionError(f"dtype {dtype!r} is not one of {', '.join(TYPES)}")
    if inputs is None and encoder.symbols is None:
        raise ExportError("a memory of vectors is proved for the vectors of its data only; give the data with --data")
    facts = facts_of(encoder, inputs)
    found = prove_any_order(network, facts, dtype, progress)
    others = [prove_any_order(network, facts, other) for other in TYPES if other != dtype]
    if found.proved:
        return FloatFit(found, tuple(other for other in others if other.proved))
    reason = found.sentence()
    for other in others:
        if other.proved and TYPES.index(other.dtype) > TYPES.index(dtype):
            larger = other.dtype
            raise ExportError(f"this memory does not fit {dtype}: {reason}; it fits {larger}: ask for dtype {larger}")
    raise ExportError(
        f"this memory fits no float type (requested: {dtype}): {reason}; "
        f"memorize the data with construction native and dtype={dtype}, which is designed for it (memorize --for "
        "onnx), or use byheart deploy, which makes an ONNX model of a table in one step"
    )


@dataclass(frozen=True)
class About:
    """What is known about the memory besides its network: construction, certificate, fingerprint, …, ready for JSON."""

    classes: tuple[Hashable, ...]
    details: Mapping[str, Any] = field(default_factory=dict)


def metadata(
    network: Network, encoder: Encoder, about: About, dtype: str, *, fit: FloatFit, checked: str
) -> dict[str, str]:
    """Strings only, as ONNX and safetensors want them; structured values are JSON."""
    size = measure(network)
    return {
        "byheart.version": __version__,
        "byheart.task": str(encoder.task),
        "byheart.dtype": dtype,
        "byheart.length": str(encoder.length),
        "byheart.positions": json.dumps(encoder.positions),
        "byheart.input": _input(encoder),
        "byheart.symbols": json.dumps(encoder.as_dict()["symbols"]),
        "byheart.labels": json.dumps([*map(plain, about.classes), unknown_mark(about.classes)]),
        "byheart.parameters": str(size.parameters),
        "byheart.embedding_parameters": str(size.embedding_parameters),
        "byheart.exactness": fit.proof.sentence(),
        "byheart.proved": json.dumps(fit.as_dict()),
        "byheart.checked": checked,
        **{f"byheart.{name}": json.dumps(value, default=str) for name, value in about.details.items()},
    }


def _input(encoder: Encoder) -> str:
    if encoder.symbols is None:
        what = f"vectors (batch, {encoder.length}, {encoder.dimension})"
    else:
        what = f"codes (batch, {encoder.length}): symbol i of `symbols` has code i + 1"
    if encoder.task.pads:
        return f"{what}; short rows are padded on the left" + (" with code 0" if encoder.symbols is not None else "")
    return f"{what}; missing tokens at the end are " + ("-1" if encoder.symbols is not None else "marked by `present`")


def unknown_mark(labels: Sequence[Hashable]) -> str:
    """The last entry of the list of labels, for class -1, no label: never one of them.

    >>> unknown_mark(["a"]), unknown_mark(["a", "<unknown>"]), unknown_mark(["<unknown>", "<<unknown>>"])
    ('<unknown>', '<<unknown>>', '<<<unknown>>>')
    """
    mark = "<unknown>"
    while mark in labels:
        mark = f"<{mark}>"
    return mark


def plain(label: Hashable) -> Any:
    """A label as JSON; what JSON lacks becomes its text."""
    if label is None or isinstance(label, str | int | float):
        return label
    return [plain(part) for part in label] if isinstance(label, Sequence) else str(label)


@dataclass(frozen=True)
class ExportRequest:
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

    def prove(self) -> FloatFit:
        """That the float type holds every value in every order; an ExportError otherwise."""
        inputs = None if self.dataset is None else self.dataset.inputs
        return check_fit(self.network, self.encoder, inputs, self.dtype, self.progress)

    def queries(self) -> ExportQueries:
        return queries(
            self.network, self.encoder, self.dataset, self.dtype, certified=self.certified, progress=self.progress
        )

    def recheck(self, run: Runner, queried: ExportQueries, target: str) -> str:
        return recheck(run, queried, target, self.progress)

    def metadata(self, fit: FloatFit, checked: str) -> dict[str, str]:
        return metadata(self.network, self.encoder, self.about, self.dtype, fit=fit, checked=checked)

    def write(self, path: Path, fill: Callable[[Path], object]) -> None:
        """`fill` writes a temporary file beside `path`, which then takes its place; a failure leaves nothing."""
        try:
            with replacing(path) as part:
                fill(part)
        except FileFormatError as error:
            raise ExportError(str(error)) from error
