"""Flattened rows and threshold units: evaluation, size, file form, and what they refuse."""

from __future__ import annotations

import json

import numpy as np
import pytest

from byheart.errors import FileFormatError, NetworkError
from byheart.exact import dyadic
from byheart.exact.number import Values
from byheart.ir.evaluate import answers, outputs
from byheart.ir.json_form import network_from_json, network_to_json
from byheart.ir.layers import Affine, Embedding, Flatten, Matrix, Threshold
from byheart.ir.network import Decode, Inputs, Network, Read, Readout
from byheart.ir.size import measure

ROWS = Inputs(Values.of([[1, 2], [3, 4], [5, 6]], 2), np.array([[0, 1], [2, 2], [0, 1]]))
COUNT = Network(
    (
        Flatten(2, 2),
        Threshold(Matrix.of([{0: 1}, {1: 1, 3: -2}, {}], 4), (-1, dyadic(1, -1), -1)),
        Affine(Matrix.of([{0: 1, 1: 1, 2: 1}], 3)),
    ),
    Read.POOLED,
    Readout(Decode.VALUE, 3),
)


def test_a_flattened_row_is_its_tokens_behind_each_other():
    only = Network(
        (Flatten(2, 2), Affine(Matrix.of([{k: 1} for k in range(4)], 4))), Read.POOLED, Readout(Decode.ARGMAX, 4)
    )
    state = outputs(only, ROWS)
    assert [state.points.row(k) for k in state.index[:, 0]] == [
        (0.5, 1, 1.5, 2),
        (2.5, 3, 2.5, 3),
        (0.5, 1, 1.5, 2),
    ]


def test_threshold_units_fire_from_zero_on():
    # row 0: 1/2 - 1 < 0; 1 - 4 + 1/2 < 0. row 1: 5/2 - 1 >= 0; 3 - 6 + 1/2 < 0. The third never fires.
    assert answers(COUNT, ROWS).tolist() == [0, 1, 0]
    at_zero = Network((Flatten(1, 1), Threshold(Matrix.of([{0: 1}], 1), (-1,))), Read.POOLED, Readout(Decode.VALUE, 2))
    assert answers(at_zero, Inputs(Values.of([[1], [0]]), np.array([[0], [1]]))).tolist() == [1, 0]


def test_sizes_count_the_layer_and_not_the_row():
    size = measure(COUNT)
    assert (size.width, size.depth, size.parameters) == (3, 1, 3 * 4 + 3 + 3)
    embedded = Network((Embedding(Matrix.of_dense([[1, 2], [3, 4]]), (1,)), *COUNT.layers), Read.POOLED, COUNT.readout)
    assert measure(embedded).depth == 1 and measure(embedded).embedding_parameters == 4


def test_the_file_form_comes_back():
    assert network_from_json(json.loads(json.dumps(network_to_json(COUNT)))) == COUNT


@pytest.mark.parametrize("change", [{"tokens": 0}, {"width": -1}, {"tokens": "2"}])
def test_a_forged_flatten_is_refused(change):
    document = network_to_json(COUNT)
    document["layers"][0].update(change)
    with pytest.raises(FileFormatError):
        network_from_json(document)


def test_rows_of_another_length_are_named():
    with pytest.raises(NetworkError, match="2 tokens at once, but row 1 has 1"):
        answers(COUNT, Inputs(ROWS.points, np.array([[0, 1], [2, -1]])))


def test_a_flattened_row_is_read_as_the_pooled_token():
    with pytest.raises(NetworkError, match="go together"):
        Network(COUNT.layers, Read.LAST, COUNT.readout)


def test_a_stride_of_zero_ignores_the_position():
    table = Embedding(Matrix.of_dense([[7], [8]]), (1, 0))
    network = Network((table,), Read.LAST, Readout(Decode.VALUE, 9))
    assert answers(network, Inputs(Values.of([[1, 5], [0, 9]]), np.array([[0], [1]]))).tolist() == [8, 7]
    with pytest.raises(NetworkError):
        Embedding(table.table, (0, 0))
