"""The flags about data: what they do to the rows, and that a saved memory remembers them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from byheart.cli import commands
from byheart.errors import TableError


def byheart(*arguments: str, status: int = 0):
    result = CliRunner().invoke(commands, [*arguments], catch_exceptions=False, standalone_mode=False)
    assert result.return_value == status, result.output
    return result


@pytest.fixture
def learn(tmp_path, monkeypatch):
    """Memorizes a file with flags; returns the --json object."""
    monkeypatch.chdir(tmp_path)

    def run(content: str, *flags: str, name: str = "t.csv", construction: str = "ks25"):
        (tmp_path / name).write_text(content)
        printed = byheart("memorize", name, "-o", "m", "--construction", construction, "--json", *flags)
        return json.loads(printed.stdout)

    return run


def test_columns_are_remembered(learn):
    content = "id,land,town,x\n1,Peru,Lima,a\n2,Japan,Tokyo,b\n"
    printed = learn(content, "--sequence-column", "land", "--label-column", "town")
    assert printed["columns"] == {"sequence": "land", "label": "town"}
    flags = ("--sequence-column", "land", "--label-column", "town")
    assert byheart("verify", "m", "t.csv", *flags).output.startswith("proved")
    assert byheart("predict", "m", "--input", "t.csv").output.split() == ["Lima", "Tokyo"]
    found = byheart("verify", "m", "t.csv").output
    assert (
        found.startswith("proved") and "sequence from column 'land', label from column 'town'; columns as FILE" in found
    )


def test_several_columns(learn):
    flags = ("--sequence-column", "a", "--sequence-column", "b", "--token-type", "float")
    learn("a,b,kind\n1.5,2,x\n1.5,3,y\n", *flags)
    assert byheart("predict", "m", "[1.5, 3]").output == "y\n"
    assert byheart("predict", "m", '["1.5", "3"]').output == "y\n", "questions are read as the rows were"
    assert byheart("verify", "m", "t.csv").output.startswith("proved")
    assert byheart("verify", "m", "t.csv", *flags[:4], "--label-column", "kind").output.startswith("proved")


def test_trained_pieces(learn):
    pytest.importorskip("tokenizers")
    printed = learn("text,label\nto be or not,1\nthat is it,2\n", "--tokens", "bpe:270", "--max-length", "3")
    assert printed["tokens"].startswith("bpe:") and printed["shortened"] >= 1 and printed["n"] == 3
    assert byheart("predict", "m", "to be or not", "that is it").output.split() == ["1", "2"]
    assert byheart("verify", "m", "t.csv").output.startswith("proved")


def test_padding(learn):
    printed = learn("text,label\nabcd,1\na,2\n", "--max-length", "3", "--pad", ".")
    assert printed["n"] == 3
    assert byheart("predict", "m", "a", "a..", "abc").output.split() == ["2", "2", "1"]


@pytest.mark.parametrize(("policy", "rows", "left_out"), [("first", 2, 2), ("majority", 3, 1), ("drop", 1, 3)])
def test_conflicts(learn, policy, rows, left_out):
    content = "text,label\nab,1\nab,2\nab,2\nba,3\n"
    printed = learn(content, "--conflicts", policy)
    assert printed["conflicts"] == {"policy": policy, "contexts": 1, "rows_left_out": left_out} and printed["N"] == rows
    assert any("skipped" in note for note in printed["notes"])
    assert "skipped (" in byheart("verify", "m", "t.csv", "--conflicts", policy).output
    assert byheart("verify", "m", "t.csv", status=1).output.startswith("refuted")


def test_the_first_rows(learn):
    assert learn("text,label\nab,1\nba,2\nbb,3\n", "--max-rows", "2")["N"] == 2
    assert byheart("verify", "m", "t.csv", "--max-rows", "2").output.startswith("proved")
    byheart("verify", "m", "t.csv", status=1)


def test_lines_without_labels(learn):
    flags = ("--task", "causal", "--tokens", "words")
    printed = learn("to be or\nnot to be\n", *flags, name="book.txt", construction="compact")
    assert printed["columns"] == {"sequence": "text"} and printed["verdict"] == "proved"
    assert byheart("predict", "m", "to be").output == "be or\n"
    assert byheart("verify", "m", "book.txt").output.startswith("proved")


@pytest.mark.parametrize("text", ["a rose is a rose is a rose", "rose"])
def test_a_book_is_proved_again(learn, text, tmp_path):
    printed = learn(text, "--task", "causal", "--page-length", "5", name="book.txt", construction="compact")
    assert printed["verdict"] == "proved"
    assert byheart("verify", "m", "book.txt").output.startswith("proved")
    assert byheart("recite", "m").output == text
    byheart("report", "m", "book.txt", "-o", "r.html")
    (tmp_path / "book.txt").write_text(text.replace("e", "s"))
    byheart("verify", "m", "book.txt", status=1)


def test_other_data_is_refused_by_the_report(learn, tmp_path):
    learn("text,label\nab,1\nba,2\n")
    (tmp_path / "other.csv").write_text("text,label\nab,1\nba,1\n")
    result = CliRunner().invoke(commands, ["report", "m", "other.csv"])
    assert "is not the data" in str(result.exception)
    byheart("report", "m", "t.csv", "-o", "r.html")
    assert (tmp_path / "r.html").stat().st_size > 10_000


def test_names_from_the_data_are_no_markup(learn):
    learn("[red]text,label\nab,1\n", "--sequence-column", "[red]text")
    shown = byheart("memorize", "t.csv", "-o", "m", "--construction", "ks25", "--sequence-column", "[red]text")
    assert "'[red]text'" in shown.output


@pytest.mark.parametrize(
    "rows, suggested",
    [
        ([(k, f"c{k}", k % 7) for k in range(1, 40)], "--drop id"),
        ([(k, f"c{k % 5}", k % 7) for k in range(1, 40)], "--keep id"),  # without it, rows contradict each other
        ([(k * 256, k * 256 + 255, k % 6) for k in range(40)], "--keep id --keep code"),  # without them nothing is left
    ],
)
@pytest.mark.parametrize("command", ["deploy", "memorize"])
def test_numbering_columns_are_refused_with_flags_that_lose_nothing(command, rows, suggested, tmp_path):
    path, made = tmp_path / "t.csv", tmp_path / "made"
    path.write_text("id,code,shelf\n" + "".join(f"{','.join(map(str, row))}\n" for row in rows))
    arguments = [command, str(path), "-o", str(made), "--quiet"]
    refused = CliRunner().invoke(commands, arguments, standalone_mode=False).exception
    assert isinstance(refused, TableError) and str(refused).endswith(f"add: {suggested}")
    done = CliRunner().invoke(commands, [*arguments, *suggested.split()], standalone_mode=False)
    assert done.exception is None and made.exists()


def test_texts_that_differ_in_spaces_alone_stay_different(learn, tmp_path):
    """Words would merge them, and the flags for conflicts would then drop rows."""
    printed = learn("place,code\nab,1\n'ab ',2\nab cd,3\nab  cd,4\n".replace("'", '"'))
    assert printed["N"] == 4 and printed["verdict"] == "proved"
    (tmp_path / "q.csv").write_text('place\nab\n"ab "\nab  cd\n')
    assert byheart("predict", "m", "--input", "q.csv").output.split() == ["1", "2", "4"]


def test_a_first_line_of_codes_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    for written in ("00501,NY\n02139,MA\n", "2024-01-31,a\n2024-02-01,b\n"):
        path.write_text(written)
        for command in ("deploy", "memorize"):
            arguments = [command, str(path), "-o", str(tmp_path / "made")]
            refused = CliRunner().invoke(commands, arguments, standalone_mode=False).exception
            assert isinstance(refused, TableError) and str(refused).endswith("add: --no-header")
    path.write_text("zip5,state\n02139,MA\n00501,NY\n")
    assert CliRunner().invoke(commands, ["deploy", str(path), "-o", str(tmp_path / "m.onnx")]).exit_code == 0
