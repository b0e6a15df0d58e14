"""What the live page's JavaScript builds, without a browser: every network of it is proved by byheart."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

import byheart
from byheart.report.live_page import FIVE, LIMITS, render

TEMPLATES = Path(byheart.__file__).parent / "report" / "templates"
HOSTILE = [
    ("<b>", "</script>"),
    ("a,b", 'x"y'),
    ("é😀", "ü\u2028ü"),
    ("aé", "<img src=x onerror=alert(1)>"),
    ("b", "1"),
]


@cache
def terms() -> dict:
    """What a page carries for writing guarantees."""
    page = render(byheart.memorize(["a"], ["x"], construction="ks25", progress=False))
    return json.JSONDecoder().raw_decode(page[page.index('"terms":') + len('"terms":') :])[0]


DRIVER = """
const tables = JSON.parse(require("fs").readFileSync(0, "utf8")), out = [];
for (const { rows: typed, kind, terms, limits } of tables) {
  const tokens = { kind, max_length: null, pad: null };
  const cutter = exactly({ network: { layers: [] }, encoder: { symbols: [] }, classes: [], tokens });
  const read = readRows(typed.map(([word, label]) => ({ word, label })), cutter.tokensOf, limits);
  if (read.problem) { out.push({ problem: read.problem, at: read.at }); continue; }
  const built = buildMemory(read.rows), { network, encoder, classes } = built;
  const engine = exactly({ network, encoder, classes, tokens });
  const agree = read.rows.filter((row) => engine.evaluate(row.tokens).answers[0] === row.label).length;
  const file = memoryFile(built, kind, agree, terms);
  out.push({ file, agree, remarks: read.remarks, parameters: sizeOf(network).parameters });
}
console.log(JSON.stringify(out));
"""


def build_in_node(tables, kind="characters"):
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here")
    script = "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in ("exact.js", "build.js", "file.js"))
    questions = [{"rows": rows, "kind": kind, "terms": terms(), "limits": LIMITS} for rows in tables]
    done = subprocess.run([node, "-e", script + DRIVER], input=json.dumps(questions), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def drawn_table(count: int, classes: int, letters: str, longest: int, seed: int = 1) -> list[tuple[str, str]]:
    """Words and labels that look random and are the same everywhere."""
    state, found = seed, {}
    while len(found) < count:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        length = 1 + (state >> 40) % longest
        word = "".join(letters[(state >> (3 * k + 5)) % len(letters)] for k in range(length))
        found[word] = f"l{(state >> 33) % classes}"
    return list(found.items())


TABLES = [
    list(FIVE),
    [("a", "only")],
    HOSTILE,
    [("aa", "1"), ("a", "2"), ("aaa", "3")],
    [("stop", "a"), ("post", "b"), ("spot", "c"), ("opts", "d"), ("pots", "e"), ("tops", "f")],
    drawn_table(40, 2, "abc", 6),
    drawn_table(12, 12, "abcdefgh", 4),
    drawn_table(30, 32, "abcdefgh", 5),
]


def test_what_is_built_here_is_proved_by_byheart(tmp_path):
    for rows, made in zip(TABLES, build_in_node(TABLES), strict=True):
        path = tmp_path / "words.byheart"
        path.write_text(made["file"], encoding="ascii", newline="")
        memory = byheart.load(path)
        words, labels = zip(*rows, strict=True)
        assert made["agree"] == len(rows) and memory.predict(list(words)) == list(labels)
        certificate = memory.verify(list(words), list(labels))
        assert (certificate.verdict, certificate.guarantee, certificate.remarks) == ("proved", "kept", ()), rows
        assert memory.certificate.verdict == "undecided", "a page gives no verdict"
        assert made["parameters"] == memory.size.parameters
        assert memory.verify([*words], ["other", *labels[1:]]).verdict == "refuted"


def test_words_as_tokens_and_the_second_checker(tmp_path):
    rows = [("to be or", "a"), ("or to be", "b"), ("not  to", "a"), ("be", "c")]
    (made,) = build_in_node([rows], "words")
    (tmp_path / "words.byheart").write_text(made["file"], encoding="ascii", newline="")
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": t, "label": y}) + "\n" for t, y in rows))
    checker = Path(__file__).parents[2] / "checker" / "check.py"
    done = subprocess.run(["python3", checker, tmp_path / "words.byheart", tmp_path / "t.jsonl"], capture_output=True)
    assert done.returncode == 0 and done.stdout.startswith(b"answers proved"), done.stdout + done.stderr


@pytest.mark.slow
def test_many_tables_are_proved(tmp_path):
    tables = [
        drawn_table(n, c, "abcdefghij"[: 2 + n % 9], 7, n * c) for n in (2, 3, 9, 60, 150, 300) for c in (2, 5, 32)
    ]
    for rows, made in zip(tables, build_in_node(tables), strict=True):
        (tmp_path / "m").write_text(made["file"], encoding="ascii", newline="")
        words, labels = zip(*rows, strict=True)
        certificate = byheart.load(tmp_path / "m").verify(list(words), list(labels))
        assert (certificate.verdict, certificate.guarantee, certificate.remarks) == ("proved", "kept", ()), len(rows)


def test_wrong_rows_are_explained():
    wrong = [
        [("a", "1"), ("b", "2"), ("a", "2")],
        [("a", "1"), ("b", " ")],
        [("", "1")],
        [("", ""), (" ", "")],
        [('["a"]', "1")],
        [("a" * 25, "1")],
        [("a", "1" * 61)],
        [(f"{k}", f"{k}") for k in range(33)],
        [("a", "1"), ("a", "1"), ("b", "2")],
    ]
    found = build_in_node(wrong)
    said = [(one.get("at"), one.get("problem", "")) for one in found]
    assert said[0][0] == 2 and "Rows 1 and 3 are both “a”" in said[0][1] and "one input, one answer" in said[0][1]
    assert said[1] == (1, "Row 2, “b”, has no label. Type one, or remove the row.")
    assert "no word" in said[2][1] and "nothing to memorize" in said[3][1] and "square brackets" in said[4][1]
    assert "25 tokens" in said[5][1] and "longer than 60" in said[6][1] and "32 different labels" in said[7][1]
    assert found[8]["remarks"] == ["row 2 equals row 1 and is counted once"] and found[8]["agree"] == 2


def test_sizes_grow_like_a_root():
    """What the slider marks: networks of 25 and 200 rows; 8 times the rows, well below 8 times the parameters."""
    few, many = build_in_node([drawn_table(n, 2, "abcdefgh", 5) for n in (25, 200)])
    assert few["agree"] == 25 and many["agree"] == 200
    assert many["parameters"] < 4 * few["parameters"]
