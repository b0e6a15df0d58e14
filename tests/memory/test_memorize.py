"""Code that is compiled for the first time is waited for with a word; tokens are chosen by the size of the result."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import numpy as np
import pytest

import byheart
from byheart.build import recipe
from byheart.data.tokens.tokenizer import TokenTable
from byheart.errors import BuildError, OptionError
from byheart.memory.memorize import WORDS, _is_kept
from byheart.progress import SILENT


def test_code_that_is_there_and_code_that_is_not(tmp_path):
    kernel = SimpleNamespace(__name__="solve", stats=SimpleNamespace(cache_path=str(tmp_path)))
    assert not _is_kept(kernel)
    (tmp_path / "_segment.solve-266.py311.nbi").touch()
    assert _is_kept(kernel)
    assert _is_kept(SimpleNamespace(__name__="plain")), "without numba nothing is compiled"


def test_the_stage_is_named(monkeypatch):
    module = importlib.import_module("byheart.memory.memorize")  # the package has a function of that name

    heard: list[str] = []

    class Listener:
        def stage(self, name, total=None):
            heard.append(name)
            return SILENT.stage(name)

        def say(self, message):
            raise AssertionError(message)

    for kept, words in ((False, [WORDS]), (True, [])):
        heard.clear()
        monkeypatch.setattr(module, "_is_kept", lambda kernel, kept=kept: kept)
        with module.first_use(recipe("compact"), Listener()):
            pass
        assert heard == words


@pytest.mark.parametrize("tokens", ["characters", "words"])
def test_plans_are_what_is_built(tokens):
    codes = sorted({f"{chr(65 + k % 23)}{k * 37 % 97} {k % 89}{chr(65 + k % 19)}" for k in range(500)})
    frame = {"code": codes, "kind": [k % 3 for k in range(len(codes))]}
    table = byheart.read(frame, tokens=tokens)
    plan = recipe("native").planning({})
    planned = plan(TokenTable.of(tokens, codes), len(codes), 3)
    memory = byheart.memorize(table, construction="native", abstain_bits=0, progress=False)
    assert memory.size.parameters == planned


def test_tokens_are_chosen_by_the_size_of_the_memory():
    few_words = [f"{one} {two}" for one in ("northern", "southern") for two in ("harbour", "mountain", "plateau")]
    codes = sorted({f"{chr(65 + k % 23)}{k * 37 % 97} {k % 89}{chr(65 + k % 19)}" for k in range(500)})
    for rows, kind in ((few_words, "words"), (codes, "characters")):
        frame = {"text": rows, "kind": [k % 3 for k in range(len(rows))]}
        for construction in ("native", "compact"):
            table = byheart.read(frame, planning=recipe(construction).planning({}))
            assert table.tokens.kind == kind
        memory = byheart.memorize(frame, label="kind", construction="native", progress=False)
        assert memory.tokens.kind == kind
    assert "characters are planned to take" in table.note and "(--tokens words)" in table.note


def test_an_option_that_cannot_be_is_named_while_tokens_are_planned():
    frame = {"text": ["a b", "c d"], "kind": [1, 2]}
    for wrong in ({"abstain_bits": "many"}, {"dtype": "float8"}):
        with pytest.raises(OptionError, match=next(iter(wrong))):
            byheart.memorize(frame, label="kind", construction="native", progress=False, **wrong)


def decimals(count: int) -> tuple[list[list[float]], list[str]]:
    rows = [[round(0.37 * k % 9, 2), k % 5, -round(1.234 * k % 7, 3)] for k in range(count)]
    return [[0.0, 3, -0.0], *rows], ["first", *("abc"[k * k % 3] for k in range(count))]


def test_decimals_become_names_where_floats_have_no_room(tmp_path):
    rows, labels = decimals(60)
    memory = byheart.memorize(rows, labels, construction="native", progress=False, abstain_bits=8)
    assert memory.certificate.verdict == "proved" and "taken as names" in memory.notes[-1]
    memory.save(tmp_path / "m")
    again = byheart.load(tmp_path / "m")
    found = again.verify(rows, labels)
    assert found.verdict == "proved" and found.fingerprint == memory.certificate.fingerprint
    assert again.verify([[float(x) for x in row] for row in rows], labels).verdict == "proved"
    assert again.predict([[0, 3.0, 0], [0.37, 1, 99.5]]) == ["first", byheart.UNKNOWN]
    assert again.dataset is None and memory.dataset.subset([0, 1]).encoder.named
    pair = ["x", "y"]
    assert byheart.memorize([["a", 0.1], ["a", 1]], pair, construction="native", progress=False).predict(
        [["a", 1]]
    ) == ["y"]


def test_an_exported_module_takes_named_numbers_by_value():
    pytest.importorskip("torch")
    rows, labels = decimals(40)
    module = byheart.memorize(rows, labels, construction="native", progress=False).to_torch()
    assert module.answers([*rows, [0, 3.0, 0], [77.125, 3, 0]]) == [*labels, "first", "<unknown>"]
    whole = byheart.memorize([[0.5, 1.0], [1.5, 2.0]], [0, 1], construction="native", progress=False).to_torch()
    with pytest.raises(TypeError, match="takes vectors"):
        whole.answers([[0.5, 1.0]])


def test_whole_numbers_and_short_fractions_stay_vectors():
    memory = byheart.memorize([[0.5, 1.0], [1.25, 2.0]], [0, 1], construction="native", progress=False)
    assert memory.encoder.symbols is None
    with pytest.raises(BuildError, match="round them"):
        byheart.memorize([[(0.1, 0.2)], [(0.3, 0.7)]], [0, 1], construction="native", progress=False)


def test_a_table_in_python_recognises_unknown_rows_unless_told_otherwise():
    frame = {"code": [f"k{k}" for k in range(40)], "kind": ["even", "odd"] * 20}
    memory = byheart.memorize(frame, label="kind", progress=False)
    assert memory.options["abstain_bits"] == 16
    assert memory.predict(["k7", "7k"]) == ["odd", byheart.UNKNOWN]
    bare = byheart.memorize(frame, label="kind", abstain_bits=0, progress=False)
    assert bare.size.parameters < memory.size.parameters
    assert "abstain_bits" not in byheart.memorize(frame, label="kind", construction="ks25", progress=False).options
    rows = byheart.memorize(frame["code"], frame["kind"], progress=False)
    assert rows.predict(["k7", "7k"]) == ["odd", byheart.UNKNOWN]


@pytest.mark.parametrize(
    ("rows", "strange"),
    [
        (iter(["cat", "act", "dog"]), "tac"),
        ([["new", "york"], ["york", "new"], ["old", "york"]], ["york", "york"]),
        ([["a", 1], ["b", 2], ["a", 2]], ["b", 1]),
        ([[0.5, 1], [2, 3], [2, 4.25]], [2.0, 4.25000001]),
        ([(True, "x"), (False, "x"), (True, "y")], (False, "y")),
    ],
)
def test_labelled_rows_of_cells_are_a_table_that_refuses_unknown_rows(rows, strange):
    memory = byheart.memorize(rows, [0, 1, 2], progress=False)
    assert memory.options["abstain_bits"] == 16
    assert list(memory.predict([strange])) == [byheart.UNKNOWN]


@pytest.mark.parametrize(
    "rows",
    [
        np.array([[3, 1], [4, 1], [5, 9]]),
        [[(0.5, 1.0), (2.0, 3.0)], [(2.0, 3.0), (0.5, 1.0)], [(0.5, 1.5), (2.0, 3.0)]],
        [[byheart.exact.dyadic(1, -70)], [byheart.exact.dyadic(3, -70)], [byheart.exact.dyadic(5, -70)]],
    ],
)
def test_token_ids_and_vectors_are_sequences_of_the_theorems(rows):
    assert byheart.memorize(rows, [0, 1, 1], progress=False).options["abstain_bits"] == 0


def test_what_is_told_about_unknown_rows_is_kept():
    words, labels = ["cat", "act", "dog"], [0, 1, 1]
    native = byheart.memorize(words, labels, construction="native", progress=False)
    assert native.options["abstain_bits"] == 16
    assert byheart.memorize(words, labels, abstain_bits=0, progress=False).options["abstain_bits"] == 0
    assert byheart.memorize(words, labels, head="sign", progress=False).options["abstain_bits"] == 0
    assert "abstain_bits" not in byheart.memorize(words, labels, construction="ks25", progress=False).options
    causal = byheart.memorize(words, ["atx", "ctx", "ogx"], task="causal", progress=False)
    assert causal.options["abstain_bits"] == 0
