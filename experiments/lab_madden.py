"""The picture of M24's Figure 1 from the tables of docs/research/lab.md: `python experiments/lab_madden.py [PICTURE]`.

The cells were run one by one, over many days, and no study of all of them was kept: the notebook's tables are the data.
Gaps of runs that ended early are drawn where they ended, at one percent of the entropy.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from byheart.lab.comparison import Built
from byheart.lab.presets.madden24 import least_neurons
from byheart.lab.results import Row
from byheart.plots.lab import grid_figure
from byheart.plots.style import save

DOCS = Path(__file__).parents[1] / "docs"
BELOW = 0.01 - 1e-6  # of the entropy: where a run that memorizes ends
SIZES, CELLS = "| documents | contexts: here, M24 | words: here", "Steps until the gap was below 1 %"
# Column of the table of sizes -> name and kind of a line of the right half.
LINES = (
    (None, "any distributions (Madden et al., Lemma 1)", "lower"),
    (10, "one-layer decoder (Madden et al., Theorem 5)", "upper"),
    (9, "closed form", "constructed"),
    (7, "shared outputs", "constructed"),
    (8, "fewest parameters", "constructed"),
)


def table_after(text: str, start: str) -> list[list[str]]:
    """Cells of the rows of the first Markdown table at or after `start`, without its two lines of headings.

    >>> table_after("x | a | b |\\n|---|---|\\n| 1 | 2 |\\n\\nend", "x")
    [['1', '2']]
    """
    body = text[text.index(start) :]
    rows = body[body.index("|---") :].split("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def whole(cell: str) -> int:
    """The first whole number of a cell."""
    found = re.match(r"[\d,]+", cell)
    if found is None:
        raise ValueError(f"{cell!r} does not begin with a number")
    return int(found[0].replace(",", ""))


def figure_data(text: str) -> tuple[list[Row], dict[str, float], list[Built]]:
    """Rows, entropies and lines of the figure.

    Args:
        text: the notebook docs/research/lab.md.

    Returns:
        One row per cell that was run, the entropy of every subset in nats per token, and the sizes beside the trained.
    """
    neurons = least_neurons("paper").sizes
    gaps = {whole(documents): cells for documents, *cells in table_after(text, CELLS)}
    rows, entropies, built = [], {}, []
    for cells in table_after(text, SIZES):
        documents, contexts, words = (whole(cell) for cell in cells[:3])
        name, entropy = f"{documents} documents", float(cells[3])
        entropies[name] = entropy
        for m, cell in zip(neurons, gaps[documents], strict=True):
            if not cell:
                continue
            memorized = cell.endswith("steps")
            gap = BELOW if memorized else float(cell.rstrip(" %")) / 100
            steps = whole(cell) if memorized else 50_000
            size = words * (m + 17) + 17 * m + 1088  # 16 numbers per word, biases in Q, K, V, O and both layers
            rows.append(Row(name, documents, 0, m, size, 1, memorized, entropy * (1 + gap), 0.0, steps, 1e-4, 0.0))
        for column, line, kind in LINES:
            parameters = contexts * (words - 1) if column is None else whole(cells[column])
            built.append(Built(name, line, kind, parameters, verdict="proved"))
    return rows, entropies, built


def main(path: Path) -> None:
    rows, entropies, built = figure_data((DOCS / "research" / "lab.md").read_text(encoding="utf-8"))
    save(grid_figure(least_neurons("paper"), rows, entropies, built), path)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "pictures" / "lab-madden.png")
