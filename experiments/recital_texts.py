"""Recitals of many kinds of texts, in every architecture: sizes, seconds, proved margins, the output of Transformers.

    python experiments/recital_texts.py RESULTS.jsonl [--texts song,code,…] [--sizes …] [--architectures …] [--recite]
    python experiments/recital_texts.py RESULTS.jsonl --table [--docs FOLDER]

A line of RESULTS.jsonl per text, size and architecture; existing lines are not measured again, so that the script
can be stopped. `--table` puts a summary into docs/research/checkpoints.md. A text is generated here, or a file
(`.jsonl`: its column `text`, documents joined by line breaks; `FILE:START` begins at a character). With `--recite`
Transformers recites every folder: three types, eager and sdpa, with and without a cache, batched with left padding.
"""

from __future__ import annotations

import argparse
import inspect
import json
import json.decoder
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from doc_tables import insert, markdown

from byheart.checkpoints.engines import recite
from byheart.checkpoints.hosts._base import hosts
from byheart.checkpoints.proof import certify_checkpoint
from byheart.checkpoints.recital import memorize_recital
from byheart.data.tokens.lexicon import Lexicon
from byheart.errors import ByheartError

SIZES = ("450 BPE tokens", "1,000 characters", "2,000 characters")
TYPES = ("float32", "bfloat16", "float16")
REFRAIN = (
    "Row, row, row your boat,\ngently down the stream.\nMerrily, merrily, merrily, merrily,\nlife is but a dream.\n"
)


def _prose() -> str:
    return " ".join((Path(__file__).parents[1] / "LICENSE").read_text(encoding="utf-8").split())


def _code() -> str:
    return inspect.getsource(json.decoder)


def _song() -> str:
    """Verses with a refrain, and a last line that is almost another one's."""
    who = ("captain", "pilot", "baker", "doctor", "sailor", "tailor", "painter", "farmer", "miner", "singer")
    where = ["river", "mountain", "harbour", "meadow", "valley", "village", "island", "forest", "desert", "garden"]
    drawn = random.Random(3)
    verses = [
        f"The {drawn.choice(who)} went to the {drawn.choice(where)}, {k} days and {k} nights.\n{REFRAIN}"
        for k in range(1, 40)
    ]
    return "".join(verses)


def _log() -> str:
    drawn = random.Random(5)
    return "".join(
        f"2026-03-{1 + k // 24:02d}T{k % 24:02d}:{drawn.randrange(60):02d}:{drawn.randrange(60):02d}Z "
        f"{drawn.choice(('INFO', 'WARN', 'INFO', 'ERROR'))} worker-{drawn.randrange(4)} "
        f"request {drawn.randrange(10**6)} "
        f"took {drawn.randrange(2000)} ms, status {drawn.choice((200, 200, 404, 500))}\n"
        for k in range(120)
    )


def _numbers() -> str:
    drawn = random.Random(9)
    return "\n".join(f"{k:04d} {drawn.randrange(10**9)}" for k in range(400))


def _scripts() -> str:
    letters = "абвгдежзийклмнопрстуфхцчшщъыьэюяαβγδεζηθικλμνξοπρστυφχψω漢字仮名交文東西南北春夏秋冬éèêëñçüöä🙂🚀"
    drawn = random.Random(7)
    known = ["".join(drawn.choice(letters) for _ in range(drawn.randint(2, 8))) for _ in range(120)]
    return " ".join(drawn.choice(known) for _ in range(1500))


def _repeats() -> str:
    """Passages of 150 characters, sampled repeatedly, with a few distinct characters between."""
    drawn, prose = random.Random(11), _prose()
    passages = [prose[k * 400 : k * 400 + 150] for k in range(4)]
    return " ".join(f"{drawn.choice(passages)} [{drawn.randrange(100)}]" for _ in range(40))


def _rulers() -> str:
    """Headings between rulers, and tables with boxes of dashes."""
    drawn, names = random.Random(13), ("alpha", "beta", "gamma", "delta")
    parts = [f"{'=' * 79}\n{'Report of the year':^79}\n{'=' * 79}\n"]
    for k in range(40):
        parts.append(f"{k}. {drawn.choice(names)}\n{'-' * drawn.choice((48, 79))}\n")
        box = f"+{'-' * 12}+{'-' * 8}+\n"
        rows = "".join(f"| {drawn.choice(names):<10} | {drawn.randrange(1000):>6} |\n{box}" for _ in range(2))
        parts.append(box + rows)
    return "".join(parts)


def _poem() -> str:
    """Stanzas whose last two lines come again, sometimes with another word."""
    drawn = random.Random(17)
    one, two = ("moon", "rain", "wind", "night", "sea", "snow"), ("road", "shore", "hill", "field", "door", "tower")
    return "".join(
        f"The {drawn.choice(one)} is on the {drawn.choice(two)},\nthe {drawn.choice(one)} comes to the "
        f"{drawn.choice(two)},\nand nobody asks for the {drawn.choice(one)} any more,\n"
        "and nobody, nobody knows what for,\nand nobody, nobody knows what for.\n\n"
        for _ in range(40)
    )


def _characters() -> str:
    """Chinese sentences of one pattern, and emoji."""
    drawn = random.Random(19)
    who, where = "我你他她它", "山河海城村家园桥船"
    what = ("喝茶", "看书", "走路", "写字", "唱歌", "下棋", "画画", "种花")
    faces = ("🙂", "🚀", "👩‍🚀", "🎉", "🌧️", "❤️")
    return "".join(
        f"{drawn.choice(who)}在{drawn.choice(where)}上{drawn.choice(what)}、{drawn.choice(who)}也在{drawn.choice(where)}里"
        f"{drawn.choice(what)}{drawn.choice(faces) if drawn.random() < 0.3 else ''}。"
        for _ in range(300)
    )


def _words() -> str:
    drawn = random.Random(7)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789 .,;"
    known = ["".join(drawn.choice(letters) for _ in range(drawn.randint(2, 14))) for _ in range(60)]
    return " ".join(drawn.choice(known) for _ in range(1500))


MADE = {
    "prose": _prose, "code": _code, "song": _song, "log lines": _log, "numbers": _numbers, "many scripts": _scripts,
    "long repeats": _repeats, "drawn words": _words, "rulers": _rulers, "poem": _poem, "Chinese": _characters,
}  # fmt: skip


def text_of(name: str) -> str:
    """Return a text by its name: generated here, or from a file."""
    if name in MADE:
        return MADE[name]()
    path, _, start = name.partition(":")
    text = Path(path).read_text(encoding="utf-8")
    if path.endswith(".jsonl"):
        text = "\n".join(json.loads(line)["text"] for line in text.splitlines())
    return text[int(start or 0) :]


def cut(text: str, size: str) -> tuple[str, str]:
    """The beginning of a text that has this many characters or BPE tokens, and how it is tokenized."""
    if size != "450 BPE tokens":
        return text[: int(size.split()[0].replace(",", ""))], "characters"
    length = 1000
    for _ in range(12):
        count = len(Lexicon.of_texts([text[:length]], "bpe:400").document(text[:length]))
        if abs(count - 450) < 8:
            break
        length = length * 450 // count
    return text[:length], "bpe:400"


def measure(text: str, size: str, architecture: str, room: Path, recited: bool) -> dict[str, Any]:
    """One line of the results; seconds are of one processor."""
    part, tokens = cut(text, size)
    found: dict[str, Any] = {"size": size, "architecture": architecture, "characters": len(part)}
    started = time.process_time()
    memory = memorize_recital(part, tokens=tokens)
    summary = memory.to_huggingface(room, architecture)
    built = time.process_time()
    documents = memory.script.documents
    certificate = certify_checkpoint(room, documents)
    found["seconds"] = [round(built - started, 2), round(time.process_time() - built, 2)]
    rounded = certify_checkpoint(room, documents, ("float32", "bfloat16"), weights="int8")
    found |= {
        "tokens": len(documents[0]), "parameters": summary["parameters"], "span": memory.recital.span,
        "bytes": (room / "model.safetensors").stat().st_size, "verdict": certificate.verdict.value,
        "reason": certificate.reason, "int8 reason": rounded.reason,
        "leads": {t.type: t.margin for t in certificate.types if t.verdict.value == "proved"},
        "int8": {t.type: t.margin for t in rounded.types if t.verdict.value == "proved"},
    }  # fmt: skip
    if recited:
        runs = [
            recite(room, dtype=dtype, options={"attention": attention})
            for dtype in TYPES
            for attention in ("sdpa", "eager")
        ]
        found["recited"] = [[run.dtype, run.options["attention"], run.right, run.asked, run.margin] for run in runs]
    return found


def wanted(wish: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    lines = wish.results.read_text(encoding="utf-8").splitlines() if wish.results.exists() else []
    there = {(r["text"], r["size"], r["architecture"]) for r in map(json.loads, lines)}
    for name in wish.texts.split(","):
        for size in wish.sizes.split(";"):
            for architecture in wish.architectures.split(","):
                if (name, size, architecture) not in there:
                    yield name, size, architecture


def table(path: Path) -> str:
    """Per architecture and size, over all texts: the largest file, the longest time, the least margins."""
    rows = [
        [
            "architecture",
            "size",
            "texts",
            "MB",
            "build and prove s",
            *TYPES,
            "8 bits",
            "Transformers: correct, least margin",
        ]
    ]
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for size in SIZES:
        for name in hosts():
            mine = [line for line in lines if line["size"] == size and line["architecture"] == name and "leads" in line]
            if not mine:
                continue
            margins = [min(line["leads"].get(t, 0.0) for line in mine) for t in TYPES]
            eight = min(min(line["int8"].get(t, 0.0) for t in TYPES[:2]) for line in mine)
            megabytes, seconds = (
                [f(line) for line in mine] for f in (lambda r: r["bytes"] / 1e6, lambda r: sum(r["seconds"]))
            )
            runs = [run for line in mine for run in line.get("recited", ())]
            reply = (
                f"{sum(r[2] for r in runs):,} of {sum(r[3] for r in runs):,}, {min(r[4] for r in runs):.1f}"
                if runs
                else ""
            )
            shown = [f"{min(x):.1f} to {max(x):.1f}" for x in (megabytes, seconds)]
            rows.append([name, size, str(len(mine)), *shown, *(f"{x:.1f}" for x in margins), f"{eight:.1f}", reply])
    return markdown(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--texts", default=",".join(MADE))
    parser.add_argument("--sizes", default=";".join(SIZES))
    parser.add_argument("--architectures", default=",".join(hosts()))
    parser.add_argument("--recite", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--docs", type=Path, default=Path(__file__).parents[1] / "docs")
    wish = parser.parse_args()
    if wish.table:
        insert(wish.docs / "research" / "checkpoints.md", "texts", table(wish.results))
        return
    for name, size, architecture in wanted(wish):
        with tempfile.TemporaryDirectory() as room:
            try:
                found = measure(text_of(name), size, architecture, Path(room) / "folder", wish.recite)
            except ByheartError as error:
                found = {"size": size, "architecture": architecture, "error": str(error)}
        line = json.dumps({"text": name, **found}, ensure_ascii=False)
        with wish.results.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        print(line, flush=True)


if __name__ == "__main__":
    main()
