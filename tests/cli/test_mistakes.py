"""Mistakes of the first hour, one by one: the message names the fault and the remedy, in one line, with status 2."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import click
import pytest
from click import ClickException
from click.testing import CliRunner

import byheart
from byheart.cli import commands
from byheart.errors import ByheartError

CAPITALS = "country,capital\nFrance,Paris\nPeru,Lima\nJapan,Tokyo\n"

# arguments, words that the message must have
MISTAKES = [
    (["memorize"], "Missing argument 'DATA'"),
    (["memorise", "t.csv"], "there is no command 'memorise'; did you mean 'memorize'?"),
    (["waltz"], "there are fixture, suite, diagnose, recite, recital"),
    (["memorize", "T.csv"], "there is no file 'T.csv'; did you mean 't.csv'?"),
    (["memorize", "data/t.csv"], "there is no file 'data/t.csv', and no folder 'data'"),
    (["memorize", "-"], "standard input is empty; it needs a row"),
    (["memorize", "folder"], "is a folder without a Hugging Face data set; give a file in it"),
    (["memorize", "t.csv", "-o", "nowhere/m"], "there is no folder 'nowhere'; make it first"),
    (["memorize", "t.csv", "-o", "folder"], "it is a folder; name a file in it"),
    (["memorize", "t.csv", "--label-column", "Capital"], "did you mean 'capital'?"),
    (["memorize", "t.csv", "--sequence-column", "land"], "it has 'country', 'capital'"),
    (["memorize", "t.csv", "--tokens", "letters"], "known: auto, json, characters"),
    (["memorize", "t.csv", "--tokens", "bpe"], "write bpe:SIZE"),
    (["memorize", "t.csv", "--tokens", "integers"], "line 2: 'France' is not a whole number; choose other --tokens"),
    (["memorize", "t.csv", "--tokens", "none.json"], "there is no file 'none.json'"),
    (["memorize", "t.csv", "--task", "classification"], "next-token"),
    (["memorize", "t.csv", "--task", "seq-to-seq"], "a JSON list with one label per token"),
    (["memorize", "t.csv", "--pad", "_"], "needs max_length"),
    (["memorize", "t.csv", "--max-length", "0"], "0 is not in the range x>=1"),
    (["memorize", "twice.csv", "--tokens", "bytes"], "--conflicts first, majority or drop"),
    (["memorize", "t.csv", "--conflicts", "keep"], "majority"),
    (["memorize", "t.csv", "--construction", "kompakt"], "known: "),
    (["memorize", "twice.csv", "--construction", "kompakt"], "unknown construction"),  # before anything is read
    (["memorize", "t.csv", "--option", "abstain"], "must be key=value"),
    (["memorize", "t.csv", "--option", "abstain=8"], "abstain_bits"),
    (["memorize", "t.csv", "--option", "abstain_bits=many"], "abstain_bits"),
    (["memorize", "t.csv", "--option", "abstain_bits=99"], "must lie in 0..40"),
    (["memorize", "twice.csv"], "row 0 is twice.csv, line 2; row 1 is twice.csv, line 3"),
    (["memorize", "order.csv", "--no-positions"], "if order matters, turn positions on (--positions)"),
    (["memorize", "sheet.xlsx"], "save the sheet as CSV"),
    (["memorize", "t.csv.gz"], "leave the ending off if it is not compressed"),
    (["memorize", "packed.csv"], "its name must end in .gz"),
    (["memorize", "latin.csv"], "--encoding cp1252"),
    (["memorize", "one.csv"], "no label column: it has 'country'; add a column with the labels"),
    (["memorize", "empty.csv"], "is empty; it needs a row"),
    (["memorize", "uneven.csv"], "no line has as many cells as there are columns (line 2 has 3, the columns are 2)"),
    (["memorize", "poem.txt"], "--task causal"),
    (["memorize", "t.csv", "--page-length", "-3"], "--page-length does not apply to rows of a table"),
    (["memorize", "poem.txt", "--task", "causal", "--no-positions"], "does not apply to one long text"),
    (["memorize", "poem.txt", "--task", "causal", "--max-rows", "3"], "--max-rows does not apply to one long text"),
    (["memorize", "poem.txt", "--task", "causal", "--conflicts", "first"], "--conflicts does not apply"),
    (["memorize", "poem.txt", "--task", "causal", "--page-length", "-3"], "a page needs at least one token"),
    (["memorize", "poem.txt", "--construction", "recital", "--max-rows", "1"], "does not apply to a recital"),
    (["memorize", "t.csv", "--construction", "recital", "--task", "set"], "--task does not apply to a recital"),
    (["memorize", "t.csv", "--construction", "madden24", "--page-length", "9"], "does not apply to documents"),
    (["memorize", "t.csv", "--construction", "madden24", "--no-positions"], "does not apply to documents"),
    (["verify", "t.csv", "m.byheart"], "t.csv: this is not a byheart memory"),
    (["verify", "m.byheart", "m.byheart"], "is a memory, not data"),
    (["verify", "m.byheart"], "Missing argument 'DATA'"),
    (["predict", "m.byheart"], "give SEQUENCEs or --input DATA"),
    (["predict", "m.byheart", "Perü"], "memorize with abstain_bits=16 to get `unknown` for such rows"),
    (["predict", "m.byheart", "Francefrance"], "no memorized row has more than"),
    (["predict", "m.byheart", "Peru", ""], "the query, sequence 2 is empty"),
    (["predict", "m.byheart", "--input", "none.txt"], "there is no file 'none.txt'"),
    (["predict", "t.csv", "Peru"], "give a file that `byheart memorize` wrote"),
    (["predict", "docs.decoder", "x"], "this is a decoder of an older byheart, whose format is no longer read"),
    (["recite", "m.byheart"], "only causal memories recite"),
    (["report", "m.byheart", "order.csv"], "is not the data that m.byheart was built from"),
    (["report", "m.byheart", "-o", "nowhere/r.html"], "there is no folder 'nowhere'"),
    (["export", "m.byheart", "--to", "keras", "-o", "x"], "onnx"),
    (["constructions", "ks26"], "known: "),
    (["paper", "Theorem 99"], "known: "),
    (["bounds", "--N", "-3"], "N"),
    (["bounds", "--N", "10", "--task", "x"], "next-token"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("mistakes")
    (path / "folder").mkdir()
    files = {
        "t.csv": CAPITALS,
        "twice.csv": "country,capital\nPeru,Lima\nPeru,Cusco\n",
        "order.csv": "country,capital\nabc,1\nbac,2\n",
        "sheet.xlsx": b"PK\x03\x04",
        "t.csv.gz": CAPITALS,
        "packed.csv": gzip.compress(CAPITALS.encode()),
        "latin.csv": "country,capital\nPerú,Lima\n".encode("latin-1"),
        "one.csv": "country\nPeru\n",
        "empty.csv": "",
        "uneven.csv": "country,capital\nUS,Washington, D.C.\n",
        "short.csv": "country,capital\nPeru,Lima\nJapan\n",
        "docs.decoder": "byheart decoder 1\n00",
        "poem.txt": "a rose is a rose\n",
    }
    for name, content in files.items():
        (path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    arguments = ["memorize", str(path / "t.csv"), "-o", str(path / "m.byheart"), "--construction", "ks25", "--quiet"]
    assert CliRunner().invoke(commands, arguments).exit_code == 0
    return path


@pytest.mark.parametrize(("arguments", "words"), MISTAKES, ids=[" ".join(a) for a, _ in MISTAKES])
def test_the_message_helps(arguments, words, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = {path.name for path in folder.rglob("*")}
    result = CliRunner().invoke(commands, arguments, standalone_mode=False)
    error = result.exception
    assert isinstance(error, ByheartError | ClickException), result.output
    message = error.format_message() if isinstance(error, ClickException) else str(error)
    assert words in message
    assert "\n" not in message and len(message) < 420
    assert {path.name for path in folder.rglob("*")} == before, "nothing was written"


def all_flags(command: click.Command, context: click.Context) -> set[str]:
    own = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    if not isinstance(command, click.Group):
        return own
    parts = (command.get_command(context, name) for name in command.list_commands(context))
    return own.union(*(all_flags(part, context) for part in parts if part is not None))


def test_messages_name_flags_that_exist():
    """A remedy with a flag that no command has is worse than none."""
    known = all_flags(commands, click.Context(commands)) | {"--help", "--version"}
    # of `python -m tools.pages`, of pip, and of the plugin of pytest
    others = {"--check", "--upgrade", "--byheart-engine", "--byheart-dtype"}
    package = Path(byheart.__file__).parent
    named = {
        (path.name, flag)
        for path in package.rglob("*.py")
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", path.read_text(encoding="utf-8"))
    }
    assert {(name, flag) for name, flag in named if flag not in known | others} == set()


def test_repeated_names_and_uneven_lines_are_read_alike(tmp_path, monkeypatch):
    """`memorize` refused both; `deploy` names columns apart and skips lines on request."""
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("size,size,kind\nab,cd,x\nab,ce,y\nab\nac,cd,z\na,b,c,d\n")
    refusals, readings = [], []
    for command in (["memorize", "t.csv", "--construction", "ks25"], ["deploy", "t.csv"]):
        refused = CliRunner().invoke(commands, command, standalone_mode=False).exception
        assert isinstance(refused, ByheartError)
        refusals.append(str(refused).split("\n", 1)[1])
        done = CliRunner().invoke(commands, [*command, "--uneven", "drop"], standalone_mode=False)
        assert done.exit_code == 0, done.output
        readings.append(next(line for line in done.output.splitlines() if "-> label" in line))
        assert "2 lines" in done.output or "uneven" in done.output
    assert refusals[0] == refusals[1] and "line 4 has 1, line 6 has 4" in refusals[0]
    assert readings[0] == readings[1] and "'size', 'size (2)' -> label 'kind'" in readings[0]
