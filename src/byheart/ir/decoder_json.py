"""Decoders as JSON: matrices without their zeros, every float64 as the exact dyadic number that it is.

Read as strictly as the layers of a `Network`: exactly these fields, every number in its one form, every weight a
float64, shapes that fit, and no more memory than a file of that size may ask for.

    >>> import numpy as np
    >>> _stored(np.array([[0.0, 0.5]])), _vector([3, "0x1p-1"]).tolist()
    ({'columns': 2, 'rows': [[[1, '0x1p-1']]]}, [3.0, 0.5])
"""

from __future__ import annotations

from typing import Any

import numpy as np

from byheart.errors import FileFormatError, NetworkError
from byheart.exact.budget import meter
from byheart.exact.number import from_float
from byheart.ir.activation import Activation
from byheart.ir.decoder import AttentionHead, Average, Decoder, Floats, Mixer, Reader, SelfAttention
from byheart.ir.decoder_network import DecoderNetwork
from byheart.ir.json_form import (
    enum,
    expect,
    matrix_from_json,
    matrix_to_json,
    network_from_json,
    network_to_json,
    number_from_json,
    number_to_json,
    only,
    take,
)
from byheart.ir.matrix import Matrix
from byheart.ir.network import Read
from byheart.ir.table_decoder import TableDecoder

LARGEST = 1 << 29  # numbers of all matrices together: 4 GiB in memory, whatever a small file says
KNOWN_DIGITS = 16  # hexadecimal, of a context's number


def decoder_to_json(network: DecoderNetwork) -> dict[str, Any]:
    """As docs/file-format.md describes it; float64 numbers are dyadic, so they are written exactly."""
    return {
        "decoder": _table(network.decoder) if isinstance(network.decoder, TableDecoder) else _layers(network.decoder),
        "inputs": list(network.inputs),
        "classes": list(network.classes),
        "read": network.read.value,
        "known": "".join(f"{number:0{KNOWN_DIGITS}x}" for number in network.known),
    }


def _table(decoder: TableDecoder) -> dict[str, Any]:
    return {
        "network": network_to_json(decoder.network),
        "codes": list(decoder.codes),
        "length": decoder.length,
        "padded": decoder.padded,
        "coordinates": _stored(decoder.coordinates),
        "columns": _stored(decoder.columns),
    }


def _layers(decoder: Decoder) -> dict[str, Any]:
    reader = decoder.reader
    mixer: dict[str, Any] = {"kind": reader.kind, "positions": _stored(reader.mixer.positions)}
    if isinstance(reader.mixer, SelfAttention):
        heads = [{name: _stored(matrix) for name, matrix in vars(head).items()} for head in reader.mixer.heads]
        mixer |= {"heads": heads, "output": _stored(reader.mixer.output)}
    return {
        "embedding": _stored(reader.embedding),
        "mixer": mixer,
        "skip": reader.skip,
        "hidden": _stored(decoder.hidden),
        "bias": _stored(decoder.bias),
        "activation": decoder.activation.value,
        "output": [_stored(factor) for factor in decoder.output],
    }


def decoder_from_json(value: Any) -> DecoderNetwork:
    """The network; a FileFormatError for anything that is not in its one form."""
    only(value, "network", "decoder", "inputs", "classes", "read", "known")
    stored = take(value, "decoder", dict)
    try:
        decoder = _read_table(stored) if "network" in stored else _read_layers(stored)
        inputs, classes = (tuple(expect(k, int) for k in take(value, name, list)) for name in ("inputs", "classes"))
        return DecoderNetwork(decoder, inputs, classes, enum(Read, value, "read"), _known(take(value, "known", str)))
    except (NetworkError, IndexError) as error:
        raise FileFormatError(f"the matrices in the file do not fit together: {error}") from error


def _read_layers(stored: dict[str, Any]) -> Decoder:
    only(stored, "decoder", "embedding", "mixer", "skip", "hidden", "bias", "activation", "output")
    budget = [LARGEST]
    reader = Reader(_matrix(stored["embedding"], budget), _mixer(stored["mixer"], budget), take(stored, "skip", bool))
    factors = tuple(_matrix(factor, budget) for factor in take(stored, "output", list))
    hidden, bias = _matrix(stored["hidden"], budget), _vector(stored["bias"])
    return Decoder(reader, hidden, bias, enum(Activation, stored, "activation"), factors)


def _read_table(stored: dict[str, Any]) -> TableDecoder:
    only(stored, "decoder", "network", "codes", "length", "padded", "coordinates", "columns")
    budget = [LARGEST]
    return TableDecoder(
        network_from_json(take(stored, "network", dict)),
        tuple(expect(code, int) for code in take(stored, "codes", list)),
        take(stored, "length", int),
        take(stored, "padded", bool),
        _matrix(stored["coordinates"], budget),
        _matrix(stored["columns"], budget),
    )


def _stored(matrix: Floats) -> Any:
    """A matrix without its zeros, or a vector whole."""
    if matrix.ndim == 1:
        return [number_to_json(from_float(x)) for x in matrix.tolist()]
    rows = [{int(j): from_float(float(row[j])) for j in np.flatnonzero(row)} for row in matrix]
    return matrix_to_json(Matrix.of(rows, matrix.shape[1]))


def _matrix(value: Any, budget: list[int]) -> Floats:
    """Dense again; the shape is weighed before memory is taken for it."""
    sparse = matrix_from_json(value)
    budget[0] -= len(sparse.rows) * sparse.columns
    if budget[0] < 0:
        raise FileFormatError(f"the matrices of the decoder have more than {LARGEST:,} entries")
    limit = meter()
    if limit is not None:
        limit.hold(8 * (LARGEST - budget[0]))
    dense = np.zeros((len(sparse.rows), sparse.columns))
    for k, row in enumerate(sparse.rows):
        for j, weight in row:
            dense[k, j] = _float(weight)
    return dense


def _vector(value: Any) -> Floats:
    return np.array([_float(number_from_json(x)) for x in expect(value, list)], dtype=np.float64)


def _float(number: Any) -> float:
    """The float64 that a stored number is; a FileFormatError where it is not one."""
    try:
        found = float(number)
    except OverflowError:
        found = float("inf")
    if not np.isfinite(found) or from_float(found) != number:
        raise FileFormatError("a weight of the decoder is not a float64 number")
    return found


def _mixer(value: Any, budget: list[int]) -> Mixer:
    if take(value, "kind", str) == "average":
        only(value, "mixer", "kind", "positions")
        return Average(_vector(value["positions"]))
    only(value, "mixer", "kind", "positions", "heads", "output")
    if value["kind"] != "attention":
        raise FileFormatError(f"unknown mixer {value['kind'][:40]!r}; a newer byheart may have written this file")
    heads = []
    for head in take(value, "heads", list):
        only(head, "head", "key", "query", "value")
        heads.append(AttentionHead(*(_matrix(head[name], budget) for name in ("key", "query", "value"))))
    return SelfAttention(_matrix(value["positions"], budget), tuple(heads), _matrix(value["output"], budget))


def _known(text: str) -> tuple[int, ...]:
    if len(text) % KNOWN_DIGITS or set(text) - set("0123456789abcdef"):
        raise FileFormatError("the known contexts are not written as 16 hexadecimal digits each")
    return tuple(int(text[k : k + KNOWN_DIGITS], 16) for k in range(0, len(text), KNOWN_DIGITS))
