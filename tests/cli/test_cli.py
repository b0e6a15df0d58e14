"""The command line as a person uses it: files in, verdicts out, exit codes, one line for what goes wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from byheart.cli import COMMANDS, commands, main

TABLE = "name,colour\ncat,red\nact,blue\ndog,red\n"


def run(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """byheart in its own process, as `main` runs it."""
    code = "import sys; from byheart.cli import main; sys.argv[0] = 'byheart'; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], input=stdin, capture_output=True, text=True, check=False
    )


@pytest.fixture
def failing(monkeypatch, capsys):
    """What `main` prints to standard error before it ends with status 2, in this process."""

    def run_here(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["byheart", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        return capsys.readouterr().err

    return run_here


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    return path


@pytest.fixture
def saved(table, tmp_path):
    path = tmp_path / "table.byheart"
    result = CliRunner().invoke(commands, ["memorize", str(table), "-o", str(path), "--construction", "ks25", "--json"])
    assert result.exit_code == 0, result.output
    return path, json.loads(result.stdout)


def test_memorize_prints_one_json_object(saved):
    path, printed = saved
    wanted = "construction task N n d C contexts verdict parameters nonzero max_bits total_bits width depth blocks"
    assert set(wanted.split()) <= set(printed) and {"build_seconds", "certify_seconds", "file"} <= set(printed)
    assert (printed["N"], printed["n"], printed["C"], printed["verdict"], printed["file"]) == (
        3,
        3,
        2,
        "proved",
        str(path),
    )
    assert printed["columns"] == {"sequence": "name", "label": "colour"}


def test_people_see_a_table(table, tmp_path):
    result = CliRunner().invoke(commands, ["memorize", str(table), "-o", str(tmp_path / "m"), "--construction", "ks25"])
    assert result.exit_code == 0
    assert "proved: 3 labels of 3 rows" in result.output and "guaranteed" in result.output


def test_predict_and_verify(saved, table):
    path, _ = saved
    asked = CliRunner().invoke(commands, ["predict", str(path), "act", '["d", "o", "g"]'])
    assert asked.output.split() == ["blue", "red"]
    printed = CliRunner().invoke(commands, ["predict", str(path), "act", "--json"])
    assert json.loads(printed.output)["labels"] == ["blue"]
    again = run("verify", str(path), str(table))
    assert again.returncode == 0 and again.stdout.startswith("proved")


def test_verify_refuses_other_data(saved, tmp_path):
    path, _ = saved
    other = tmp_path / "other.csv"
    other.write_text(TABLE.replace("act,blue", "act,red"))
    result = run("verify", str(path), str(other), "--json")
    printed = json.loads(result.stdout)
    assert result.returncode == 1 and printed["verdict"] == "refuted" and "row 1" in printed["reason"]


def test_standard_input(tmp_path):
    rows = "\n".join(json.dumps({"tokens": [k, k + 1], "label": k % 2}) for k in range(5))
    result = run("memorize", "-", "-o", str(tmp_path / "m"), "--construction", "ks25", "--json", stdin=rows)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["N"] == 5
    asked = run("predict", str(tmp_path / "m"), "--input", "-", stdin="[3, 4]\n[2, 3]\n")
    assert asked.stdout.split() == ["1", "0"]


@pytest.mark.parametrize(
    ("content", "arguments", "words"),
    [
        ("name,colour\ncat,red\ncat,blue\n", [], "row 0 and row 1"),
        ("", [], "empty"),
        ("name,colour\n", [], "no rows"),
        ("name,colour\ncat\n", [], "line 2"),
        ("name,colour\ncat,red\n", ["--label-column", "size"], "'size'"),
        ("name,colour\ncat,red\n", ["--construction", "nope"], "known:"),
        ("name,colour\ncat,red\n", ["--construction", "ks25", "--option", "form"], "key=value"),
        ("name,colour\ncat,red\n", ["--construction", "ks25", "--option", "form=oval"], "one of"),
    ],
)
def test_bad_input_is_one_line_and_status_2(tmp_path, failing, content, arguments, words):
    path = tmp_path / "t.csv"
    path.write_text(content)
    said = failing("memorize", str(path), "-o", str(tmp_path / "m"), *arguments)
    assert words in said and said.count("\n") == 1 and "Traceback" not in said
    assert not (tmp_path / "m").exists()


def test_missing_files(failing):
    for arguments in (
        ["memorize", "nowhere.csv"],
        ["predict", "nowhere.byheart", "a"],
        ["verify", "nowhere", "nowhere"],
    ):
        said = failing(*arguments)
        assert "nowhere" in said and "Traceback" not in said


def test_constructions_and_paper(failing):
    listed = CliRunner().invoke(commands, ["constructions", "--json"])
    assert "ks25" in json.loads(listed.output)
    found = CliRunner().invoke(commands, ["paper", "Lemma G.4", "--json"])
    entry = json.loads(found.output)["entries"][0]
    assert entry["module"] == "byheart.build.ks25.memorizer" and entry["test"].startswith("tests/")
    assert "Lemma G.4" in failing("paper", "Lemma Z.9")


def test_every_command_has_help():
    for name in COMMANDS:
        assert CliRunner().invoke(commands, [name, "--help"]).exit_code == 0


@pytest.mark.parametrize("label", ["Theorem 4.1", "Thm 4.1", "thm. 4.1", "KS25, Theorem 4.1", "ks25 thm 4.1"])
def test_papers_labels_as_people_write_them(label: str) -> None:
    shown = CliRunner().invoke(commands, ["paper", label]).stdout
    assert "single attention layer" in shown and "--construction ks25" in shown and "build_ks25" in shown


def here(*arguments):
    found = CliRunner().invoke(commands, list(map(str, arguments)), standalone_mode=False)
    assert found.exception is None, found.exception
    return found


def test_a_memory_of_a_table_refuses_unknown_rows(tmp_path):
    """README's first pair answered XX with Haiti."""
    table = tmp_path / "codes.csv"
    table.write_text("code,country\nFR,France\nPE,Peru\nJP,Japan\nHT,Haiti\n")
    made = here("memorize", table, "-o", tmp_path / "codes.byheart")
    assert "input 'code' -> label 'country' (the last column" in made.output
    assert re.search(r"abstain_bits=16\); that needs \d+ of \d+ parameters \(measured\)", made.output)
    assert here("predict", tmp_path / "codes.byheart", "HT", "XX", "HJ").output.split() == [
        "Haiti",
        "unknown",
        "unknown",
    ]
    here("memorize", table, "-o", tmp_path / "all.byheart", "--option", "abstain_bits=0")
    assert json.loads(here("predict", tmp_path / "all.byheart", "HT", "--json").stdout)["recognises_unknown"] is False
