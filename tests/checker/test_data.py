"""Both checkers on real tables: types, missing cells, contradictions, lists, long rows, texts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner

from byheart.cli import commands
from tests.checker.asked import first, second

COUNTS = ("rows", "asked", "agree", "differ", "left_out")


@dataclass(frozen=True)
class Scenario:
    """A table, how it is memorized, and how often it is then queried, with which flags and what exit status."""

    name: str
    text: str
    memorize: str = ""
    asked: dict[str, int] = field(default_factory=lambda: {"": 0})
    other: str | None = None  # another table to ask

    def __str__(self) -> str:
        return self.name


def lines(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


ZIP = "name,zip\nholtsville,00501\nnewyork,10001\nplus,+7\n"
TORN = "text,label\nab,x\nab,y\nab,x\nba,y\n"
HOLES = "text,label\nab,x\n,y\nba,\nbb,z\n"
FORK = lines({"text": "a b"}, {"text": "a c"})
EACH, M24 = "--task seq-to-seq", "--construction madden24"
SCENARIOS = [
    Scenario("zip.csv", ZIP, "", {"": 0, "--label-type int": 1, "--label-type str": 0}),
    Scenario("zip_int.csv", ZIP, "--label-type int", {"": 2, "--label-type int": 0, "--label-type auto": 1}),
    Scenario("other.csv", ZIP, "", {"": 1}, ZIP.replace("10001", "10002")),
    Scenario("part.csv", ZIP, "", {"": 0}, "name,zip\nnewyork,10001\n"),
    Scenario("more.csv", ZIP, "", {"": 1}, ZIP + "albany,12207\n"),
    Scenario("long.csv", ZIP, "", {"": 1}, ZIP + "a much longer name,12207\n"),
    Scenario("rows.csv", ZIP, "--max-rows 1", {"": 1, "--max-rows 1": 0}),
    Scenario("first.csv", TORN, "--conflicts first", {"": 1, "--conflicts first": 0, "--conflicts majority": 0}),
    Scenario("majority.csv", TORN, "--conflicts majority", {"": 1, "--conflicts majority": 0}),
    Scenario("dropped.csv", HOLES, "--missing drop", {"": 2, "--missing drop": 0}),
    Scenario("null.csv", HOLES, "--missing label", {"": 0, "--missing label": 0, "--missing drop": 0}),
    Scenario("words.csv", "text,label\nto be,1\nbe to,2\n", "--tokens words"),
    Scenario("lists.csv", 'text,label\n"[1, 2]",a\n"[2, 1.0]",b\n"[""x"", true]",c\n'),
    Scenario("named.jsonl", lines(*({"t": [0.1 * k, k % 3], "y": k % 2} for k in range(9))), "--construction native"),
    Scenario("named_otherwise.jsonl", lines({"t": [0.1, 1], "y": 0}, {"t": [0.7, -0.0], "y": 1}),
             "--construction native",
             {"": 0}, lines({"t": [0.1, 1.0], "y": 0}, {"t": [0.7, 0], "y": 1})),
    Scenario("labelled.jsonl", FORK, M24, {"": 2, "--sequence-column text": 0},
             FORK.replace("}", ', "label": "x"}')),
    Scenario("cut.csv", "text,label\na b c,1\nb a c,2\n", "--tokens words --max-length 2"),
    Scenario("fill.csv", "text,label\na b c,1\na,2\n", "--tokens words --max-length 2 --pad #"),
    Scenario("columns.csv", "a,b,y\n1,2,x\n01,2,z\n", "--sequence-column a --sequence-column b", {
        "--sequence-column a --sequence-column b --label-column y": 0,
    }),
    Scenario("all.csv", "a,b,y\n1,2,x\n01,2,z\n", "--sequence-column *", {"--sequence-column * --label-column y": 0}),
    Scenario("typed.csv", "a,b,y\n1,2,x\n3,2,z\n", "--sequence-column * --token-type int", {
        "--sequence-column * --label-column y": 0,
    }),
    Scenario("bare.csv", "cat,red\ndog,blue\n", "--no-header", {"--no-header": 0}),
    Scenario("types.jsonl", lines(*({"x": [k], "y": y} for k, y in enumerate([1, 1.5, True, "1", 2**70, -0.0, 0.0])))),
    Scenario("tokens.jsonl", lines(*({"x": [x, "t"], "y": k} for k, x in enumerate([1, 1.0, True, "1", 2**70, -0.0])))),
    Scenario("vectors.jsonl", lines({"x": [[0.1, 2]], "y": 1}, {"x": [[0.1, 2], [3, 1e-3]], "y": 2})),
    Scenario("lone.jsonl", lines({"x": 0.5, "y": 1}, {"x": 2, "y": 2})),
    Scenario("each.jsonl", lines({"x": "abc", "y": [1, 2, 3]}, {"x": "ba", "y": [None, 1]}), f"{EACH} --missing drop", {
        "": 2, "--missing drop": 0, "--missing label": 1,
    }),
    Scenario("none.jsonl", lines({"x": "abc", "y": [1, 2, 3]}, {"x": "ba", "y": [2, 1]}), f"{EACH} --missing label", {
        "--missing drop": 0, "": 2, "--missing label": 2,
    }, lines({"x": "abc", "y": [1, 2, 3]}, {"x": "ba", "y": None})),
    Scenario("torn.jsonl", lines({"x": "ab", "y": 1}, {"x": "cd", "y": 1}, {"x": "cd", "y": 2}), "--conflicts drop", {
        "--conflicts drop": 0, "": 1,
    }),
    Scenario("nested.jsonl", lines({"x": "ab", "y": 1}, {"x": "cd", "y": 1}), "", {"": 2},
             lines({"x": "ab", "y": 1}, {"x": "cd", "y": [1]})),
    Scenario("object.jsonl", lines({"x": ["a"], "y": 1}, {"x": ["b"], "y": 1}), "", {"": 2},
             lines({"x": ["a"], "y": 1}, {"x": [{"b": 1}], "y": 1})),
    Scenario("gone.csv", "text,label\nab,1\n", "", {"": 2, "--missing drop": 2}, "text,label\nab,\n"),
    Scenario("labels.jsonl", lines({"x": "abc", "y": [1, 2, "3"]}, {"x": "ba", "y": [2, 1]}), "--task seq-to-seq"),
    Scenario("long.jsonl", lines({"x": "abc", "y": [1, 2, 3]}, {"x": "ba", "y": [2, 1]}), f"{EACH} --max-length 2", {
        "--max-length 2": 0, "": 1,
    }),
    Scenario("next.csv", "text\nabcab\nbca\n", "--task causal"),
    Scenario("next_cut.csv", "text\nabcab\nbca\n", "--task causal --max-length 2", {"--max-length 2": 0, "": 1}),
    Scenario("answers.jsonl", lines({"x": "ab", "y": ["b", "!"]}, {"x": "b", "y": ["c"]}), "--task causal"),
    Scenario("sets.csv", "text,label\nab,1\nba,1\nabb,2\n", "--task set"),
    Scenario("bags.csv", "text,label\nabc,1\nbac,1\nbca,2\n", "--no-positions"),
    Scenario("bytes.csv", "text,label\né,1\ne\u0301,2\n", "--tokens bytes"),
    Scenario("stories.txt", "a cat sat\n\nno\na cat ran [1]\n[1, 2]\n", M24, {"": 0, "--gap 1e-12": 1}),
    Scenario("stories.csv", 'id,story\n1,a cat sat\n2,""\n3,a cat ran\n', f"{M24} --missing drop", {
        "": 2, "--missing drop": 0, "--missing label": 0,
    }),
    Scenario("cut.jsonl", lines({"text": "a b c d"}, {"text": ["a", "c", 7]}), f"{M24} --max-length 3", {
        "": 1, "--max-length 3": 0, "--max-length 2": 0, "--max-length 3 --max-rows 1": 1,
    }),
    Scenario("given.jsonl", lines(*({"context": "a b"[:k], "next": {"b": k, "c": 0.5}} for k in (1, 3))), M24),
    Scenario("more.jsonl", FORK, M24, {"": 1}, FORK.replace("c", "d")),
    Scenario("less.jsonl", FORK, M24, {"": 1}, FORK.replace("c", "b")),
    Scenario("classes.csv", "text,label\na b,1\nb a,2\nb b,1\n", f"{M24} --task next-token --tokens words"),
    Scenario("book.txt", "a rose is a rose is a rose\n", "--task causal --page-length 8", {"": 0}),
    Scenario("page.txt", "to be or not\nto be", "--task causal --page-length 8", {"": 1}, "to be or not\nto see"),
]  # fmt: skip


def memorized(scenario: Scenario, folder: Path) -> Path:
    (folder / scenario.name).write_text(scenario.text)
    quick = (
        "compact" if "causal" in scenario.memorize else "ks25-sets" if "set" in scenario.memorize.split() else "ks25"
    )
    arguments = ["memorize", str(folder / scenario.name), "-o", str(folder / "m.byheart"), "--construction", quick]
    result = CliRunner().invoke(commands, [*arguments, *scenario.memorize.split()], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return folder / "m.byheart"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_both_count_alike(scenario, tmp_path):
    file, data = memorized(scenario, tmp_path), tmp_path / scenario.name
    if scenario.other is not None:
        data.write_text(scenario.other)
    for flags, status in scenario.asked.items():
        one, two = first(file, data, *flags.split()), second(file, data, *flags.split())
        if "--part" in str(one.reply.get("reason")):  # the second checker proves answers alone
            one = first(file, data, *flags.split(), "--part")
        assert one.status == two.status == status, (flags, one, two)
        if one.reply:
            assert [one.reply[name] for name in COUNTS] == [two.reply[name] for name in COUNTS], flags
            assert one.reply["left_out_by"] == two.reply["left_out_by"]


NO_TABLES = ["", "text,label\n", "text,text\na,b\n", "text,label\na\n", "text,label\na,\n", 'text,label\n"a,b\n']


@pytest.mark.parametrize("text", NO_TABLES)
def test_neither_proves_what_is_not_a_table(text, tmp_path):
    file = memorized(Scenario("rows.csv", TORN, "--conflicts first"), tmp_path)
    (tmp_path / "rows.csv").write_text(text)
    assert first(file, tmp_path / "rows.csv").status == 2
    assert second(file, tmp_path / "rows.csv").status == 2
