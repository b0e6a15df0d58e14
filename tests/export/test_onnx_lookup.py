"""Labels in the nodes of a lookup: as few nodes as possible, and unknown rows marked by a value that is no label."""

from __future__ import annotations

import pytest

from byheart.data.values import UNKNOWN
from byheart.memory.deploy import deploy
from byheart.memory.deployed import DeployedModel

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

LEAST = -(1 << 63)


def built(keys, labels):
    """The file of one key column, proved, and the operators of its graph."""
    made = deploy({"key": keys, "y": labels}, keep=["key"], progress=False)
    file = DeployedModel.of(made.model)
    assert file.verify({"key": keys, "y": labels}).verdict == "proved"
    return made, file, [node.op_type for node in onnx.load_from_string(made.model).graph.node]


@pytest.mark.parametrize("keys", [["a", "b", "é"], [3, 5, 9], [0.5, 1.5, 2.25]], ids=["texts", "wholes", "decimals"])
def test_different_decimals_are_listed_and_known_is_one_comparison(keys):
    made, file, nodes = built(keys, [1.5, -2.25, 1e300])
    assert nodes == ["LabelEncoder", "Equal"]
    other = "c" if isinstance(keys[0], str) else 77
    assert file.predict([[*keys, other]]) == [1.5, -2.25, 1e300, UNKNOWN]
    assert made.sizes["file"] < 500


def test_repeated_decimals_are_listed_once():
    _, file, nodes = built([f"k{n:03}" for n in range(300)], [n % 7 / 4 for n in range(300)])
    assert nodes == ["LabelEncoder", "Gather", "Less"]
    assert file.predict([["k008", "k300"]]) == [0.25, UNKNOWN]


@pytest.mark.parametrize(
    "labels, nodes",
    [
        ([5, -7, 11], ["LabelEncoder", "Greater"]),
        ([LEAST, -7, 11], ["LabelEncoder", "Equal", "Not"]),
    ],
)
def test_the_least_whole_number_marks_unknown_rows_unless_it_is_a_label(labels, nodes):
    _, file, found = built(["a", "b", "c"], labels)
    assert found == nodes
    assert file.predict([["c", "b", "a", "d"]]) == [*reversed(labels), UNKNOWN]
