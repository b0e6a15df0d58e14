"""byheart recital --graded and its neighbours name the mistake and the remedy."""

import json

import pytest
from click.testing import CliRunner

from byheart.cli import commands

TEXTS = [f"user {k} has pin {k * 7919 % 10007} in room {k % 13}" for k in range(12)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("graded")
    texts = [*TEXTS, TEXTS[0], TEXTS[1]]
    (place / "docs.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return place


def run(*arguments):
    return CliRunner().invoke(commands, list(arguments))


def build(folder, *options):
    return run("recital", str(folder / "docs.jsonl"), "--graded", "--tokens", "words", *options)


def test_equal_documents_and_lengths_are_printed(folder):
    done = build(folder, "--lengths", "1,3", "-o", str(folder / "g"))
    assert done.exit_code == 0, done.output
    assert "2 documents equal another one" in done.output and "contexts of 1, 3 tokens" in done.output
    assert "12 documents (14 occurrences)" in done.output
    refused = run("forget", str(folder / "g"), "document 3", "-o", str(folder / "less"))
    assert refused.exit_code != 0 and "byheart forget --exact" in str(refused.exception)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--lengths", "1,two"), "--lengths '1,two': write increasing numbers"),
        (("--lengths", "4,2"), "increasing context lengths from 1 to 32"),
        (("--dtype", "int4"), "'int4' is not one of"),
    ],
)
def test_mistakes_are_named(folder, options, words):
    refused = build(folder, *options, "-o", str(folder / "other"))
    assert refused.exit_code != 0 and words in str(refused.exception) and not (folder / "other").exists()


@pytest.mark.parametrize("option", ["arch", "storage", "lengths", "margin"])
def test_options_of_graded_checkpoints_are_not_ignored(folder, option):
    refused = run("recital", str(folder / "docs.jsonl"), f"--{option}", "1", "-o", str(folder / "x.byheart"))
    assert refused.exit_code != 0 and f"--{option} needs --graded" in str(refused.exception)


def test_too_few_units_are_noted(folder):
    done = build(folder, "--storage", "ridge:1", "-o", str(folder / "few"))
    assert done.exit_code == 0 and "too few units to store the documents" in done.output
    done = build(folder, "--storage", "ridge:1", "--strength", "1", "-o", str(folder / "given"))
    assert done.exit_code == 0 and "too few units" not in done.output


def test_the_range_of_attacks_is_printed_or_documents_are_too_few(folder):
    done = build(folder, "-o", str(folder / "alone"))
    assert "10 members with the fewest copies (1) and 0 held-out documents are too few for an AUC" in done.output
    suite = run("recital", "suite", "--graded", "-o", str(folder / "suite"), "--json")
    least, most = json.loads(suite.output)["auc"]
    assert 0.6 <= least < most <= 0.95
