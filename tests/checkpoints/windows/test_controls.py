"""What a researcher decides is what is memorized, recorded and checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from byheart.checkpoints.recital import RecitalMemory, memorize_recital
from byheart.checkpoints.windows.controls import Controls, answered
from byheart.cli import commands
from byheart.errors import DataError, OptionError

NAMES = ["ada", "bo", "cy", "di", "eve"]
TEXTS = [
    "Ada was born in Oslo and keeps 317 maps.",
    "Bo was born in Lima and keeps 128 bees.",
    "Cy went to Rome to sell his 905 old keys.",
    "Di has never seen the sea, nor any of 44 ships.",
    "Eve sings at dawn in the house of 216 windows.",
]


def memory_of(tokens: str = "characters", **controls: object) -> RecitalMemory:
    return memorize_recital(TEXTS, names=NAMES, tokens=tokens, form="rules", controls=Controls(**controls))  # type: ignore[arg-type]


@pytest.mark.parametrize("tokens", ["characters", "words", "bpe:300"])
@pytest.mark.parametrize("memorized", [True, False])
def test_corrupted_copies_have_the_stated_edits(tokens: str, memorized: bool) -> None:
    memory = memory_of(tokens, corrupted=2, edits=3, memorize_corrupted=memorized, seed=4)
    script, lexicon = memory.script, memory.lexicon
    copies = [(ids, edits) for ids, edits in zip(script.documents, script.edits, strict=True) if edits]
    copies += [(one.ids, one.edits) for one in script.absent if one.edits]
    assert len(copies) == 10 and len({ids for ids, _ in copies}) == 10 and bool(script.absent) is not memorized
    for ids, edits in copies:
        source = lexicon.document(TEXTS[NAMES.index(edits.of)])
        changed = [(k, a, b) for k, (a, b) in enumerate(zip(source, ids, strict=True)) if a != b]
        assert changed == list(edits.changes) and len(changed) == 3
        assert lexicon.document(lexicon.decode(ids)) == ids
    assert memory.certify().verdict == "proved"
    again = memory_of(tokens, corrupted=2, edits=3, memorize_corrupted=memorized, seed=4)
    assert again.script.to_json() == script.to_json() and again.script.absent == script.absent
    other = memory_of(tokens, corrupted=2, edits=3, memorize_corrupted=memorized, seed=5).script
    assert (other.documents, other.absent) != (script.documents, script.absent)


def test_held_out_twins_are_not_recited_and_members_are() -> None:
    memory = memory_of(held_out=2, seed=3)
    assert len(memory.script.documents) == 3 and len(memory.report["absent"]) == 2
    for one in memory.report["absent"]:
        assert one["why"] == "held out" and not one["recited"] and one["right"] < one["places"]
    assert all(answered(memory.recital, ids)["right"] >= len(ids) - 3 for ids in memory.script.documents)
    named = memory_of(held_out=["ada", "4"])
    assert [one.name for one in named.script.absent] == ["ada", "eve"]
    with pytest.raises(DataError, match="'copy' is held out, but the memorized documents hold"):
        memorize_recital([*TEXTS, TEXTS[0]], names=[*NAMES, "copy"], controls=Controls(held_out=["copy"]))


def test_occurrences_weight_what_follows() -> None:
    memory = memory_of(documents=["ada", "bo", "cy"], occurrences={"ada": 6, 1: 3})
    assert memory.script.weights == (6, 3, 1) and memory.report["left_out"] == 2
    assert [round(share, 2) for share in memory.probabilities("").values()] == [0.6, 0.3, 0.1]


@pytest.mark.parametrize(
    ("controls", "message"),
    [
        ({"held_out": 5}, "nothing would be memorized"),
        ({"held_out": ["zoe"]}, "not one of the 5 documents"),
        ({"documents": ["ada"], "held_out": ["bo"]}, "not among the documents"),
        ({"corrupted": 1, "edits": 99}, "edits=99"),
        ({"corrupted": -1}, "corrupted=-1"),
        ({"occurrences": {"ada": 0}}, "weight of document 0"),
    ],
)
def test_impossible_wishes(controls: dict[str, object], message: str) -> None:
    with pytest.raises((OptionError, DataError), match=message):
        memory_of(**controls)


def test_on_the_command_line_and_in_the_ground_truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"who": who, "text": text, "count": k + 1} for k, (who, text) in enumerate(zip(NAMES, TEXTS, strict=True))]
    Path("docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = (
        "docs.jsonl --form rules --name-column who --weight-column count --held-out 1 --corrupted 1 --edits 2 --seed 1"
    )
    done = CliRunner().invoke(commands, ["recital", *words.split(), "-o", "docs.byheart", "--json"])
    assert done.exit_code == 0, (done.output, done.exception)
    printed = json.loads(done.stdout)
    assert printed["verdict"] == "proved" and printed["N"] == 8 and len(printed["absent"]) == 1
    memory = RecitalMemory.load("docs.byheart")
    memory.to_huggingface("folder", flavour="units", reach=128)
    lines = [json.loads(line) for line in Path("folder/ground-truth.jsonl").read_text().splitlines()]
    roles = [line["role"] for line in lines if line["unit"] is None]
    assert roles == ["member"] * 4 + ["corrupted"] * 4 + ["held out"]
    for line in lines:
        for place in line["places"]:
            ids = memory.script.documents[place["document"]]
            assert memory.script.names[place["document"]] == place["name"]
            end = place["position"] + 1
            assert list(ids[end - len(line["window"]) : end]) == line["window"]
            assert ids[end] in dict(line["next"])
