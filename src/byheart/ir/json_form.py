"""Networks as JSON: readable with a JSON parser and integers; read strictly, because files are untrusted.

A number is a JSON integer when it is below 2^53 in size, else a string: optional minus, `0x` and hexadecimal digits of
an odd number, and `p` with a decimal power of two unless that is 0. Every number has this one form, every object
exactly its fields, every row of a matrix its columns in ascending order and no zeros; anything else is refused.

    >>> number_to_json(-5), number_to_json(3 << 100), number_from_json("-0x3p-2")
    (-5, '0x3p100', Dyadic(mantissa=-3, exponent=-2))

Decoders have matrices without their zeros, every float64 as the exact dyadic number that it is. They are read as
strictly as the layers of a `Network`: exactly these fields, every number in its one form, every weight a float64,
shapes that fit, and no more memory than a file of that size may need.

    >>> import numpy as np
    >>> _stored(np.array([[0.0, 0.5]])), _vector([3, "0x1p-1"]).tolist()
    ({'columns': 2, 'rows': [[[1, '0x1p-1']]]}, [3.0, 0.5])
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from byheart.errors import FileFormatError, NetworkError
from byheart.exact import Number, dyadic, parts
from byheart.exact.budget import meter
from byheart.exact.number import from_float
from byheart.ir.decoder import Activation, AttentionHead, Average, ContextReader, Decoder, Floats, Mixer, SelfAttention
from byheart.ir.decoder_network import DecoderNetwork, TableDecoder
from byheart.ir.layers import (
    Affine,
    Attention,
    Embedding,
    Flatten,
    GlobalToken,
    Head,
    Kind,
    Layer,
    Matrix,
    Pattern,
    Place,
    Pool,
    Residual,
    Threshold,
    Vector,
)
from byheart.ir.network import Decode, Network, Read, Readout

Json = Any
T = TypeVar("T")

_NUMBER = re.compile(r"(-?)0x([0-9a-f]+)(?:p(-?[0-9]{1,7}))?")
# Integers up to this are JSON numbers that every reader holds.
_SAFE = 1 << 53
_MOST_BITS = 1 << 22  # no honest weight comes near; a forged power must not fill the memory


def number_to_json(number: Number) -> int | str:
    mantissa, exponent = parts(number)
    if exponent == 0 and -_SAFE < mantissa < _SAFE:
        return mantissa
    zeros = (mantissa & -mantissa).bit_length() - 1
    power = f"p{exponent + zeros}" if exponent + zeros else ""
    return f"{'-' if mantissa < 0 else ''}0x{abs(mantissa) >> zeros:x}{power}"


def number_from_json(value: Json) -> Number:
    if type(value) is int and -_SAFE < value < _SAFE:
        return value
    match = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise FileFormatError(f"{str(value)[:40]!r} is not a number of this format")
    sign, digits, power = match.groups()
    exponent = int(power or 0)
    if 4 * len(digits) > _MOST_BITS or abs(exponent) > _MOST_BITS:
        raise FileFormatError(f"a number of more than {_MOST_BITS} bits is refused")
    number = dyadic(int(digits, 16) * (-1 if sign else 1), exponent)
    if number_to_json(number) != value:
        raise FileFormatError(f"the number {value[:40]!r} is not written in its canonical form")
    return number


def matrix_to_json(matrix: Matrix) -> Json:
    rows = [[[j, number_to_json(w)] for j, w in row] for row in matrix.rows]
    return {"columns": matrix.columns, "rows": rows}


def matrix_from_json(value: Json) -> Matrix:
    only(value, "matrix", "columns", "rows")
    columns = take(value, "columns", int)
    rows = []
    for row in take(value, "rows", list):
        cells = [(_pair(cell)[0], number_from_json(_pair(cell)[1])) for cell in expect(row, list)]
        if any(a >= b for (a, _), (b, _) in pairwise(cells)):
            raise FileFormatError("the columns in a row of a matrix must ascend, each named once")
        if any(weight == 0 for _, weight in cells):
            raise FileFormatError("a matrix stores a zero; zeros are omitted")
        rows.append(dict(cells))
    return Matrix.of(rows, columns)


def _pair(cell: Json) -> Json:
    if not isinstance(cell, list) or len(cell) != 2 or type(cell[0]) is not int:
        raise FileFormatError("a matrix cell must be [column, number]")
    return cell


def _vector_to_json(vector: Vector) -> Json:
    return [number_to_json(v) for v in vector]


def _vector_from_json(value: Json) -> Vector:
    return tuple(number_from_json(v) for v in expect(value, list))


# Names of layers in a file. The fields of a layer are those of its class.
LAYERS: Mapping[str, type[Layer]] = {
    "affine": Affine,
    "threshold": Threshold,
    "residual": Residual,
    "embedding": Embedding,
    "attention": Attention,
    "pool": Pool,
    "flatten": Flatten,
    "global-token": GlobalToken,
}
_NAMES = {kind: name for name, kind in LAYERS.items()}


def layer_to_json(layer: Layer) -> Json:
    """A layer as its name and its fields."""
    return {"layer": _NAMES[type(layer)], **_fields_to_json(layer)}


def layer_from_json(value: Json) -> Layer:
    """The layer of `layer_to_json`; a FileFormatError for anything else."""
    name = take(value, "layer", str)
    if name not in LAYERS:
        raise FileFormatError(f"unknown layer {name!r}; a newer byheart may have written this file")
    found: Layer = _fields_from_json(LAYERS[name], value, f"{name} layer", "layer")
    return found


def _fields_to_json(part: Layer | Head) -> dict[str, Json]:
    return {field.name: _TYPES[str(field.type)][0](getattr(part, field.name)) for field in fields(part)}


def _fields_from_json(kind: Any, value: Json, what: str, *besides: str) -> Any:
    found = fields(kind)
    only(value, what, *besides, *(field.name for field in found))
    return kind(*(_TYPES[str(field.type)][1](value[field.name]) for field in found))


def _or_null(write: Callable[[Any], Json], read: Callable[[Json], Any]) -> tuple[Callable[..., Any], ...]:
    return lambda x: None if x is None else write(x), lambda x: None if x is None else read(x)


def _member(kind: type[StrEnum]) -> tuple[Callable[..., Any], ...]:
    name = kind.__name__.lower()
    return lambda x: x.value, lambda x: enum(kind, {name: x}, name)


# A field's type, as the class is annotated -> how it is written, and how it is read.
_TYPES: Mapping[str, tuple[Callable[..., Any], ...]] = {
    "bool": (bool, lambda x: expect(x, bool)),
    "int": (int, lambda x: expect(x, int)),
    "tuple[int, ...]": (list, lambda x: tuple(expect(k, int) for k in expect(x, list))),
    "Vector": (_vector_to_json, _vector_from_json),
    "Vector | None": _or_null(_vector_to_json, _vector_from_json),
    "Matrix": (matrix_to_json, matrix_from_json),
    "Matrix | None": _or_null(matrix_to_json, matrix_from_json),
    "Kind": _member(Kind),
    "Pattern": _member(Pattern),
    "Place": _member(Place),
    "tuple[Head, ...]": (
        lambda heads: [_fields_to_json(head) for head in heads],
        lambda x: tuple(_fields_from_json(Head, head, "head") for head in expect(x, list)),
    ),
}


def network_to_json(network: Network) -> Json:
    readout = network.readout
    return {
        "layers": [layer_to_json(layer) for layer in network.layers],
        "read": network.read.value,
        "readout": {"decode": readout.decode.value, "classes": readout.classes, "offset": readout.offset},
        "stages": [[name, count] for name, count in network.stages],
    }


def network_from_json(value: Json) -> Network:
    """The network; a FileFormatError for anything that is not one."""
    try:
        return _network(value)
    except NetworkError as error:
        raise FileFormatError(f"the layers in the file do not fit together: {error}") from error


def _network(value: Json) -> Network:
    only(value, "network", "layers", "read", "readout", "stages")
    layers = [layer_from_json(layer) for layer in take(value, "layers", list)]
    readout = take(value, "readout", dict)
    only(readout, "readout", "decode", "classes", "offset")
    answer = Readout(enum(Decode, readout, "decode"), take(readout, "classes", int), take(readout, "offset", int))
    stages = []
    for stage in take(value, "stages", list):
        if not isinstance(stage, list) or len(stage) != 2 or not isinstance(stage[0], str) or type(stage[1]) is not int:
            raise FileFormatError("a stage must be [name, number of layers]")
        stages.append((stage[0], stage[1]))
    return Network(tuple(layers), enum(Read, value, "read"), answer, tuple(stages))


def expect(value: Json, kind: type[T]) -> T:
    """`value` if it is of this JSON type (an int is not a bool), else a FileFormatError."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise FileFormatError(f"expected a {kind.__name__}, found {type(value).__name__}")
    return value


def take(value: Json, key: str, kind: type[T]) -> T:
    """value[key], checked."""
    if key not in expect(value, dict):
        raise FileFormatError(f"the field {key!r} is missing")
    return expect(value[key], kind)


def only(value: Json, what: str, *names: str) -> None:
    """A FileFormatError unless `value` is an object with exactly these fields."""
    found = set(expect(value, dict))
    if found != set(names):
        unknown, missing = sorted(found - set(names)), sorted(set(names) - found)
        if missing:
            raise FileFormatError(f"the {what} has no field {missing[0]!r}")
        raise FileFormatError(f"the {what} has a field {unknown[0][:40]!r}, which this format does not have")


def optional(value: Json, key: str, read: Callable[[Json], T]) -> T | None:
    """value[key] by `read`, or None where it is null."""
    return None if value[key] is None else read(value[key])


def counts(value: Json, key: str) -> dict[str, int]:
    """value[key] as an object of integers."""
    return {name: expect(number, int) for name, number in take(value, key, dict).items()}


def texts(value: Json, key: str) -> dict[str, str]:
    """value[key] as an object of texts."""
    return {name: expect(text, str) for name, text in take(value, key, dict).items()}


def enum(kind: Callable[[str], T], value: Json, key: str) -> T:
    """value[key] as a member of an enumeration."""
    text = take(value, key, str)
    try:
        return kind(text)
    except ValueError:
        raise FileFormatError(f"{key} {text!r} is unknown; a newer byheart may have written this file") from None


LARGEST = 1 << 29  # numbers of all matrices together: 4 GiB in memory, whatever a small file claims
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
    reader = ContextReader(
        _matrix(stored["embedding"], budget), _mixer(stored["mixer"], budget), take(stored, "skip", bool)
    )
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
