"""Every export is run and compared with the exact answer before it is written.

It is evaluated on the data's rows, or on rows sampled from the encoder's tokens. Its weights are exact matrices as
dense float arrays, without ever rounding:

>>> dense(Matrix.of([{1: 3}], 2), "float64")
array([[0., 3.]])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.dataset import Dataset
from byheart.data.dataset.encoder import Encoder
from byheart.data.task import Task
from byheart.errors import ExportError
from byheart.exact import Number, as_fraction
from byheart.exact.number import Values
from byheart.ir.evaluate import answers
from byheart.ir.layers import Embedding, Matrix
from byheart.ir.network import ABSENT, Inputs, Network
from byheart.progress import SILENT, Progress

Array = npt.NDArray[Any]
DTYPES: dict[str, type[Any]] = {"float64": np.float64, "float32": np.float32}


def number(value: Number, dtype: str) -> float:
    """The float equal to `value`; an ExportError when there is none."""
    try:
        found = float(np.array(float(value), dtype=DTYPES[dtype])[()])
    except OverflowError:
        found = np.inf
    if not np.isfinite(found) or Fraction(found) != as_fraction(value):
        raise ExportError(f"the weight {_short(value)} is not a {dtype} number")
    return found


def _short(value: Number) -> str:
    text = str(value)
    return text if len(text) < 40 else f"{text[:30]}… ({len(text)} digits)"


def dense(matrix: Matrix, dtype: str) -> Array:
    """The matrix with its zeros."""
    out = np.zeros(matrix.shape, dtype=DTYPES[dtype])
    for i, row in enumerate(matrix.rows):
        for j, weight in row:
            out[i, j] = number(weight, dtype)
    return out


def place_stride(layer: Embedding) -> int:
    """How many rows of the table lie between two places; 0 when the place does not matter."""
    if layer.strides[0] != 1 or len(layer.strides) > 2:
        raise ExportError(f"an embedding with strides {layer.strides} has no exported form; use construction native")
    return layer.strides[1] if len(layer.strides) > 1 else 0


def vector(values: Iterable[Number], dtype: str) -> Array:
    return np.array([number(v, dtype) for v in values], dtype=DTYPES[dtype])


# Random inputs where the rows are not given.
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


# Rows at a time.
BATCH = 4096

Runner = Callable[[npt.NDArray[np.generic], npt.NDArray[np.bool_]], Index]  # (tokens, present) -> class numbers


@dataclass(frozen=True, eq=False)
class ExportQueries:
    """Inputs in the form that exported models take, and the exact answers (-2: no answer at this place)."""

    tokens: npt.NDArray[np.generic]  # (N, n) codes or (N, n, d) vectors
    present: npt.NDArray[np.bool_]  # (N, n)
    expected: Index
    description: str


def queries(
    network: Network,
    encoder: Encoder,
    dataset: Dataset | None,
    dtype: str,
    *,
    certified: bool,
    progress: Progress = SILENT,
) -> ExportQueries:
    """All rows of the data, or 10,000 drawn ones. `certified`: the labels are known to be the exact answers."""
    if dataset is None:
        codes = draw_codes(encoder, DRAWN, seed=0)
        inputs = inputs_of_codes(encoder, codes)
        expected = answers(network, inputs, progress)
        return ExportQueries(codes, codes >= 0, _queried(expected, inputs), f"{DRAWN} inputs drawn at random")
    inputs = dataset.inputs
    if certified:
        expected = np.where(dataset.labels >= 0, dataset.labels, -2)
    else:
        expected = _queried(answers(network, inputs, progress), inputs)
    tokens = codes_of_inputs(inputs) if encoder.symbols is not None else vectors_of_inputs(encoder, inputs, dtype)
    return ExportQueries(tokens, inputs.index >= 0, expected, f"every row of the data ({dataset.N})")


def _queried(expected: Index, inputs: Inputs) -> Index:
    return expected if expected.ndim == 1 else np.where(inputs.index >= 0, expected, -2)


def recheck(run: Runner, queried: ExportQueries, target: str, progress: Progress = SILENT) -> str:
    """Run the exported model on all queries; returns what was checked, or raises with the input that went wrong."""
    with progress.stage(f"rechecking {target}", total=len(queried.tokens)) as stage:
        for start in range(0, len(queried.tokens), BATCH):
            part = slice(start, start + BATCH)
            found = run(queried.tokens[part], queried.present[part])
            wrong = np.argwhere((queried.expected[part] != -2) & (found != queried.expected[part]))
            if len(wrong):
                place = tuple(int(k) for k in wrong[0])
                row = queried.tokens[start + place[0]].tolist()
                raise ExportError(
                    f"the {target} model answers class {int(found[place])} instead of "
                    f"{int(queried.expected[part][place])} for the tokens {row}; nothing was written. "
                    "Please report this together with the versions of the libraries"
                )
            stage.advance(len(found))
    return queried.description
