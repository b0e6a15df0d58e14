"""The tables and the picture of docs/research/checkpoints.md.

    python experiments/checkpoints.py [engines] [mutants] [picture] [--arch NAME] [--docs FOLDER]

`engines`: every installed engine recites the fixture of the built-in text, in every type it has. `mutants`: every
architecture against the table, the two lists that are kept apart and the list of parts (two minutes of a processor
each). `picture`: one window's way through a Llama. Both tables end with the commit that they were measured at.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import decoder_parts
import held_out_faults
from doc_tables import insert, markdown

import byheart
from byheart.checkpoints.engines import engines, read_queries, recite
from byheart.checkpoints.engines.expected import check_logits
from byheart.checkpoints.hosts._base import hosts
from byheart.checkpoints.suite.expected import expected
from byheart.checkpoints.suite.mutants import check_mutants, mutants_of, reported
from byheart.checkpoints.suite.write import fixture_memory
from byheart.errors import ByheartError
from byheart.plots.memory import way_figure
from byheart.plots.style import save

RUNS: tuple[tuple[str, str, tuple[str, ...], dict[str, str]], ...] = (
    ("transformers", "parabola", ("float32", "bfloat16", "float16"), {}),
    ("onnxruntime", "parabola", ("float32", "float16"), {}),
    ("llama.cpp", "parabola", ("F32", "F16", "BF16", "Q8_0"), {}),
    ("llama.cpp", "parabola", ("F16", "Q8_0"), {"flash": "on", "cache": "Q8_0"}),
    ("llama.cpp", "quantized", ("Q8_0", "Q5_0", "Q5_1", "Q4_0", "Q4_1"), {}),
    ("ctranslate2", "parabola", ("float32",), {}),
    ("ctranslate2", "quantized", ("int8",), {}),
    ("mlx", "parabola", ("float32", "bfloat16", "float16"), {}),
    ("openvino", "parabola", ("float32",), {}),
    ("vllm", "parabola", ("bfloat16",), {}),
)

TO_THE_END = ("llama.cpp", "onnxruntime", "ctranslate2")  # the others decode 96 tokens per prompt, to save time


def shows_logits(engine: str, dtype: str, options: dict[str, str]) -> bool:
    """Engines that give the logits of every position, and types that hold the checkpoint's numbers as they are."""
    return engine in ("transformers", "onnxruntime", "ctranslate2", "mlx") and "int8" not in dtype and not options


def engine_table(room: Path) -> str:
    rows = [["engine", "type", "flavour, settings", "correct", "least margin (nats)", "logits off by (nats)"]]
    folders = {flavour: room / flavour for flavour in ("parabola", "quantized")}
    for flavour, folder in folders.items():
        write_unproved(folder, "llama", flavour=flavour)
    for name, flavour, types, options in RUNS:
        engine = engines()[name]
        for dtype in types if engine.version else ():
            described = ", ".join([flavour, *(f"{k} {v}" for k, v in options.items())])
            try:
                limit = None if name in TO_THE_END else 96
                found = recite(folders[flavour], name, dtype=dtype, options=options, limit=limit)
            except ByheartError as error:
                rows.append([f"{name} {engine.version}", dtype, described, str(error), "", ""])
                continue
            shown = f"{found.margin:.2f}" if found.passed and found.margin is not None else ""
            share = f"{found.right:,} of {found.asked:,}"
            off = f"{check_logits(folders[flavour], name, dtype):.4f}" if shows_logits(name, dtype, options) else ""
            share = share if found.passed else f"**{share}**"
            rows.append([f"{name} {engine.version}", dtype, described, share, shown, off])
            print(rows[-1], flush=True)
    return markdown(rows) + made_at()


def made_at() -> str:
    commit = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=True)
    return f"\n\nMade with byheart {byheart.__version__} at commit {commit.stdout.strip()}."


def mutant_tables(room: Path, names: list[str]) -> Iterator[str]:
    """The tables after each architecture: a page that is read in the meantime is never empty."""
    rows = [["architecture", "faults", "incorrect tokens", "incorrect logits", "undetected",
             "harmless changes survived", "held-out faults", "detected", "reported faults", "detected", "parts",
             "covered"]]  # fmt: skip
    lists = (mutants_of, held_out_faults.mutants, reported.mutants, decoder_parts.parts)
    unnoticed: dict[str, list[str]] = {}
    for name in names:
        folder = room / name
        write_unproved(folder, name)
        table, held, seen, parts = (check_mutants(folder, mutants=mutants) for mutants in lists)
        harmless = [o for o in table.outcomes if o.harmless]
        counts = [table.total, *(table.count(v) for v in ("tokens", "logits", "survived"))]
        others = [n for report in (held, seen, parts) for n in (report.total, report.total - len(report.survivors))]
        survived = f"{len(harmless) - len(table.broken)} of {len(harmless)}"
        rows.append([name, *map(str, counts), survived, *map(str, others)])
        for kind, report in (("", table), ("held out: ", held), ("reported: ", seen), ("part: ", parts)):
            for outcome in report.survivors:
                unnoticed.setdefault(kind + outcome.name, []).append(name)
        for outcome in table.broken:
            unnoticed.setdefault(f"(breaks, although harmless) {outcome.name}", []).append(name)
        print(rows[-1], [o.name for report in (table, held, seen, parts) for o in report.survivors], flush=True)
        faults = sorted(unnoticed.items())
        listed = [["unnoticed", "architectures"], *([fault, ", ".join(names)] for fault, names in faults)]
        yield markdown(rows) + ("\n\n" + markdown(listed) if unnoticed else "") + made_at()


def write_unproved(folder: Path, name: str, **options: Any) -> None:
    """A fixture's checkpoint with its expected logits; their value without the proof is not measured here."""
    memory = fixture_memory(architecture=name)
    memory.to_huggingface(folder, name, **options)
    content = expected(folder, read_queries(folder), memory.lexicon, {}, ())
    (folder / "expected.json").write_text(json.dumps(content), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["engines", "mutants", "picture"])
    parser.add_argument("--arch", action="append", help="mutants: only this architecture")
    parser.add_argument("--docs", type=Path, default=Path(__file__).parents[1] / "docs")
    wish = parser.parse_args()
    page = wish.docs / "research" / "checkpoints.md"
    with tempfile.TemporaryDirectory() as room:
        if "engines" in wish.what:
            insert(page, "engines", engine_table(Path(room)))
        if "mutants" in wish.what:
            chosen = [name for name in hosts() if not wish.arch or name in wish.arch]
            for table in mutant_tables(Path(room), sorted(chosen, key=lambda name: name != "llama")):
                insert(page, "mutants", table)
        if "picture" in wish.what:
            folder = Path(room) / "picture"
            fixture_memory().to_huggingface(folder, "llama")
            save(way_figure(folder), wish.docs / "pictures" / "checkpoints-way.png")


if __name__ == "__main__":
    main()
