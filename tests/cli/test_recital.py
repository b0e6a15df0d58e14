"""byheart recital prints a summary of absent documents, not a line for each."""

import json

from click.testing import CliRunner

from byheart.cli import commands, recital


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
