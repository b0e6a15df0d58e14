"""`verify` queries the file as a user does, and trusts no record of the file about itself."""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import byheart
from byheart.cli import commands
from byheart.cli.verify import command as verify_command
from byheart.data.values import key
from byheart.errors import BudgetError, ByheartError, DataError, FileFormatError, OptionError
from byheart.exact.budget import Budget, limited
from byheart.files import canonical, digest
from byheart.ir.layers import Matrix
from byheart.memory.memory_file import load
from tests.forged import rewrite, tamper

ROWS = {"cat": "animal", "act": "deed", "dog": "animal", "oak": "plant"}


def write_table(path, rows=ROWS, header="name,kind"):
    pairs = rows.items() if isinstance(rows, dict) else rows
    path.write_text(header + "\n" + "".join(f"{key},{value}\n" for key, value in pairs))
    return path


@pytest.fixture(params=["ks25", "compact", "native"])
def saved(request, tmp_path):
    """(file, table) of a small memory."""
    table = write_table(tmp_path / "table.csv")
    memory = byheart.memorize(byheart.read(str(table)), construction=request.param, progress=False)
    memory.save(tmp_path / "m.byheart")
    return tmp_path / "m.byheart", table


def verify(file, table, *flags):
    """(exit status, the --json object or the error)."""
    result = CliRunner().invoke(commands, ["verify", str(file), str(table), "--json", *flags], standalone_mode=False)
    if result.exception is not None:
        assert isinstance(result.exception, ByheartError), result.exception
        return 2, {"verdict": "refused", "reason": str(result.exception)}
    return result.return_value, json.loads(result.output)


def test_all_rows_are_counted(saved):
    status, found = verify(*saved)
    assert status == 0 and found["verdict"] == "proved"
    counts = {name: found[name] for name in ("rows", "asked", "agree", "differ", "left_out")}
    assert counts == {"rows": 4, "asked": 4, "agree": 4, "differ": 0, "left_out": 0}


def test_rotated_classes_are_refuted(saved, tmp_path):
    file, table = saved
    forged = rewrite(file, tmp_path / "f", lambda body: body["classes"].append(body["classes"].pop(0)))
    status, found = verify(forged, table)
    assert status == 1 and found["verdict"] == "refuted" and found["differ"] == 4


def test_renamed_symbols_are_refuted(saved, tmp_path):
    file, table = saved

    def rename(body):
        body["encoder"]["symbols"] = [f"{symbol}!" for symbol in body["encoder"]["symbols"]]

    status, found = verify(rewrite(file, tmp_path / "f", rename), table)
    assert status == 1 and found["differ"] == 4 and "never memorized" in found["reason"]


def test_other_labels_on_the_same_rows_are_refuted(saved):
    memory = load(saved[0])
    rows, labels = list(ROWS), list(ROWS.values())
    assert memory.verify(rows, labels).verdict == "proved"
    other = memory.verify(rows, [f"{label}?" for label in labels])
    assert other.verdict == "refuted" and other.differ == 4 and "'animal?'" in other.reason
    swapped = memory.verify(rows, ["deed", "animal", *labels[2:]])
    assert swapped.verdict == "refuted" and swapped.differ == 2 and swapped.witness.row == 0


@pytest.mark.parametrize("label, other", [(1, True), (1, "1"), (1, 1.0), (0.0, -0.0), ((1,), (True,)), (None, "None")])
def test_labels_agree_by_type_and_value(label, other):
    memory = byheart.memorize(["a", "b"], [label, "x"], construction="ks25", missing="label", progress=False)
    assert memory.verify(["a", "b"], [label, "x"]).verdict == "proved"
    assert memory.verify(["a", "b"], [other, "x"]).verdict == "refuted"
    assert key(label) != key(other)


def test_one_row_of_four_is_no_proof_of_four(tmp_path):
    table = write_table(tmp_path / "t.csv")
    memory = byheart.memorize(byheart.read(str(table), max_rows=1), construction="ks25", progress=False)
    memory.save(tmp_path / "m")
    status, found = verify(tmp_path / "m", table)
    assert status == 1 and found["asked"] == 4 and found["agree"] == 1 and found["differ"] == 3
    assert any("--max-rows 1" in remark for remark in found["remarks"])
    status, found = verify(tmp_path / "m", table, "--max-rows", "1")
    assert status == 0 and (found["rows"], found["asked"], found["left_out"]) == (4, 1, 3)
    assert found["left_out_by"] == {"beyond --max-rows 1": 3} and found["same_data"]


def test_rows_that_lost_a_vote_differ_unless_excused(tmp_path):
    table = write_table(tmp_path / "t.csv", [("cat", 1), ("cat", 1), ("cat", 2), ("dog", 2), ("dog", 2)])
    result = CliRunner().invoke(
        commands,
        ["memorize", str(table), "-o", str(tmp_path / "m"), "--construction", "ks25", "--conflicts", "majority"],
        standalone_mode=False,
    )
    assert result.return_value == 0 and "1 of 5 rows were skipped" in result.output
    status, found = verify(tmp_path / "m", table)
    assert status == 1 and (found["agree"], found["differ"]) == (4, 1) and "line 4" in found["reason"]
    status, found = verify(tmp_path / "m", table, "--conflicts", "majority")
    assert status == 0 and (found["rows"], found["asked"], found["left_out"]) == (5, 4, 1)
    assert found["left_out_by"] == {"by --conflicts majority": 1}


def test_a_part_of_the_rows_is_proved_as_a_part(saved, tmp_path):
    part = write_table(tmp_path / "part.csv", {name: ROWS[name] for name in ("dog", "oak")})
    status, found = verify(saved[0], part)
    assert status == 0 and found["asked"] == 2 and not found["same_data"]
    assert found["guarantee"] == "kept" and "not exactly the 4 memorized rows" in found["remarks"][0]


def test_a_repeated_row_is_not_held_against_the_file(tmp_path):
    """The guarantee is about the rows with their repetitions, the fingerprint about distinct ones."""
    rows, labels = [[k] for k in range(7)], [k % 3 for k in range(7)]
    byheart.memorize(rows, labels, construction="ks25-sparse", positions=False, progress=False).save(tmp_path / "m")
    for more in range(1, 8):
        found = byheart.load(tmp_path / "m").verify(rows + rows[:more], labels + labels[:more])
        assert found.verdict.value == "proved" and found.rows == 7 + more, found.reason


def test_a_guarantee_that_a_part_cannot_check_is_open_unless_excused():
    """A network for many rows is larger than what is guaranteed for two; a bloated one with a forged fingerprint,
    too."""
    rows, labels = [[k, k * k % 7] for k in range(60)], [k % 5 for k in range(60)]
    memory = byheart.memorize(rows, labels, construction="ks25", progress=False)
    found = memory.verify(rows[:2], labels[:2])
    assert found.verdict == "undecided" and found.agree == 2 and "--part" in found.reason
    found = memory.verify(rows[:2], labels[:2], part=True)
    assert found.verdict == "proved" and found.guarantee.startswith("not checked")


def test_more_rows_than_were_memorized_are_refuted(saved, tmp_path):
    more = write_table(tmp_path / "more.csv", {**ROWS, "dot": "mark"})
    status, found = verify(saved[0], more)
    assert status == 1 and (found["agree"], found["differ"]) == (4, 1)


def test_the_file_does_not_choose_the_columns(tmp_path):
    """A memory of label -> label does not concern the table; the caller must name its columns."""
    table = write_table(tmp_path / "t.csv")
    echo = byheart.memorize(
        byheart.read(str(table), sequence_column="kind", label_column="kind"), construction="ks25", progress=False
    )
    echo.save(tmp_path / "m")
    status, found = verify(tmp_path / "m", table)
    assert status == 2 and "returns its own input, the column 'kind'" in found["reason"]
    assert verify(tmp_path / "m", table, "--sequence-column", "kind", "--label-column", "kind")[0] == 0


@pytest.mark.parametrize("column", ["id", "other"])
def test_columns_of_the_file_are_taken_unless_the_table_has_labels_elsewhere(tmp_path, column):
    """Columns that no reader would guess come from the file; a usual name in DATA needs the user's word."""
    table, file = tmp_path / "t.csv", tmp_path / "m"
    table.write_text(f"{column},colour,sort\n1,red,a\n2,blue,b\n3,red,c\n")
    rows = byheart.read(str(table), sequence_column="sort", label_column=column)
    byheart.memorize(rows, construction="ks25", progress=False).save(file)
    status, found = verify(file, table)
    assert (status, found["columns_from"]) == (0, "file") and found["columns"] == {"sequence": "sort", "label": column}
    table.write_text(f"{column},label,sort\n1,red,a\n2,blue,b\n3,red,c\n")
    status, found = verify(file, table)
    assert status == 2 and "has labels in 'label', but the memory returns" in found["reason"]
    status, found = verify(file, table, "--label-column", column)
    assert (status, found["columns_from"]) == (0, "flags")
    table.write_text("nothing,sort\n1,a\n")
    assert f"no column '{column}', the label that the memory was built from" in verify(file, table)[1]["reason"]
    table.write_text(f"{column},tune\n1,a\n")
    assert "no column 'sort', which the memory was built from" in verify(file, table)[1]["reason"]


def test_header_and_encoding_of_the_file_are_taken(tmp_path):
    table, file = tmp_path / "t.csv", tmp_path / "m"
    table.write_bytes("café,noir\nthé,vert\n".encode("cp1252"))
    flags = ["--no-header", "--encoding", "cp1252"]
    run = CliRunner().invoke(commands, ["memorize", str(table), "-o", str(file), "--quiet", *flags])
    assert run.exit_code == 0, run.output
    assert verify(file, table)[0] == 0
    assert verify(file, table, "--encoding", "utf-8")[0] == 2


def test_a_memory_of_texts_says_that_it_asks_no_labels(tmp_path):
    """A memory of what follows in the names stores nothing about their kinds."""
    table, file = write_table(tmp_path / "table.csv"), tmp_path / "m.byheart"
    texts = byheart.read(str(table), task="causal", sequence_column="name")
    byheart.memorize(texts, progress=False).save(file)
    found = CliRunner().invoke(commands, ["verify", str(file), str(table)], standalone_mode=False)
    assert "column 'name'; labels are the next tokens; not used: 'kind'" in found.output


def test_distributions_do_not_stand_in_for_labels(tmp_path):
    """Whether DATA's labels are compared is not decided by the file."""
    rows, file = tmp_path / "rows.jsonl", tmp_path / "m.byheart"
    rows.write_text("".join(json.dumps({"text": f"a {name} sat", "label": name}) + "\n" for name in ("cat", "dog")))
    byheart.memorize(["a cat sat", "a dog sat"], construction="madden24", progress=False).save(file)
    status, found = verify(file, rows)
    assert status == 2 and "--sequence-column 'text'" in found["reason"]
    assert verify(file, rows, "--sequence-column", "text")[0] == 0


def test_rows_that_were_left_out_while_reading_are_counted(tmp_path):
    table = write_table(tmp_path / "table.csv", [("cat", "animal"), ("oak", ""), ("dog", "animal")])
    memory = byheart.memorize(byheart.read(str(table), missing="drop"), progress=False)
    found = memory.verify(byheart.read(str(table), missing="drop"))
    assert found.verdict == "proved"
    assert (found.rows, found.asked, found.left_out) == (3, 2, {"by --missing drop": 1})


@pytest.mark.parametrize("row", [1.0, None, 7, True])
def test_a_row_that_is_not_a_sequence_is_a_clear_error(row):
    memory = byheart.memorize([[1], [2]], ["a", "b"], progress=False)
    with pytest.raises(DataError, match="not a sequence of tokens"):
        memory.predict([row])


def test_labels_beyond_max_length_are_not_proved(tmp_path):
    rows = [("[1, 2, 3]", "[4, 5, 5]"), ("[2, 2]", "[5, 5]")]
    table = tmp_path / "t.jsonl"
    table.write_text("".join(f'{{"x": {x}, "y": {y}}}\n' for x, y in rows))
    read = byheart.read(str(table), task="seq-to-seq", max_length=2)
    byheart.memorize(read, construction="ks25", progress=False).save(tmp_path / "m")
    status, found = verify(tmp_path / "m", table)
    assert status == 1 and (found["agree"], found["differ"]) == (1, 1) and "3 labels" in found["reason"]
    assert verify(tmp_path / "m", table, "--max-length", "2")[0] == 0


def claim(change):
    return lambda body: change(body["claim"])


CLAIMS = {
    "emptied": claim(lambda c: c.update(bounds={})),
    "raised": claim(lambda c: c.update(bounds={"parameters": 10**9, "depth": 10**9})),
    "renamed": claim(lambda c: c.update(label="Theorem 99")),
    "property removed": claim(lambda c: c.update(properties=[])),
    "property added": claim(lambda c: c.update(properties=["exact in any order: float32"])),
}


@pytest.mark.parametrize("change", CLAIMS)
def test_the_guarantee_is_never_taken_from_the_file(saved, tmp_path, change):
    file, table = saved
    honest = verify(file, table)[1]
    before = json.loads(file.read_text())["memory"]["claim"]
    forged = rewrite(file, tmp_path / "f", CLAIMS[change])
    if json.loads(forged.read_text())["memory"]["claim"] == before:
        return
    status, found = verify(forged, table)
    assert status == 1 and found["verdict"] == "refuted" and "the file states" in found["reason"]
    assert found["guaranteed"] == honest["guaranteed"]


@pytest.mark.parametrize("change", CLAIMS)
def test_a_foreign_version_does_not_switch_the_comparison_off(saved, tmp_path, change):
    """Another version's theorem may have had other constants: not false, but not proved either."""
    file, table = saved
    edit = CLAIMS[change]
    forged = rewrite(file, tmp_path / "f", lambda body: (edit(body), body.update(version="0.0.1")))
    honest = rewrite(file, tmp_path / "h", lambda body: body.update(version="0.0.1"))
    assert verify(honest, table)[0] == 0
    if json.loads(forged.read_text())["memory"]["claim"] != json.loads(honest.read_text())["memory"]["claim"]:
        status, found = verify(forged, table)
        assert (
            status == 1
            and found["verdict"] == "undecided"
            and "in a record of 0.0.1 the file states" in found["reason"]
        )


UNKNOWN = {
    "construction": lambda body: body.update(construction="miracle"),
    "option": lambda body: body["options"].update(abstain_bits="many", head="tail", form="another"),
}


@pytest.mark.parametrize("change", UNKNOWN)
@pytest.mark.parametrize("emptied", [False, True])
def test_right_answers_of_an_unknown_construction_are_not_proved(saved, tmp_path, change, emptied):
    """There is no guarantee that could have been compared, so `proved` would claim more than was checked."""

    def edit(body):
        UNKNOWN[change](body)
        if emptied:
            body["claim"].update(bounds={}, properties=[], formulas={})

    forged = rewrite(saved[0], tmp_path / "f", edit)
    status, found = verify(forged, saved[1])
    assert status == 1 and found["verdict"] == "undecided" and found["guarantee"].startswith("not checked: ")
    assert found["agree"] == found["rows"] and "--part" in found["reason"]
    status, found = verify(forged, saved[1], "--part")
    assert status == 0 and found["guarantee"].startswith("not checked: ")


def test_a_bound_on_nothing_is_a_clear_error(saved, tmp_path):
    forged = rewrite(saved[0], tmp_path / "f", lambda body: body["claim"]["bounds"].update(beauty=3))
    with pytest.raises(FileFormatError, match="'beauty'"):
        load(forged)


def test_a_network_that_breaks_the_guarantee_is_refuted(tmp_path):
    table = write_table(tmp_path / "t.csv")
    byheart.memorize(byheart.read(str(table)), construction="nilsson65", progress=False).save(tmp_path / "m")

    def deeper(body):
        layers = body["network"]["layers"]
        one = {"layer": "affine", "weight": {"columns": 1, "rows": [[[0, 1]]]}, "bias": None, "relu": False}
        layers += [one, one]
        body["network"]["stages"] = []
        body["claim"]["bounds"]["depth"] = body["claim"]["bounds"]["parameters"] = 10**6

    status, found = verify(rewrite(tmp_path / "m", tmp_path / "f", deeper), table)
    assert (
        status == 1 and found["guarantee"] == "broken" and "depth is 3, more than the guaranteed 1" in found["reason"]
    )


def test_a_recorded_size_is_compared(saved, tmp_path):
    forged = rewrite(saved[0], tmp_path / "f", lambda body: body["certificate"]["size"].update(parameters=1))
    assert load(forged).size.parameters > 1
    status, found = verify(forged, saved[1])
    assert status == 1 and "parameters = 1" in found["reason"]


def test_a_loaded_memory_says_that_its_verdict_is_recorded(saved):
    assert "recorded, not checked now" in repr(load(saved[0]))
    assert load(saved[0]).summary()["recorded"] is True


def test_files_of_the_first_format_still_load():
    """format1.byheart was written by the last byheart that had that format."""
    memory = load(Path(__file__).with_name("format1.byheart"))
    rows, labels = [["a", 7], [2**60, "b"], ["a"]], [("x", True), None, 0.5]
    assert memory.predict(rows) == labels
    found = memory.verify(rows, labels)
    assert found.verdict == "proved" and found.guarantee == "kept" and any("format 1" in said for said in found.remarks)
    assert memory.verify(rows, [("x", 1), None, 0.5]).verdict == "refuted"


def test_files_of_the_second_format_still_load():
    """format2.byheart was written by the last byheart that had that format."""
    path = Path(__file__).with_name("format2.byheart")
    memory, rows, labels = load(path), ["holtsville", "newyork", "plus"], [501, 10001, 7]
    assert memory.predict(rows) == labels and memory.selection.label_type == "int"
    assert memory.certificate.guarantee == "kept" and memory.certificate.guaranteed == dict(memory.claim.bounds)
    assert memory.selection.header is None and memory.selection.encoding is None
    assert memory.verify(rows, labels).verdict == "proved"


@pytest.mark.parametrize(("part", "name"), [("certificate", "guarantee"), ("selection", "header")])
def test_a_field_of_a_later_format_is_refused(tmp_path, part, name):
    document = json.loads(Path(__file__).with_name("format2.byheart").read_text())
    document["memory"][part][name] = None
    document["sha256"] = digest(document["memory"])
    (tmp_path / "mixed.byheart").write_text(canonical(document))
    with pytest.raises(FileFormatError, match=f"{part} has a field '{name}', which format 2 does not have"):
        load(tmp_path / "mixed.byheart")


def test_files_from_before_the_first_release_say_what_to_do(tmp_path):
    """They had neither `tokens` nor `selection`; guessing them might query a network with other tokens."""
    document = json.loads(Path(__file__).with_name("format1.byheart").read_text())
    del document["memory"]["selection"]
    document["sha256"] = digest(document["memory"])
    (tmp_path / "old.byheart").write_text(canonical(document))
    with pytest.raises(FileFormatError, match=r"before its first release.*memorize the data again"):
        load(tmp_path / "old.byheart")


STRICT = {
    "a unanswerable field": lambda body: body.update(extra=1),
    "a unanswerable field in the claim": lambda body: body["claim"].update(extra=1),
    "a unanswerable field in a layer": lambda body: body["network"]["layers"][0].update(extra=1),
    "a unanswerable field in a matrix": lambda body: body["network"]["layers"][-1]["weight"].update(extra=1),
    "a number in another form": lambda body: body["network"]["layers"][-1]["weight"]["rows"].__setitem__(
        0, [[0, "0x1"]]
    ),
    "an even mantissa": lambda body: body["network"]["layers"][-1]["weight"]["rows"].__setitem__(0, [[0, "0x2p70"]]),
    "a stored zero": lambda body: body["network"]["layers"][-1]["weight"]["rows"].__setitem__(0, [[0, 0]]),
    "an option that is a list": lambda body: body["options"].update(form=[]),
    "a class in another form": lambda body: body["classes"].__setitem__(0, {"integer": "0x7"}),
}


@pytest.mark.parametrize("change", STRICT)
def test_only_the_one_form_is_read(saved, tmp_path, change):
    with pytest.raises(FileFormatError):
        load(rewrite(saved[0], tmp_path / "f", STRICT[change]))


@pytest.mark.parametrize("inner", ["a", 0.5])
def test_what_is_saved_can_be_loaded(inner, tmp_path):
    """A label of 25 tuples in each other was written, and then called damaged; 20 are what the format has."""
    label = inner
    for _ in range(20):
        label = (label,)
    byheart.memorize(["ab", "cd"], [label, "b"], progress=False).save(tmp_path / "f")
    assert load(tmp_path / "f").predict(["ab"]) == [label]
    with pytest.raises(DataError, match="20 deep"):
        byheart.memorize(["ab", "cd"], [(label,), "b"], progress=False).save(tmp_path / "f")


def test_keys_that_stand_twice_are_refused(saved, tmp_path):
    text = saved[0].read_text()
    (tmp_path / "f").write_text(text.replace('"seed":0', '"seed":0,"seed":0'))
    with pytest.raises(FileFormatError, match="twice"):
        load(tmp_path / "f")


def huge(body):
    """200 layers that each multiply by 2^4194304, in a few kilobytes."""
    one = {"layer": "affine", "weight": {"columns": 1, "rows": [[[0, "0x1p4194304"]]]}, "bias": None, "relu": False}
    body["network"]["layers"] = [*body["network"]["layers"], *[one] * 200]
    body["network"]["stages"] = []


def long(body):
    body["encoder"].update(length=1 << 24, padded=True)


def sharp(body):
    """50 softmax layers whose scores have a million bits: half a second for each exponential."""
    wide = body["network"]["layers"][-1]["weight"]["columns"]
    one, long = ({"columns": wide, "rows": [[[0, w]]]} for w in (1, "0x1p1000000"))
    back = {"columns": 1, "rows": [[[0, 1]], *[[]] * (wide - 1)]}
    head = {"key": long, "query": long, "value": one, "output": back}
    layer = {"layer": "attention", "kind": "softmax", "pattern": "full", "heads": [head]}
    body["network"]["layers"][-1:-1] = [layer] * 50
    body["network"]["stages"] = []


def many(body):
    """One number of four million bits is no work; 20,000 places with one each are ten gigabytes."""
    one = {"columns": 2, "rows": [[[1, 1]]]}
    layer = {"layer": "affine", "weight": one, "bias": ["0x1p-4194304"], "relu": False}
    body["network"].update(layers=[layer, {"layer": "pool", "width": 1}], read="pooled", stages=[])
    body["encoder"].update(length=20_000, padded=True)


@pytest.mark.parametrize("change", [huge, long, sharp, many])
@pytest.mark.parametrize("command", ["verify", "predict"])
def test_a_hostile_file_is_refused_before_it_costs_anything(tmp_path, change, command):
    table = write_table(tmp_path / "t.csv")
    byheart.memorize(byheart.read(str(table)), construction="compact", progress=False).save(tmp_path / "m")
    rewrite(tmp_path / "m", tmp_path / "f", change)
    arguments = [command, str(tmp_path / "f"), str(table) if command == "verify" else "oak"]
    started = time.monotonic()
    result = CliRunner().invoke(commands, arguments, standalone_mode=False)
    assert isinstance(result.exception, BudgetError), result.exception
    assert "--max-" in str(result.exception) and time.monotonic() - started < 20


def test_the_budget_is_far_above_honest_files(saved):
    memory = load(saved[0])
    with limited(memory.budget) as meter:
        memory.network  # noqa: B018
        assert meter.budget.work > 10**11
    small = load(saved[0], budget=Budget(work=1))
    with pytest.raises(BudgetError, match="--max-work"):
        small.predict(list(ROWS))
    assert load(saved[0], budget=None).predict(["cat"]) == ["animal"]


def honest_answers(file, rows):
    """What a user reads, or nothing where the file is refused."""
    try:
        return load(file).predict(list(rows))
    except ByheartError:
        return None


def tampered(saved, tmp_path, count, seed):
    """Random changes with right checksums: whatever is proved is right, answer by answer and guarantee by guarantee."""
    file, table = saved
    rng = random.Random(seed)
    guaranteed = load(file).claim
    verdicts = []
    for _ in range(count):
        forged = rewrite(file, tmp_path / "f", lambda body: tamper(body, rng))
        status, found = verify(forged, table)
        verdicts.append(found["verdict"])
        assert (status == 0) == (found["verdict"] == "proved")
        if status == 0:
            memory = load(forged)
            assert honest_answers(forged, ROWS) == list(ROWS.values())
            assert not guaranteed.broken_by(memory.size)
    return verdicts


def test_tampered_memories_are_never_proved_wrongly(saved, tmp_path):
    verdicts = tampered(saved, tmp_path, 27, seed=0)
    assert verdicts.count("proved") < len(verdicts) // 2


@pytest.mark.slow
def test_many_tampered_memories_are_never_proved_wrongly(saved, tmp_path):
    tampered(saved, tmp_path, 170, seed=1)


def test_a_token_outside_the_table_is_the_fault_of_its_own_row():
    memory = byheart.memorize(["ab", "ba", "bb"], [1, 2, 1], construction="native", progress=False)
    table = memory.network.layers[0].table
    short = replace(memory.network.layers[0], table=Matrix(table.rows[:-1], table.columns))  # the last: b at the end
    forged = replace(memory, network=replace(memory.network, layers=(short, *memory.network.layers[1:])))
    certificate = forged.verify(["ab", "ba", "bb"], [1, 2, 1])
    assert (certificate.agree, certificate.differ) == (1, 2)
    assert certificate.reason == "2 rows of 3 differ, the first is row 0: it is labelled 1, the memory has no answer"
    assert forged.verify(["ab"], [1]).differ == 1


@pytest.mark.parametrize(("rows", "labels"), [(["cat"], [3, 1]), (["cat", "act"], [3]), (["cat"], [])])
def test_every_row_needs_its_label(rows, labels):
    memory = byheart.memorize(["cat", "act", "dog"], [3, 1, 4], progress=False)
    with pytest.raises(DataError, match=f"{len(rows)} sequences but {len(labels)} labels"):
        memory.verify(rows, labels)


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "2"])
def test_a_number_of_rows_is_a_number(count):
    memory = byheart.memorize(["cat", "act"], [3, 1], progress=False)
    with pytest.raises(OptionError, match="max_rows"):
        memory.verify(["cat", "act"], [3, 1], max_rows=count)


def test_a_file_cannot_write_lines_of_its_own(saved, tmp_path):
    def change(body):
        body["claim"]["label"] = "T\nproved: yes\x1b[2J"

    file, table = saved
    forged = rewrite(file, tmp_path / "forged", change)
    result = CliRunner().invoke(commands, ["verify", str(forged), str(table)], standalone_mode=False)
    assert result.output.startswith("refuted: ")
    assert not any(line.startswith("proved") for line in result.output.splitlines()) and "\x1b" not in result.output


def test_the_command_says_what_it_does():
    assert "Every row is evaluated" in verify_command.help


@pytest.mark.parametrize("unanswerable", [1, {"a": 1}, {"a"}, np.array(1), np.array("a")], ids=repr)
def test_what_is_not_a_row_is_refused_beside_rows_that_are(unanswerable):
    """Lone numbers and arrays without a dimension crashed; the keys of a dict were queried as if they were tokens."""
    table = byheart.read({"text": [["a"], ["b"]], "label": ["x", "y"]}, tokens="words")
    memory = byheart.memorize(table, construction="ks25", progress=False)
    for rows in ([unanswerable], ["a", unanswerable]):
        with pytest.raises(DataError, match="not a sequence of tokens"):
            memory.predict(rows)
        with pytest.raises(DataError, match="not a sequence of tokens"):
            memory.verify(rows, ["x"] * len(rows))


@pytest.mark.parametrize("gap", [float("nan"), float("inf"), 0, -0.5, True, "0.5", None])
def test_what_is_not_a_gap_is_refused(gap):
    memory = byheart.memorize_documents(["a cat sat", "a dog sat"])
    with pytest.raises(OptionError, match="gap="):
        memory.verify(["a cat sat", "a dog sat"], gap=gap)
