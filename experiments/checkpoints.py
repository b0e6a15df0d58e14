"""The tables and the picture of docs/checkpoints.md.

    python experiments/checkpoints.py [engines] [mutants] [picture] [--docs FOLDER]

`engines`: every installed engine recites the fixture of the built-in text, in every type it has. `mutants`: every
architecture against every mutant (a minute or more each). `picture`: one window's way through a Llama.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

from doc_tables import insert, markdown

from byheart.engines import engines, recite
from byheart.errors import ByheartError
from byheart.export.huggingface.host import hosts
from byheart.fixtures import check_mutants
from byheart.fixtures.write import fixture_memory
from byheart.plots.memory import way_figure
from byheart.plots.style import save

RUNS = (
    ("transformers", "parabola", ("float32", "bfloat16", "float16"), {}),
    ("onnxruntime", "parabola", ("float32", "float16"), {}),
    ("llama.cpp", "parabola", ("F32", "F16", "BF16", "Q8_0"), {}),
    ("llama.cpp", "parabola", ("F16",), {"flash": "on", "cache": "Q8_0"}),
    ("llama.cpp", "plateau", ("Q8_0", "Q5_0", "Q5_1", "Q4_0", "Q4_1"), {}),
    ("ctranslate2", "parabola", ("float32",), {}),
    ("ctranslate2", "plateau", ("int8",), {}),
    ("mlx", "parabola", ("float32", "bfloat16", "float16"), {}),
    ("openvino", "parabola", ("float32",), {}),
    ("vllm", "parabola", ("bfloat16",), {}),
)

TO_THE_END = ("llama.cpp", "onnxruntime", "ctranslate2")  # the others decode 96 tokens per prompt, to save time


def engine_table(room: Path) -> str:
    rows = [["engine", "type", "flavour, settings", "right", "least lead (nats)"]]
    folders = {flavour: room / flavour for flavour in ("parabola", "plateau")}
    for flavour, folder in folders.items():
        fixture_memory().to_huggingface(folder, "llama", flavour=flavour)
    for name, flavour, types, options in RUNS:
        engine = engines()[name]
        for dtype in types if engine.version else ():
            described = ", ".join([flavour, *(f"{k} {v}" for k, v in options.items())])
            try:
                limit = None if name in TO_THE_END else 96
                found = recite(folders[flavour], name, dtype=dtype, options=options, limit=limit)
            except ByheartError as error:
                rows.append([f"{name} {engine.version}", dtype, described, str(error), ""])
                continue
            lead = f"{found.margin:.2f}" if found.passed and found.margin is not None else ""
            share = f"{found.right:,} of {found.asked:,}"
            rows.append([f"{name} {engine.version}", dtype, described, share if found.passed else f"**{share}**", lead])
            print(rows[-1], flush=True)
    return markdown(rows)


def mutant_tables(room: Path) -> Iterator[str]:
    """The tables after each architecture: a page that is looked at meanwhile is never empty."""
    rows = [["architecture", "faults", "wrong tokens", "only logits", "unnoticed", "harmless changes survived"]]
    unnoticed: dict[str, list[str]] = {}
    for name in sorted(hosts(), key=lambda name: name != "llama"):
        folder = room / name
        fixture_memory().to_huggingface(folder, name)
        report = check_mutants(folder)
        harmless = [o for o in report.outcomes if o.harmless]
        counts = [report.total, *(report.count(v) for v in ("tokens", "logits", "survived"))]
        rows.append([name, *map(str, counts), f"{len(harmless) - len(report.broken)} of {len(harmless)}"])
        for outcome in report.survivors:
            unnoticed.setdefault(outcome.name, []).append(name)
        for outcome in report.broken:
            unnoticed.setdefault(f"(breaks, although harmless) {outcome.name}", []).append(name)
        print(rows[-1], flush=True)
        faults = sorted(unnoticed.items())
        listed = [["unnoticed", "architectures"], *([fault, ", ".join(names)] for fault, names in faults)]
        yield markdown(rows) + ("\n\n" + markdown(listed) if unnoticed else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["engines", "mutants", "picture"])
    parser.add_argument("--docs", type=Path, default=Path(__file__).parents[1] / "docs")
    wish = parser.parse_args()
    page = wish.docs / "checkpoints.md"
    with tempfile.TemporaryDirectory() as room:
        if "engines" in wish.what:
            insert(page, "engines", engine_table(Path(room)))
        if "mutants" in wish.what:
            for table in mutant_tables(Path(room)):
                insert(page, "mutants", table)
        if "picture" in wish.what:
            folder = Path(room) / "picture"
            fixture_memory().to_huggingface(folder, "llama")
            save(way_figure(folder), wish.docs / "pictures" / "checkpoints-way.png")


if __name__ == "__main__":
    main()
