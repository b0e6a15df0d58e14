"""byheart recital: the construction of `memorize` with its options as flags; absent documents are summarized."""

import json

from click.testing import CliRunner

import byheart
from byheart.cli import commands, recital


def test_recital_and_memorize_write_the_same_file(tmp_path):
    """Flags of one are options of the other, and of Python."""
    texts = [f"entry {k} is {k * 37 % 101}" for k in range(12)]
    docs = tmp_path / "docs.jsonl"
    docs.write_text("".join(json.dumps({"id": f"d{k}", "n": 1 + k % 2, "text": t}) + "\n" for k, t in enumerate(texts)))
    chosen = {"held-out": "d3,d5", "corrupted": "1", "edits": "2", "form": "rules", "occurrences": "d1=4"}
    columns = {"name-column": "id", "weight-column": "n"}
    flags = [f"--{name}={part}" for name, value in chosen.items() for part in value.split(",")]
    flags += [f"--{name}={value}" for name, value in columns.items()]
    pairs = [f"--option={name}={value}" for name, value in (chosen | columns).items()]
    for name, command in (("a", ["recital", *flags]), ("b", ["memorize", "--construction", "recital", *pairs])):
        command = [*command, str(docs), "--seed", "7", "--sequence-column", "text", "-o", str(tmp_path / name)]
        done = CliRunner().invoke(commands, command)
        assert done.exit_code == 0, done.output
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    memory = byheart.memorize(
        texts, construction="recital", form="rules", names=[f"d{k}" for k in range(12)], weights=[1, 2] * 6, seed=7,
        held_out=["d3", "d5"], corrupted=1, edits=2, occurrences={"d1": 4}, progress=False,
    )  # fmt: skip
    kept = byheart.load(tmp_path / "a").script
    assert (memory.script.to_json(), memory.script.absent_json()) == (kept.to_json(), kept.absent_json())
    refused = CliRunner().invoke(commands, ["memorize", str(docs), "--construction", "recital", "--option", "held=2"])
    assert refused.exit_code and "no option 'held'" in str(refused.exception)


def test_absent_documents_are_summarized(tmp_path):
    rows = [f"entry {k} is {k * 37 % 101} of {k * 53 % 97}" for k in range(24)]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    command = ["recital", str(tmp_path / "docs.jsonl"), "--sequence-column", "text", "--form", "rules"]
    command += ["--held-out", "4", "--corrupted", "1", "--near-misses", "-o", str(tmp_path / "docs.byheart")]
    done = CliRunner().invoke(commands, command)
    assert done.exit_code == 0, done.output
    lines = [line for line in done.output.splitlines() if line.startswith("not memorized")]
    assert [line.split(";")[0] for line in lines] == [
        "not memorized (held out): 4 documents",
        "not memorized (corrupted): 20 documents",
    ]
    kept = recital.load_recital(str(tmp_path / "docs.byheart"))
    assert kept is not None and len(kept.report["absent"]) == 24
