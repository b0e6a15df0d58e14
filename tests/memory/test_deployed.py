"""A deployed file verified and queried from its own bytes."""

from __future__ import annotations

import json
import math

import pytest
from click.testing import CliRunner

from byheart.cli import commands
from byheart.data.read.cells import CellType
from byheart.data.values import UNKNOWN
from byheart.errors import DataError, FileFormatError
from byheart.memory.deploy import deploy
from byheart.memory.deployed import DeployedModel, cells_of_text, is_onnx

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

TABLES = {
    "one text column": {"t": ["a", "é日", "x\0", ""], "y": ["p", "q", "p", "r"]},
    "texts share a list": {"a": ["x", "y", "x"], "b": ["y", "y", "z"], "y": ["p", "q", "r"]},
    "decimals": {"a": [0.5, 1.25, 0.5], "b": [3, 4, 9], "y": [1, 2, 1]},
    "many digits": {
        "a": [k * 1.001 for k in range(300)],
        "b": [k / 7 for k in range(300)],
        "y": [k % 2 for k in range(300)],
    },
    "scaled": {
        "a": [round(k * 1.003, 3) for k in range(400)],
        "b": [round(k * 2.017, 3) for k in range(400)],
        "y": [k % 3 for k in range(400)],
    },
    "several types": {
        "a": ["x", "y", "x"],
        "n": [7, 7, 9],
        "f": [0.1, 0.2, 0.1],
        "t": [True, False, True],
        "y": [0.5, 1.5, 0.5],
    },
    "numbers beside texts": {
        "a": [f"s{k % 7}" for k in range(300)],
        "f": [round(k * 1.01, 2) for k in range(300)],
        "n": [k * 10**8 - 7 for k in range(300)],
        "g": [round(k * 0.003 - 0.4, 3) for k in range(300)],
        "m": [k % 50 for k in range(300)],
        "h": [round(k * 37.7, 1) for k in range(300)],
        "y": [f"p{k % 5}" for k in range(300)],
    },
    "large whole numbers": {"n": [2**53 + 1, 2**62], "f": [0.5, 0.5], "y": ["p", "q"]},
    "truth labels": {"n": [3, 5, 8], "y": [True, False, True]},
    "wide": {
        **{f"c{k}": [k * 10**6 + row**3 for row in range(30)] for k in range(9)},
        "y": [row % 4 for row in range(30)],
    },
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_a_lookup_is_proved_from_its_own_bytes_and_a_changed_one_refused(name):
    table = TABLES[name]
    options = {"texts": ["t"], "missing": "label"} if name == "one text column" else {}
    file = DeployedModel.of(deploy(table, keep=list(table), progress=False, **options).model)
    checked = file.verify(table)
    assert (checked.verdict, checked.agree, checked.extra) == ("proved", len(table["y"]), 0)
    other = {**table, "y": [*table["y"][:-1], table["y"][0]]}
    if table["y"][-1] != table["y"][0]:
        assert file.verify(other).verdict == "refuted"
    part = {key: cells[:-1] for key, cells in table.items()}
    assert file.verify(part).verdict == "refuted" and file.verify(part).extra == 1
    assert file.verify(part, part=True).verdict == "proved"


def test_whole_numbers_beyond_two_to_53_beside_decimals_stay_exact():
    file = DeployedModel.of(deploy(TABLES["large whole numbers"], progress=False).model)
    assert file.predict([[2**53 + 1, 2**53, 2**62], [0.5, 0.5, 0.5]]) == ["p", UNKNOWN, "q"]


def test_a_graph_that_does_more_than_its_tables_is_refused():
    """An accepted key would be an unknown row with a label: the node is compared, not only its answers."""
    table = TABLES["one text column"]
    model = onnx.load_from_string(deploy(table, texts=["t"], missing="label", progress=False).model)
    for part in model.graph.initializer:
        if list(part.string_data) == [b"<unknown>"]:
            part.string_data[0] = b"another mark"  # every row is known now
    with pytest.raises(FileFormatError, match="differs from the graph of the tables"):
        DeployedModel.of(model.SerializeToString()).verify(table)


def test_a_network_is_measured():
    table = TABLES["texts share a list"]
    made = deploy(table, form="network", progress=False)
    file = DeployedModel.of(made.model)
    assert file.verify(table).verdict == "measured" and file.form == "network"
    assert file.verify({**table, "y": ["q", "q", "r"]}).differ == 1
    assert file.predict([["x", "z"], ["y", "z"]]) == ["p", UNKNOWN]


def test_foreign_files_are_named(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"no model")
    with pytest.raises(FileFormatError, match="not an ONNX model"):
        DeployedModel.load(tmp_path / "m.onnx")
    model = onnx.load_from_string(deploy(TABLES["decimals"], progress=False).model)
    del model.metadata_props[:]
    with pytest.raises(FileFormatError, match="no record of byheart"):
        DeployedModel.of(model.SerializeToString())
    assert is_onnx(tmp_path / "m.onnx") and not is_onnx(tmp_path / "absent")


def test_the_commands_read_the_file_alone(tmp_path):
    path, model = tmp_path / "t.csv", tmp_path / "t.onnx"
    path.write_text("zip,,state\n00501,3,NY\n10001,4,NY\n02101,,MA\n02101,5,NH\n02101,5,MA\n")
    flags = ["--missing", "label", "--conflicts", "first"]
    run = CliRunner().invoke
    assert run(commands, ["deploy", str(path), "-o", str(model), *flags, "--quiet"]).exit_code == 0
    result = run(commands, ["verify", str(model), str(path), "--json"], standalone_mode=False)
    found = json.loads(result.output)
    assert (found["verdict"], found["rows"], found["agree"], found["left_out"]) == ("proved", 5, 4, 1)
    result = run(commands, ["predict", str(model), '["00501", 3]', '["00501", 4]'], standalone_mode=False)
    assert result.output.split() == ["NY", "unknown"]
    rows = tmp_path / "rows.csv"
    rows.write_text("zip,\n02101,5\n02101,6\n")
    result = run(commands, ["predict", str(model), "--input", str(rows), "--json"], standalone_mode=False)
    assert json.loads(result.output)["labels"] == ["NH", None]
    path.write_text("zip,,state\n00501,3,NJ\n10001,4,NY\n02101,,MA\n02101,5,NH\n")
    result = run(commands, ["verify", str(model), str(path)], standalone_mode=False)
    assert result.return_value == 1 and "line 2 is labelled 'NJ', but the model returns 'NY'" in result.output


def test_missing_numbers_are_cells_of_their_own():
    table = {"a": [None, 1.5, 2.5], "b": [0.5, None, 1.0], "y": ["p", "q", "r"]}
    file = DeployedModel.of(deploy(table, missing="label", progress=False).model)
    assert file.verify(table).verdict == "proved"
    assert file.predict([[math.nan, 1.5, math.nan], [0.5, math.nan, math.nan]]) == ["p", "q", UNKNOWN]


def test_rows_of_another_shape_are_refused():
    file = DeployedModel.of(deploy(TABLES["decimals"], progress=False).model)
    with pytest.raises(DataError, match="a row has 1 cells, but the model has 2 inputs: 'a', 'b'"):
        file.predict([[1.0]])


@pytest.mark.parametrize("name", TABLES)
def test_a_hashed_lookup_is_proved_from_its_own_bytes(name):
    table = TABLES[name]
    options = {"texts": ["t"], "missing": "label"} if name == "one text column" else {}
    made = deploy(table, keep=list(table), form="lookup", abstain_bits=20, progress=False, **options)
    assert (made.form, made.exact_unknown, made.abstain_bits, made.verdict) == ("lookup", False, 20, "proved")
    file = DeployedModel.of(made.model)
    checked = file.verify(table)
    assert (checked.verdict, checked.agree) == ("proved", len(table["y"])) and "2^20" in checked.reason
    part = {key: cells[:-1] for key, cells in table.items()}
    assert file.verify(part).verdict == "proved"
    if table["y"][-1] != table["y"][0]:
        assert file.verify({**table, "y": [*table["y"][:-1], table["y"][0]]}).verdict == "refuted"


def hashed_model():
    table = {"code": [f"c{k}" for k in range(200)], "y": [f"l{k % 5}" for k in range(200)]}
    return table, onnx.load_from_string(deploy(table, form="lookup", abstain_bits=6, progress=False).model)


def test_a_changed_hashed_lookup_is_refused_or_refuted():
    """Every constant of the graph, every attribute and every number of the record."""
    table, model = hashed_model()
    refused = 0
    for part in model.graph.initializer:
        _, changed = hashed_model()
        other = next(one for one in changed.graph.initializer if one.name == part.name)
        if part.string_data:
            other.string_data[0] = b"another"
        else:
            array = onnx.numpy_helper.to_array(other).copy()
            array.reshape(-1)[0] += 1
            other.CopyFrom(onnx.numpy_helper.from_array(array, part.name))
        file = DeployedModel.of(changed.SerializeToString())
        if part.string_data or part.data_type == onnx.TensorProto.UINT8:
            assert file.verify(table).verdict == "refuted"
        else:
            with pytest.raises(FileFormatError, match=r"differs from the graph|too short"):
                file._prove(file.read(table), None, 0, False)
        refused += 1
    assert refused > 15
    for node in model.graph.node:
        if node.op_type == "MurmurHash3":
            node.attribute[0].i += 1
            break
    file = DeployedModel.of(model.SerializeToString())
    with pytest.raises(FileFormatError, match="differs from the graph"):
        file._prove(file.read(table), None, 0, False)


@pytest.mark.parametrize("value", [0, -1, 3, 1 << 70, "x", None])
@pytest.mark.parametrize("name", ["seed", "segments", "segment", "check_bits"])
def test_a_changed_record_of_a_hashed_lookup_is_refused(name, value):
    table, model = hashed_model()
    record = json.loads(model.metadata_props[0].value)
    if record["hashed"][name] == value:
        return
    record["hashed"][name] = value
    model.metadata_props[0].value = json.dumps(record)
    with pytest.raises(FileFormatError, match=r"differs|too short|not a hashed lookup"):
        DeployedModel.of(model.SerializeToString()).verify(table)


def test_auto_lists_a_small_table_and_hashes_a_large_one():
    small = {"t": ["a", "b"], "y": ["p", "q"]}
    large = {"t": [f"key {k}" for k in range(3000)], "y": [f"l{k % 7}" for k in range(3000)]}
    assert deploy(small, unknown="approximate", progress=False).exact_unknown
    made = deploy(large, unknown="approximate", progress=False)
    assert not made.exact_unknown and len(made.model) < 3.6 * 3000 + 4000
    assert len(deploy(large, abstain_bits=0, progress=False).model) < 0.6 * 3000 + 4000


@pytest.mark.parametrize(
    "row, message",
    [
        ("[true, 2.5]", "true is not a whole number, as the column 'n' has"),
        ('["x", 2.5]', "'x' is not a whole number"),
        ("[1, 2.5, 3]", "not a JSON list of 2 cells"),
    ],
)
def test_a_row_of_json_is_no_row_of_other_types(row, message):
    with pytest.raises(DataError, match=message):
        cells_of_text(row, [("n", CellType.WHOLE), ("m", CellType.NUMBER)])


def test_texts_and_truth_values_of_json_are_not_numbers():
    kinds = [("code", CellType.TEXT), ("on", CellType.TRUTH)]
    assert cells_of_text('["1", true]', kinds) == ["1", True]
    refused = {"[1, true]": "1 is not a text.*; write it in quotes", '["1", 1]': "1 is not a truth value"}
    for row, message in refused.items():
        with pytest.raises(DataError, match=message):
            cells_of_text(row, kinds)


def test_a_file_that_is_not_there_is_named_once(tmp_path):
    with pytest.raises(FileFormatError) as refused:
        DeployedModel.load(tmp_path / "absent.onnx")
    assert str(refused.value).count("absent.onnx") == 1
