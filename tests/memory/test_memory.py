"""Memories: answers, files, and what happens when either goes wrong."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

import byheart
from byheart.data.values import UNKNOWN
from byheart.errors import OptionError, UnknownSymbolError
from byheart.memory.verify import verify_rows

WORDS = ["cat", "act", "dog", "go"]
LABELS = ["animal", "deed", "animal", ("two", 2)]


@pytest.fixture(scope="module")
def memory():
    return byheart.memorize(WORDS, LABELS, construction="ks25", progress=False)


def test_it_answers(memory):
    assert memory.predict(WORDS) == LABELS
    assert memory.predict([]) == []


def test_a_strange_symbol_is_named(memory):
    with pytest.raises(UnknownSymbolError, match=r"row 1.*'x'"):
        memory.predict(["cat", "cax"])


def test_unknown_names_are_listed():
    with pytest.raises(OptionError, match="known: "):
        byheart.memorize(WORDS, LABELS, construction="nope", progress=False)
    with pytest.raises(OptionError, match="form"):
        byheart.memorize(WORDS, LABELS, construction="ks25", shape="plain", progress=False)
    with pytest.raises(OptionError, match="one of"):
        byheart.memorize(WORDS, LABELS, construction="ks25", form="round", progress=False)
    with pytest.raises(OptionError, match="task"):
        byheart.memorize(WORDS, LABELS, task="nope", progress=False)


def test_pickling_keeps_the_memory(memory):
    assert pickle.loads(pickle.dumps(memory)).predict(WORDS) == LABELS
    assert pickle.loads(pickle.dumps(byheart.UNKNOWN)) is byheart.UNKNOWN


def test_verify_names_the_row_that_differs(memory):
    assert verify_rows(memory, WORDS, LABELS).verdict == "proved"
    assert verify_rows(memory, WORDS[::-1], LABELS[::-1]).verdict == "proved"
    wrong = verify_rows(memory, WORDS, ["animal", "animal", *LABELS[2:]])
    assert wrong.verdict == "refuted" and "row 1" in wrong.reason and wrong.witness.row == 1
    fewer = verify_rows(memory, WORDS[:3], LABELS[:3])
    assert fewer.verdict == "proved" and fewer.guarantee == "kept" and "fingerprint" in fewer.remarks[0]
    strange = verify_rows(memory, [*WORDS[:3], "oz"], LABELS)
    assert strange.verdict == "refuted" and "row 3" in strange.reason and (strange.agree, strange.differ) == (3, 1)


def test_the_page_evaluates_a_file(memory, tmp_path):
    """The code of docs/file-format.md answers without byheart."""
    page = Path(__file__).parents[2] / "docs" / "file-format.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    names: dict = {}
    exec(compile(code, str(page), "exec"), names)
    memory.save(tmp_path / "m")
    answers = [names["predict"](tmp_path / "m", word) for word in WORDS]
    assert answers == ["animal", "deed", "animal", {"tuple": ["two", 2]}]


def test_a_memory_is_shown_in_one_line():
    memory = byheart.memorize(["ab", "ba"], [0, 1], construction="ks25", progress=False)
    assert repr(memory) == f"<Memory by ks25: 2 rows, 2 classes, {memory.size.parameters:,} parameters, proved>"


@pytest.mark.parametrize("construction", ["compact", "native", "ks25"])
@pytest.mark.parametrize("seed", [-1, 1 << 64, 0.5, True])
def test_a_seed_is_a_small_whole_number(seed, construction):
    with pytest.raises(OptionError, match="seed="):
        byheart.memorize(["a", "b"], [1, 2], construction=construction, seed=seed, progress=False)


def test_more_rows_than_a_machine_can_count(tmp_path):
    (tmp_path / "t.csv").write_text("s,y\na,1\n")
    with pytest.raises(OptionError, match="max_rows"):
        byheart.read(str(tmp_path / "t.csv"), max_rows=10**20)


@pytest.mark.parametrize("task", ["seq-to-seq", "causal"])
def test_a_row_that_is_too_long_is_unknown_at_every_token(task):
    rows, labels = [["a", "b"], ["b"]], [["x", "y"], ["x"]]
    memory = byheart.memorize(rows, labels, task=task, abstain_bits=10, progress=False)
    assert [len(answer) for answer in memory.predict([["a"] * 5, ["z", "b"], *rows])] == [5, 2, 2, 1]
    assert memory.predict([["a"] * 5, *rows]) == [[UNKNOWN] * 5, *labels]


def test_rows_that_come_one_by_one_and_what_is_no_row(tmp_path):
    memory = byheart.memorize(["ab", "ba"], [0, 1], construction="ks25", progress=False)
    assert memory.predict(row for row in ["ba", "ab"]) == [1, 0]
    with pytest.raises(byheart.ByheartError, match="give a list of sequences"):
        memory.predict(None)
    with pytest.raises(byheart.ByheartError, match="there is no folder"):
        memory.save(tmp_path / "nowhere" / "m")
    with pytest.raises(byheart.ByheartError, match="it is a folder"):
        memory.save(tmp_path)
    table = byheart.read({"text": ["ab", "ba"], "label": [0, 1]})
    with pytest.raises(byheart.ByheartError, match="has its own labels"):
        byheart.memorize(table, [1, 2], progress=False)


def test_the_tables_that_are_shipped_beside_the_weights_are_counted():
    memory = byheart.memorize(["ab", "ba"], ["left", "right"], construction="native", progress=False)
    assert memory.table_bytes == {"symbols": len('["a", "b"]'), "labels": len('"left", "right"') + 2}
    assert memory.summary()["symbols"] == 2


def test_a_column_that_numbers_the_rows_is_noticed():
    frame = {"uid": ["q7", "a1", "z3"], "size": ["big", "small", "big"], "kind": ["x", "y", "x"]}
    with pytest.warns(UserWarning, match="column 'uid' numbers the rows"):
        memory = byheart.memorize(frame, label="kind", construction="native", progress=False)
    assert memory.predict([["q7", "big"]]) == ["x"]


def test_a_frame_of_any_library_is_memorized_alike():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    arrow, datasets = pytest.importorskip("pyarrow"), pytest.importorskip("datasets")
    columns = {"name": ["Ann", "Bo", "Cy", "Bo"], "n": [3, 1, 1, 2], "kind": ["x", "y", "x", "z"]}
    frames = [pandas.DataFrame(columns), polars.DataFrame(columns), polars.LazyFrame(columns), arrow.table(columns)]
    prints = set()
    for frame in [columns, *frames, datasets.Dataset.from_dict(columns)]:
        memory = byheart.memorize(frame, label="kind", construction="native", progress=False)
        assert memory.predict([["Bo", 2], ["Ann", 3]]) == ["z", "x"]
        prints.add(memory.certificate.fingerprint)
    assert len(prints) == 1
