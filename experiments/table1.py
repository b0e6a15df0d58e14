"""Table 1 on real and random data: the tables and pictures of docs/research/table1.md.

    python experiments/table1.py [--time-limit 120] [--sizes 100,300,1000,3000] [--only data|growth]

The real data ships with Python: the 252 entity names of HTML 4 (`html.entities`), labelled with the Unicode category of
their character. The growth is measured on random vectors, n = 8 and d = 8 with one label per row, n = 4 and d = 4 with
one label per token.
"""

from __future__ import annotations

import argparse
import unicodedata
from html.entities import name2codepoint
from pathlib import Path

from doc_tables import insert

from byheart.data.dataset.dataset import load
from byheart.memory.compare.comparison import compare, compare_growth, random_dataset
from byheart.memory.compare.rows import Comparison, gentle_bits, gentle_growth, growth_exponents
from byheart.report.compare_page import picture_file

DOCS = Path(__file__).parent.parent / "docs"
COLUMNS = ("parameters", "nonzero", "max_bits", "total_bits", "depth", "width", "attention_layers")
HEADINGS = ("parameters", "nonzero", "longest, bits", "all, bits", "depth", "width", "attention layers")


def entity_table(time_limit: float) -> Comparison:
    names = sorted(name2codepoint)
    labels = [unicodedata.category(chr(name2codepoint[name])) for name in names]
    return compare(load(names, labels), time_limit=time_limit, memory_gb=8)


def markdown(comparison: Comparison) -> str:
    """The comparison as a Markdown table, with the bounds underneath."""
    c = comparison
    lines = [
        f"{c.N} rows of at most {c.n} tokens, {c.C} classes, {c.contexts} contexts, task {c.task}.",
        "",
        "| construction | " + " | ".join(HEADINGS) + " | seconds | verdict |",
        "|---|" + "---:|" * (len(HEADINGS) + 1) + "---|",
    ]
    for row in c.rows:
        mark = "~" if row.verdict == "predicted" else ""
        cells = ["" if getattr(row, f) is None else f"{mark}{getattr(row, f):,}" for f in COLUMNS]
        seconds = "" if row.build_seconds is None else f"{row.build_seconds + (row.certify_seconds or 0):.1f}"
        balls = row.verdict == "proved" and "enclosures" in row.arithmetic
        verdict = "proved by balls" if balls else row.verdict
        if row.assumption:
            verdict += f": {row.assumption}" + (f" (rows {', '.join(map(str, row.rows))})" if row.rows else "")
        lines.append(f"| `{row.construction}` | {' | '.join(cells)} | {seconds} | {verdict} |")
    lines.append("")
    lines += [f"- {row.construction}: {note}" for row in c.rows for note in row.waived]
    lines += [f"- {sentence}" for sentence in c.lower]
    return "\n".join(lines)


def growth_markdown(parts: list[Comparison]) -> str:
    """Parameters at every size and the exponent, construction by construction."""
    slopes, bits = growth_exponents(parts), growth_exponents(parts, "total_bits")
    names = list(dict.fromkeys(row.construction for part in parts for row in part.rows if row.verdict != "baseline"))
    sizes = " | ".join(f"N = {part.N:,}" for part in parts)
    lines = [f"| construction | {sizes} | parameters grow like | bits grow like |"]
    lines.append("|---|" + "---:|" * (len(parts) + 2))
    for name in names:
        cells = []
        for part in parts:
            row = next((r for r in part.rows if r.construction == name), None)
            known = row is not None and row.parameters is not None
            cells.append(f"{'~' if row.verdict == 'predicted' else ''}{row.parameters:,}" if known else "")
        if any(cells):
            found = [f"N^{table[name]:.2f}" if name in table else "" for table in (slopes, bits)]
            lines.append(f"| `{name}` | {' | '.join(cells)} | {' | '.join(found)} |")
    reasons = [*gentle_growth(parts).items(), *gentle_bits(parts).items()]
    lines += ["", *(f"- `{name}`: {why}." for name, why in reasons)]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--time-limit", type=float, default=120.0)
    parser.add_argument("--sizes", default="100,300,1000,3000")
    parser.add_argument("--only", choices=["data", "growth"])
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    if arguments.only != "growth":
        insert(DOCS / "research" / "table1.md", "table 1", markdown(entity_table(arguments.time_limit)))
    if arguments.only == "data":
        return
    for task, n, d in (("next-token", 8, 8), ("seq-to-seq", 4, 4)):
        parts = compare_growth([random_dataset(N, n, d, 2, task) for N in sizes], time_limit=arguments.time_limit)
        insert(DOCS / "research" / "table1.md", f"growth {task}", growth_markdown(parts))
        for quantity in ("parameters", "total_bits"):
            path = DOCS / "pictures" / f"table1-{task}-{quantity.replace('_', '-')}.svg"
            picture_file(parts, quantity, path)
            print(f"wrote {path.name}", flush=True)


if __name__ == "__main__":
    main()
