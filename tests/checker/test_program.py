"""checker/check.py as a program: what it needs, its exit statuses, its budget, and how it reads data."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time

import pytest

import byheart
import byheart.cli
from tests.checker.asked import PROGRAM, check, second
from tests.checker.by_hand import loaded, lookup, write
from tests.checker.tampering import sealed

COLOURS = {"act": "red", "cat": "blue", "dog": "red"}


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Isolated and without site-packages: whatever is not in the standard library is not there."""
    command = [sys.executable, "-I", "-S", str(PROGRAM), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def table(folder, text: str, name: str = "rows.csv"):
    (folder / name).write_text(text)
    return folder / name


def test_it_needs_nothing_but_python(tmp_path):
    file, data = write(tmp_path, lookup(COLOURS)), table(tmp_path, "token,label\ncat,blue\nact,red\n")
    done = run(file, data)
    assert done.returncode == 0 and done.stdout.startswith("answers proved: 2 rows get their labels\n2 rows, 2 asked")
    assert "not derived again" in done.stdout and not done.stderr
    said = json.loads(run(file, data, "--json").stdout)
    assert said["verdict"] == "answers proved" and said["rows"] == said["agree"] == 2 and said["left_out"] == 0
    assert not re.search(r"^\s*(import|from) byheart", PROGRAM.read_text(), re.MULTILINE)


def test_exit_statuses(tmp_path, monkeypatch):
    file = write(tmp_path, lookup(COLOURS))
    assert run(file, table(tmp_path, "token,label\ncat,red\n")).returncode == 1
    refused = run(tmp_path / "nothing", tmp_path / "rows.csv")
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1 and "nothing" in refused.stderr
    assert run(file, tmp_path / "no.csv").returncode == 2
    assert run(file, tmp_path / "rows.csv", "--label-column", "colour").returncode == 2
    monkeypatch.setattr(check, "check", lambda flags: 1 // 0)
    monkeypatch.setattr(sys, "argv", ["check.py", "a", "b"])
    assert check.main() == 70, "a defect has its own status"


def test_what_a_terminal_cannot_show_is_escaped(tmp_path):
    file = write(tmp_path, lookup({"act": "\ud800", "cat": "blüe"}))
    done = run(file, table(tmp_path, '{"token": "act", "label": "x"}\n', "rows.jsonl"))
    assert done.returncode == 1 and "\\ud800" in done.stdout and not done.stderr
    assert run(file, table(tmp_path, '{"token": "act", "label": "\\ud800"}\n', "rows.jsonl"), "--json").returncode == 0


def test_what_a_file_says_cannot_move_the_cursor(tmp_path, monkeypatch, capsys):
    """Control characters in names of a hostile file are shown as escapes, by both checkers."""
    escape, data = "\x1b[2Jproved", table(tmp_path, '{"token": "act", "label": "x"}\n', "rows.jsonl")
    body = lookup({"act": escape, "cat": "blue"})
    refuted = write(tmp_path, body, "refuted")
    body["options"] = {escape: []}
    refused = write(tmp_path, body, "refused")
    for arguments in ([refuted, data], [refused, data], [tmp_path / escape, data], [refuted, tmp_path / escape]):
        done = run(*arguments)
        assert done.returncode in (1, 2) and "\\x1b[2Jproved" in done.stdout + done.stderr
        assert "\x1b" not in done.stdout + done.stderr
        monkeypatch.setattr(sys, "argv", ["byheart", "verify", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            byheart.cli.main()
        printed = "".join(capsys.readouterr())
        assert ended.value.code in (1, 2) and "\x1b" not in printed
        assert ended.value.code == 1 or "\\x1b[2Jproved" in printed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "not a memory"),
        (b"{}", "not a memory"),
        (b'{"byheart":1,"memory":{},"sha256":""}', "version 1"),
        (b'{"byheart":true}', "version True"),
        (b'{"byheart":' + b"[" * 100_000, "not JSON"),
        (b'{"byheart":' + b"9" * 5000 + b"}", "not JSON"),
        (b"byheart decoder 1\n\xff", "not a memory"),
        (b'{"byheart":[]}', "version"),
        ('{"byheart":"ü"}'.encode(), "not a memory"),
    ],
)
def test_foreign_files(text, words, tmp_path):
    (tmp_path / "m").write_bytes(text)
    refused = second(tmp_path / "m", tmp_path / "rows.csv")
    assert refused.status == 2 and words in refused.error


def test_labels_are_compared_by_type_and_value(tmp_path):
    """1, 1.0, true, "1" and null are five labels, and 0.0 and -0.0 two more."""
    labels = {"a": 1, "b": 1.0, "c": True, "d": "1", "e": None, "f": 0.0, "g": -0.0}
    file = write(tmp_path, lookup(labels))
    rows = [json.dumps({"token": token, "label": label}) for token, label in labels.items()]
    data = table(tmp_path, "\n".join(rows), "rows.jsonl")
    assert second(file, data).status == 2, "a missing label is refused unless a flag defines it"
    assert second(file, data, "--missing", "label").proved
    dropped = second(file, data, "--missing", "drop")
    assert dropped.proved and dropped.reply["left_out_by"] == {"by --missing drop": 1} and dropped.reply["asked"] == 6
    for token, label in labels.items():
        for other in labels.values():
            data = table(tmp_path, json.dumps({"token": token, "label": other}), "one.jsonl")
            assert second(file, data, "--missing", "label").proved == (repr(label) == repr(other)), (label, other)


def test_tokens_are_compared_by_type_and_value(tmp_path):
    tokens = {None: "null", True: "true", 2: "two", 2.5: "2.5", "1": "text"}
    file = write(tmp_path, lookup(tokens))
    rows = [json.dumps({"token": [token], "label": label}) for token, label in tokens.items()]
    data = table(tmp_path, "\n".join(rows), "rows.jsonl")
    assert second(file, data, "--missing", "label").proved
    for wrong in ([1], [2.0], [1.0], ["2"], ["true"], [False], [[2]]):
        data = table(tmp_path, json.dumps({"token": wrong, "label": "two"}), "one.jsonl")
        assert second(file, data).reply["differ"] == 1, wrong


def test_a_file_that_names_other_labels_than_the_table_is_not_believed(tmp_path):
    """Where DATA has labels by a usual name and FILE names another column, the user must name the columns."""
    body = lookup(COLOURS)
    body["selection"]["label_column"] = "id"
    file = write(tmp_path, body)
    data = table(tmp_path, "id,token,label\nblue,cat,red\nred,act,blue\n")
    assert second(file, data).status == 2
    assert second(file, data, "--sequence-column", "token", "--label-column", "label").status == 1
    assert second(file, data, "--sequence-column", "token", "--label-column", "id").proved
    body["selection"].update(sequence_columns=[], label_column=None)
    assert second(write(tmp_path, body), data).status == 2, "id or token: ambiguous"
    data = table(tmp_path, "token,label\ncat,red\nact,blue\n")
    assert second(write(tmp_path, body), data).reply["differ"] == 2, "a usual name and the only other column"


@pytest.mark.parametrize(
    ("names", "task", "chosen"),
    [
        ("name,colour", "next-token", ("name", "colour")),
        ("label,text", "next-token", ("text", "label")),
        ("Y,text,more", "next-token", ("text", "Y")),
        ("text,next", "causal", ("text", None)),
        ("text,answer", "causal", ("text", "answer")),
    ],
)
def test_columns_are_guessed_as_byheart_guesses_them(names, task, chosen, tmp_path):
    data = table(tmp_path, f"{names}\n" + ",".join("abcd"[k] * 3 for k in range(names.count(",") + 1)) + "\n")
    own = byheart.read(data, task="causal" if chosen[1] is None else "next-token").selection
    assert (*own.sequence_columns, own.label_column) == chosen
    body = lookup(COLOURS)
    body["selection"].update(sequence_columns=[], label_column=None)
    memory = loaded(body)
    memory.task = task
    ((_, cell, label),) = check.read_cases(memory, check.arguments().parse_args(["m", str(data)]))
    place = names.split(",").index
    assert cell == "abcd"[place(chosen[0])] * 3
    assert label is check.NEXT if chosen[1] is None else label == "abcd"[place(chosen[1])] * 3


def test_columns_that_are_not_clear_must_be_named(tmp_path):
    """byheart takes all columns but the label's; the second checker guesses less."""
    data = table(tmp_path, "Y,X,more\naaa,bbb,ccc\n")
    assert byheart.read(data).selection.sequence_columns == ("X", "more")
    assert second(write(tmp_path, lookup(COLOURS)), data).status == 2


def test_strings_stay_strings(tmp_path):
    """A zip code of a CSV file is not a number, and the types that the file names change nothing."""
    body = lookup({"holtsville": 501, "newyork": 10001})
    body["selection"]["label_type"] = "int"
    file, data = write(tmp_path, body), table(tmp_path, "token,label\nholtsville,00501\nnewyork,10001\n")
    assert second(file, data).status == 2, "the user must request the conversion of labels"
    assert second(file, data, "--label-type", "auto").reply["differ"] == 2
    assert second(file, data, "--label-type", "int").proved
    file = write(tmp_path, lookup({"holtsville": "00501", "newyork": "10001"}))
    assert second(file, data).proved


def test_every_row_counts(tmp_path):
    file = write(tmp_path, lookup(COLOURS))
    body = lookup(COLOURS)
    body["selection"].update(max_rows=1, conflicts="majority")
    hostile = write(tmp_path, body, "hostile.byheart")
    data = table(tmp_path, "token,label\ncat,blue\ncat,red\nact,red\n")
    for each in (file, hostile):
        said = second(each, data).reply
        assert (said["verdict"], said["rows"], said["agree"], said["differ"]) == ("refuted", 3, 2, 1)
        assert "line 3" in said["reason"]
        excused = second(each, data, "--conflicts", "first")
        assert excused.proved and excused.reply["left_out_by"] == {"by --conflicts first": 1}
        limited = second(each, data, "--max-rows", "1")
        assert limited.proved and limited.reply["left_out_by"] == {"beyond --max-rows 1": 2}
    wrong = table(tmp_path, "token,label\ncat,red\ncat,red\n", "wrong.csv")
    assert second(file, wrong, "--conflicts", "first").status == 1, "nothing in DATA contradicts these rows"
    unknown = table(tmp_path, "token,label\ncat,blue\nowl,red\n", "unknown.csv")
    said = second(file, unknown).reply
    assert said["differ"] == 1 and "'owl' is not a symbol" in said["reason"]


@pytest.mark.parametrize(
    ("kind", "cell", "tokens"),
    [
        ("characters", "añ😀", ["a", "ñ", "😀"]),
        ("auto", " a", [" ", "a"]),
        ("bytes", "é", [0xC3, 0xA9]),
        ("words", " to\u2003be\x1cor ", ["to", "be", "or"]),
        ("wordpunct", "a, b_c!? e\u0301", ["a", ",", "b_c", "!?", "e", "\u0301"]),
        ("uncased", "So...", ["so", ".", ".", "."]),
        ("integers", "7, 007 -3", [7, 7, -3]),
        ("words", '["x", 1]', ["x", 1]),
        ("words", "[x, 1]", ["[x,", "1]"]),
        ("json", " [1.5, true, null]", [1.5, True, None]),
        ("characters", ["ab", 3], ["ab", 3]),
        ("words", 5, [5]),
    ],
)
def test_how_cells_become_tokens(kind, cell, tokens, tmp_path):
    body = lookup(COLOURS)
    body["tokens"] = kind
    memory = loaded(body)
    assert list(map(repr, memory.tokens(cell))) == list(map(repr, tokens))
    if isinstance(cell, str) and None not in tokens:
        own = byheart.read({"text": [cell], "label": [0]}, tokens=kind).sequences[0]
        assert list(map(repr, own)) == list(map(repr, tokens)), "byheart tokenizes alike"


def test_rows_are_cut_and_filled(tmp_path):
    body = lookup({"#": 0, "a": 1, "b": 2})
    body["tokens"] = {"kind": "words", "model": None, "max_length": 1, "pad": "#", "type": "auto"}
    file, rows = write(tmp_path, body), '{"token": "a b", "label": 1}\n{"token": ["b", "a"], "label": 2}\n'
    assert second(file, table(tmp_path, rows, "a.jsonl")).proved
    assert second(file, table(tmp_path, rows + '{"token": [], "label": 0}', "b.jsonl")).status == 2, "no token at all"


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram", "file"])
def test_other_peoples_tokenizers_are_undecided(kind, tmp_path):
    body = lookup(COLOURS)
    body["tokens"] = {"kind": kind, "model": "{}", "max_length": None, "pad": None, "type": "auto"}
    file = write(tmp_path, body)
    said = second(file, table(tmp_path, "token,label\ncat,blue\n")).reply
    assert said["verdict"] == "undecided" and "tokenizers" in said["reason"] and said["asked"] == said["undecided"] == 1
    assert second(file, table(tmp_path, 'token,label\n"[""cat""]",blue\n')).proved, "lists need no tokenizer"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "token;label\r\ncat;blue\r\n\r\nact;red\r\n"),
        ("a.tsv", "token\tlabel\ncat\tblue\n"),
        ("a.csv", "\ufefftoken|label\ncat|blue\n"),
        ("a.csv", 'label,"token"\n"blue","cat"\n'),
        ("a.jsonl", '{"label": "blue", "token": "cat", "more": 1}\n\n'),
    ],
)
def test_tables(name, text, tmp_path):
    (tmp_path / name).write_bytes(text.encode())
    assert second(write(tmp_path, lookup(COLOURS)), tmp_path / name).proved


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", b""),
        ("a.csv", b"token,token\ncat,blue\n"),
        ("a.csv", b"token,label\ncat\n"),
        ("a.csv", b'token,label\n"cat,blue\n'),
        ("a.csv", b"token,label\n\xff,blue\n"),
        ("a.csv", b"token,label\ncat,\n"),
        ("a.csv", b"token,label\n,blue\n"),
        ("a.jsonl", b'{"token": "cat", "token": "cat", "label": "blue"}'),
        ("a.jsonl", b'{"token": "cat", "label": NaN}'),
        ("a.jsonl", b'{"token": "cat", "label": 1e999}'),
        ("a.jsonl", b'{"token": "cat"}'),
        ("a.jsonl", b"[1]"),
    ],
)
def test_tables_that_are_none(name, text, tmp_path):
    (tmp_path / name).write_bytes(text)
    assert second(write(tmp_path, lookup(COLOURS)), tmp_path / name).status == 2


def test_an_empty_table_proves_nothing(tmp_path):
    assert second(write(tmp_path, lookup(COLOURS)), table(tmp_path, "token,label\n")).status == 2


def test_an_integer_too_long_to_print_is_no_crash(tmp_path):
    body = lookup(COLOURS)
    body["classes"][0] = {"integer": "0x" + "f" * 5000}
    data = table(tmp_path, "token,label\ncat,blue\nact,red\n")
    said = second(write(tmp_path, body), data).reply
    assert (said["agree"], said["differ"]) == (1, 1) and "thousands of digits" in said["reason"]


def test_false_records_are_refuted(tmp_path):
    data = table(tmp_path, "token,label\ncat,blue\n")
    body = lookup(COLOURS)
    file = write(tmp_path, body)
    body["certificate"]["size"]["parameters"] += 1
    file.write_bytes(sealed(body))
    assert second(file, data).reply["verdict"] == "refuted"
    body = lookup(COLOURS)
    body["claim"]["bounds"] = {"nonzero": 0}
    assert "guaranteed is at most 0" in second(write(tmp_path, body), data).reply["reason"]


# Hostile files: a few bytes that describe more than a machine can hold.


def affine(weight, width: int = 1) -> dict:
    rows = [[[0, weight]]] * width
    return {"layer": "affine", "weight": {"columns": 1, "rows": rows[:1]}, "bias": None, "relu": False}


@pytest.mark.parametrize(
    "change",
    [
        {"network": [affine("0x1p4194304")] * 200},
        {"network": [affine("-0x1p-4194304"), affine("0x1p4194303")] * 100},
        {"network": [affine("0x" + "f" * 200_000)] * 3 + [affine("0x1p4194304")] * 100},
        {"length": 1 << 24},
        {"network": [affine(1)] * 3, "length": 1 << 24},
    ],
)
def test_hostile_files_are_refused_in_time(change, tmp_path):
    body = lookup(COLOURS)
    for name, new in change.items():
        if name == "network":
            body["network"]["layers"] = new
        else:
            body["encoder"] |= {"length": new, "padded": True}
    file, data = write(tmp_path, body), table(tmp_path, "token,label\ncat,blue\nact,red\n")
    start = time.monotonic()
    refused = second(file, data)
    assert refused.status == 2 and "see --max-" in refused.error, refused
    assert time.monotonic() - start < 10


def wide(bias: list, columns: int = 1) -> dict:
    """A layer that gives its biases, and adds the last number of a token to the first."""
    rows = [[[columns - 1, 1]], *([] for _ in bias[1:])]
    return {"layer": "affine", "weight": {"columns": columns, "rows": rows}, "bias": bias, "relu": False}


ROWS = {"length": 500, "padded": True, "positions": True}
POOL = {"layer": "pool", "width": 1}


@pytest.mark.parametrize(
    ("layers", "encoder", "read"),
    [
        ([affine("0x1p65536")] * 400, {}, "last"),  # each matrix alone would do
        ([wide([1] * 1999 + ["0x1p-65536"])], {}, "last"),  # one short number among many
        ([wide(["0x1p65536"], 2), POOL], ROWS, "pooled"),  # one long number for each token
    ],
)
def test_what_a_file_takes_in_memory_is_counted(layers, encoder, read, tmp_path):
    """None of these is much work: a tenth of a gigabyte each, and a larger file of the kind would fill a machine."""
    body = lookup(COLOURS)
    body["network"] |= {"layers": layers, "read": read}
    body["encoder"] |= encoder
    refused = second(write(tmp_path, body), table(tmp_path, "token,label\ncat,blue\n"), "--max-work", str(10**8))
    assert refused.status == 2 and "see --max-work" in refused.error, refused
    assert check.BUDGET.done < 10**7


def test_the_budget_can_be_raised(tmp_path):
    file, data = write(tmp_path, lookup(COLOURS)), table(tmp_path, "token,label\n" + "cat,blue\n" * 100)
    refused = second(file, data, "--max-work", "10")
    assert refused.status == 2 and "--max-work" in refused.error
    assert run(file, data, "--max-work", "-1").returncode == 2
    assert second(file, data, "--max-work", "1000000").proved


def test_work_is_estimated_after_a_few_rows(tmp_path):
    """A long table is refused after its first rows, not at its end."""
    body = lookup(COLOURS)
    body["network"]["layers"].append(affine("0x" + "f" * 500))
    body["network"]["layers"].append({"layer": "threshold", "weight": {"columns": 1, "rows": [[[0, 1]]]}, "bias": [0]})
    file = write(tmp_path, body)
    rows = "".join(f"cat,{k}\n" for k in range(1000))
    refused = second(file, table(tmp_path, "token,label\n" + rows), "--max-work", "20")
    assert refused.status == 2 and "units of work" in refused.error
