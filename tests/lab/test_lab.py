"""`byheart lab` from outside: runs, tables, pictures, and errors with a remedy."""

import csv
import json

import pytest
from click.testing import CliRunner

pytest.importorskip("optuna", reason="needs byheart[lab]")

from byheart.cli.lab import command as lab
from byheart.errors import ByheartError, OptionError
from byheart.lab import presets
from tests.lab.small import search, write_rows


@pytest.fixture
def tiny(monkeypatch):
    """A preset that trains in a second."""
    preset = presets.Preset("tiny", "A tiny search", lambda scale: search())
    monkeypatch.setitem(presets.PRESETS, "tiny", preset)


def call(*words, **options):
    return CliRunner().invoke(lab, [str(word) for word in words], catch_exceptions=False, **options)


def answer(*words):
    result = call(*words, "--json")
    assert result.exit_code == 0
    return json.loads(result.stdout)


def test_run_status_export_plot(tiny, tmp_path):
    folder = tmp_path / "out"
    found = answer("run", "tiny", "--output", folder, "--executor", "serial", "--processes", 1, "--seed", 2)
    assert found["done"] and len(found["minima"]) == 2 and found["preset"] == "tiny"
    assert {"table.csv", "minima.csv", "records.jsonl", "minimum.png", "minimum.svg", "bits.svg", "report.html"} <= set(
        found["files"]
    )
    rows = list(csv.DictReader((folder / "table.csv").read_text(encoding="utf-8").splitlines()))
    assert [int(row["size"]) for row in rows] == [row["size"] for row in found["rows"]]
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page and "src=" not in page and "<link" not in page and "<script" not in page

    status = answer("status", folder)
    assert status["rows"] == found["rows"] and status["states"] == {"complete": found["finished"]}
    assert "done" in call("status", folder, "--watch").output

    for name in ("trials.csv", "trials.parquet", "trials.jsonl"):
        assert answer("export", folder, "-o", tmp_path / name)["rows"] == found["finished"]
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(tmp_path / "trials.parquet")
    assert {"fingerprint", "seed", "rate", "version_byheart", "seconds"} <= set(table.column_names)
    records = [json.loads(line) for line in (tmp_path / "trials.jsonl").read_text(encoding="utf-8").splitlines()]
    assert all(record["outcome"]["curve"] for record in records)

    (folder / "table.csv").unlink()
    again = answer("resume", folder, "--no-plots")
    assert again["rows"] == found["rows"] and again["finished"] == found["finished"]
    assert "table.csv" in again["files"] and (folder / "table.csv").exists()  # tables need no pictures
    assert not any(name.endswith((".png", ".html")) for name in again["files"])
    drawn = answer("plot", folder, "--no-constructed", "--output", tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere/minimum.svg").exists() and "minimum.png" in drawn["files"]


def test_words_and_curves(tmp_path, monkeypatch):
    from byheart.lab.problem import ProblemSpec

    def curves(scale):
        spec = ProblemSpec("mnli", 12, 4, d=5)
        return search(kind="curves", problems=(spec,), sizes=(1, 3), epochs=60, trials=2, full=True, preset="words")

    monkeypatch.setitem(presets.PRESETS, "words", presets.Preset("words", "Words", curves))
    data = write_rows(tmp_path)
    common = ("run", "words", "--executor", "serial", "--data-folder", data, "--no-constructed")
    found = answer(*common, "--output", tmp_path / "fixed")
    assert [row["trials"] for row in found["rows"]] == [2, 2] and "curves.png" in found["files"]
    other = answer(*common, "--output", tmp_path / "trained", "--embedding", "trained")
    assert other["rows"][0]["parameters"] > found["rows"][0]["parameters"]
    text = call(*common, "--output", tmp_path / "fixed").output
    assert "#blocks" in text and "report.html" in text


def test_decoders_and_gaps(tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="needs byheart[lab]")
    from byheart.lab.problem import ProblemSpec
    from byheart.lab.study.experiment import Space

    lines = ["once there was a cat", "once there was a dog", "a dog ran home .", "the cat ran home ."]
    text = "".join(json.dumps({"text": line}) + "\n" for line in lines)
    (tmp_path / "tinystories.jsonl").write_text(text, encoding="utf-8")

    def grid(scale):
        specs = (ProblemSpec("tinystories", 2, 5), ProblemSpec("tinystories", 4, 5))
        space = Space(rate=(0.02, 0.02))
        return search(preset="grid", kind="grid", problems=specs, sizes=(2, 8), epochs=40, trials=1, batch=1,
                      model="decoder", full=True, space=space)  # fmt: skip

    monkeypatch.setitem(presets.PRESETS, "grid", presets.Preset("grid", "Grid", grid))
    found = answer("run", "grid", "--executor", "serial", "--data-folder", tmp_path, "--output", tmp_path / "out")
    assert len(found["rows"]) == 4 and {"gap.png", "gap.svg"} <= set(found["files"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "ks25-fig9"), "unknown preset 'ks25-fig9'; known: ks25-fig1, "),
        (("run", "ks25-fig1", "--scale", "huge"), "unknown scale 'huge'; known: small, medium, paper"),
        (("run", "ks25-fig1", "--embedding", "fixed:x"), "write fixed:32"),
        (("run", "ks25-fig1", "--engine", "turbo"), "unknown engine 'turbo'; known: auto, kernel, "),
        (("run", "ks25-length", "--embedding", "trained"), "has no meaning for ks25-length"),
        (("run", "ks25-length", "--storage", "postgresql://127.0.0.1:9/x"), "cannot reach the storage"),
        (("run", "ks25-fig1", "--data", "missing.jsonl"), "there is no file 'missing.jsonl'"),
        (("worker", "--storage", "study.journal"), "not the address of a database"),
        (("resume", "nowhere"), "does not hold a laboratory run"),
        (("status", "nowhere"), "does not hold a laboratory run"),
        (("plot", "nowhere"), "does not hold a laboratory run"),
    ],
)
def test_bad_input(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    more = ("--executor", "serial") if words[0] == "run" else ()
    with pytest.raises(ByheartError) as caught:
        call(*words, *more)
    assert message in str(caught.value)


def test_exports_that_are_none(tiny, tmp_path):
    answer("run", "tiny", "--output", tmp_path / "out", "--executor", "serial", "--no-plots")
    with pytest.raises(OptionError, match=r"end the name in \.csv, \.parquet or \.jsonl"):
        call("export", tmp_path / "out", "-o", tmp_path / "trials.xlsx")
    with pytest.raises(OptionError, match="there is no folder"):
        call("export", tmp_path / "out", "-o", tmp_path / "nowhere/trials.csv")
    with pytest.raises(OptionError, match="cannot make the folder"):
        call("run", "tiny", "--output", tmp_path / "out/settings.json/x")
    (tmp_path / "out/settings.json").write_text("{")
    with pytest.raises(ByheartError, match=r"cannot read .*settings\.json"):
        call("status", tmp_path / "out")
