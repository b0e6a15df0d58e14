"""Inputs to check an export with: the data's rows, or rows drawn at random from what the encoder knows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.encoder import Encoder
from byheart.data.task import Task
from byheart.errors import ExportError
from byheart.exact.values import Values
from byheart.export.arrays import DTYPES
from byheart.ir.inputs import ABSENT, Inputs

DRAWN = 10_000

Index = npt.NDArray[np.int64]


def draw_codes(encoder: Encoder, count: int, seed: int) -> Index:
    """`count` random rows of symbol codes, of every length that the encoder takes."""
    if encoder.symbols is None:
        raise ExportError("vectors cannot be drawn without data; give the data with --data")
    rng = np.random.default_rng(seed)
    codes = rng.integers(1, len(encoder.symbols) + 1, (count, encoder.length))
    if encoder.task in (Task.SET, Task.CAUSAL):
        lengths = rng.integers(1, encoder.length + 1, count)
        codes[np.arange(encoder.length) >= lengths[:, None]] = ABSENT
    elif encoder.padded:
        lengths = rng.integers(1, encoder.length + 1, count)
        codes[np.arange(encoder.length) < encoder.length - lengths[:, None]] = 0
    return codes


def inputs_of_codes(encoder: Encoder, codes: Index) -> Inputs:
    """What the exact network sees of rows of codes."""
    places = np.arange(codes.shape[1]) if encoder.positions else np.zeros(codes.shape[1], dtype=np.int64)
    stride = len(encoder.symbols or ()) + 1
    ids = codes + stride * places[None, :]
    known, where = np.unique(ids[codes >= 0], return_inverse=True)
    index = np.full(codes.shape, ABSENT, dtype=np.int64)
    index[codes >= 0] = where
    rows = [[int(k) % stride, int(k) // stride] if encoder.positions else [int(k)] for k in known]
    return Inputs(Values.of(rows), index)


def codes_of_inputs(inputs: Inputs) -> Index:
    """Rows of symbol codes, -1 where a token is absent: what exported models of symbols take."""
    codes = np.append(inputs.points.numerators[:, 0].astype(np.int64) // inputs.points.denominator, ABSENT)
    return np.asarray(codes[inputs.index], dtype=np.int64)


def vectors_of_inputs(encoder: Encoder, inputs: Inputs, dtype: str) -> npt.NDArray[np.floating]:
    """(N, n, d) floats without positions, 0 where a token is absent: what exported models of vectors take."""
    numerators = inputs.points.numerators[:, : encoder.dimension]
    table = np.array([[int(x) / inputs.points.denominator for x in row] for row in numerators], dtype=DTYPES[dtype])
    padded = np.concatenate([table, np.zeros((1, encoder.dimension), dtype=DTYPES[dtype])])
    return np.asarray(padded[inputs.index])
