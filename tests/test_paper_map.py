"""docs/paper-map.md says what the code says, and the tests it names exist."""

import re
from pathlib import Path

import pytest

from byheart import paper_map
from byheart.paper import Entry, Ref

PROJECT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def found() -> list[Entry]:
    return paper_map.collect()


def test_page_is_current(found):
    page = (PROJECT / paper_map.PAGE).read_text(encoding="utf-8")
    assert page == paper_map.render(found), "run `make paper-map` and commit docs/paper-map.md"


def test_named_tests_exist(found):
    missing = sorted({entry.test for entry in found if not (PROJECT / entry.test.partition("::")[0]).is_file()})
    assert missing == [], f"paper labels name tests that do not exist: {missing}"


def test_statements_say_something(found):
    assert [str(entry.ref) for entry in found if len(entry.statement.split()) < 3] == []


def test_check_notices_a_stale_page(tmp_path, monkeypatch, capsys):
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)
    assert paper_map.main(["--check"]) == 1
    assert "make paper-map" in capsys.readouterr().err
    assert paper_map.main([]) == 0
    assert paper_map.main(["--check"]) == 0
    (tmp_path / paper_map.PAGE).write_text("# Paper map\n", encoding="utf-8")
    assert paper_map.main(["--check"]) == 1


def test_table_survives_odd_statements():
    entry = Entry(Ref("KS25", "Lemma G.2"), "|x| stays\n inside", "byheart.gadgets.interval", "build", "tests/x.py")
    row = paper_map.render([entry]).splitlines()[-1]
    assert row == "| Lemma G.2 | \\|x\\| stays inside | `byheart.gadgets.interval.build` | `tests/x.py` |"


def test_labels_are_in_the_order_of_the_paper():
    labels = ["Theorem 10", "Theorem 2", "Lemma G.4", "Lemma C.1"]
    page = paper_map.render([Entry(Ref("KS25", label), "says something", "m", "f", "t") for label in labels])
    assert re.findall(r"^\| (\w+ \S+) \|", page, re.MULTILINE) == ["Lemma C.1", "Lemma G.4", "Theorem 2", "Theorem 10"]
