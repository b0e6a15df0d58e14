"""What travels with an exported model, so that it can be used without byheart: symbols, labels, and the proof."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from byheart.data.dataset.encoder import Encoder
from byheart.export.fit import Fit
from byheart.ir.network import Network
from byheart.ir.size import measure
from byheart.version import __version__


@dataclass(frozen=True)
class About:
    """What is known about the memory besides its network: construction, certificate, fingerprint, …, ready for JSON."""

    classes: tuple[Hashable, ...]
    details: Mapping[str, Any] = field(default_factory=dict)


def metadata(network: Network, encoder: Encoder, about: About, dtype: str, *, fit: Fit, checked: str) -> dict[str, str]:
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
    """What stands at the end of the list of labels, for class -1, no label: never one of them.

    >>> unknown_mark(["a"]), unknown_mark(["a", "<unknown>"])
    ('<unknown>', '<<unknown>>')
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
