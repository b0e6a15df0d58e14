"""Data: where it is found, what is built from it, and the message when it is missing."""

import json
import sys

import numpy as np
import pytest

from byheart.errors import DataError, OptionError
from byheart.lab.comparison import DECODERS, compare, constructions_for, rows_of
from byheart.lab.problem import PADDING, SOURCES, ProblemSpec, Sequences, make_problem
from byheart.memory.documents import memorize_documents
from tests.lab.small import signs_problem, stories, write_rows


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """No data but what a test makes, and no network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BYHEART_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "datasets", None)


def test_missing_data_names_the_places_and_the_command(tmp_path):
    with pytest.raises(DataError) as caught:
        make_problem(ProblemSpec("mnli", 10, 8, 4), None, str(tmp_path / "here"))
    message = str(caught.value)
    assert "here" in message and "pip install 'byheart[data]'" in message
    assert "load_dataset('nyu-mll/glue', 'mnli', split='validation_matched').to_json('data/mnli.jsonl')" in message
    compile(SOURCES["mnli"].command.split('"')[1], "command", "exec")


def test_larger_samples_contain_the_smaller_ones(tmp_path):
    folder = str(write_rows(tmp_path))
    small, large = (make_problem(ProblemSpec("mnli", N, 4, 5), None, folder) for N in (10, 30))
    assert (large.index[:10] == small.index).all() and (large.labels[:10] == small.labels).all()
    assert (large.points[: len(small.points)] == small.points).all()
    other = make_problem(ProblemSpec("mnli", 10, 4, 5, seed=1), None, folder)
    assert other.fingerprint != small.fingerprint


def test_the_environment_and_a_named_file_are_searched(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    write_rows(tmp_path / "elsewhere")
    monkeypatch.setenv("BYHEART_DATA", str(tmp_path / "elsewhere"))
    found = make_problem(ProblemSpec("mnli", 11, 4, 5))
    named = make_problem(ProblemSpec("mnli", 11, 4, 5), str(tmp_path / "elsewhere/mnli.jsonl"))
    assert found.fingerprint == named.fingerprint


def test_rows_that_no_network_can_tell_apart_are_taken_once(tmp_path):
    rows = [("a b c", 0), ("a c b", 1), ("b a c", 1)]
    text = "".join(json.dumps({"premise": t, "label": label}) + "\n" for t, label in rows)
    (tmp_path / "mnli.jsonl").write_text(text)
    assert make_problem(ProblemSpec("mnli", 2, 3, 2), None, str(tmp_path)).N == 2
    with pytest.raises(DataError, match="2 rows that differ in their first 3 words, 3 are needed"):
        make_problem(ProblemSpec("mnli", 3, 3, 2), None, str(tmp_path))


@pytest.mark.parametrize("line", ["not json", "[1, 2]", '{"premise": "x"}'])
def test_a_bad_line_is_named(tmp_path, line):
    (tmp_path / "bad.jsonl").write_text('{"premise": "x", "label": 1}\n' + line + "\n")
    with pytest.raises(DataError, match=r"bad.jsonl.* line 2.*; get the file with: python"):
        make_problem(ProblemSpec("mnli", 1, 3, 2), str(tmp_path / "bad.jsonl"))


def test_unknown_sources_and_shapes_are_refused():
    with pytest.raises(OptionError, match="unknown source 'wikipedia'"):
        ProblemSpec("wikipedia", 1, 1)
    with pytest.raises(DataError, match="2 sequences but 1 labels"):
        Sequences("x", None, np.zeros((2, 1), dtype=int), np.zeros(1, dtype=int), 2, 0)
    with pytest.raises(DataError, match="no vector"):
        Sequences("x", np.eye(2), np.full((1, 1), 2), np.zeros(1, dtype=int), 2, 0)


def test_comparison_certifies_the_same_data():
    problem = signs_problem(N=6, n=3)
    lines = {line.name: line for line in compare(problem, ("ks25",))}
    assert lines["ks25"].verdict == "proved"
    assert lines["lower bound: KS25 Theorem 4.2"].parameters <= lines["ks25"].parameters
    sequences, labels = rows_of(problem)
    assert len(sequences) == 6 and len(sequences[0]) == 3 and set(labels) <= {-1, 1}


def test_comparison_solves_the_same_documents():
    """The decoders are of the very contexts that are trained on, and proved at the gap that training aims at."""
    bounds = ["any distributions (Madden et al., Lemma 1)", "one-layer decoder (Madden et al., Theorem 5)"]
    assert [line.name for line in compare(stories(), ())] == bounds
    lines = {line.name: line for line in compare(stories())}
    assert list(lines) == [*bounds, *DECODERS] == [*bounds, *constructions_for(stories())]
    assert {lines[name].verdict for name in DECODERS} == {"proved"}
    documents = [[str(t) for t in row if t != PADDING] for row in stories().tokens.tolist()]
    assert memorize_documents(documents).certificate.contexts == len(stories().contexts)
    assert 0 < lines["fewest parameters"].parameters <= lines["closed form"].parameters


def test_a_named_folder_is_the_only_place(tmp_path, monkeypatch):
    monkeypatch.setenv("BYHEART_DATA", str(write_rows(tmp_path)))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match=r"mnli.jsonl was not found in .*empty; name a file .* pip install"):
        make_problem(ProblemSpec("mnli", 5, 4, 5), None, str(empty))


def test_documents_are_taken_as_madden_et_al_take_them(tmp_path):
    """Shuffled with NumPy's old generator, tokenized like nltk's wordpunct_tokenize, at least n tokens each."""
    texts = ["Too short.", *(f"Story {k}: it's cold..." for k in range(6))]
    (tmp_path / "tinystories.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    found = make_problem(ProblemSpec("tinystories", 6, 7), None, str(tmp_path))
    shuffled = np.array(texts)
    np.random.RandomState(0).shuffle(shuffled)
    numbers = [int(text.split()[1][:-1]) for text in shuffled if text != "Too short."]
    words: dict[str, int] = {}
    expected = [
        [words.setdefault(w, len(words)) for w in ("Story", str(k), ":", "it", "'", "s", "cold")] for k in numbers
    ]
    assert found.tokens.tolist() == expected and found.vocabulary == len(words) and found.asked == 36
    with pytest.raises(DataError, match="6 documents of at least 7 words, 7 are needed"):
        make_problem(ProblemSpec("tinystories", 7, 7), None, str(tmp_path))
