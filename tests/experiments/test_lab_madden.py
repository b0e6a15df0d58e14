"""M24's Figure 1: the picture's data are the notebook's tables, and the tables agree with each other."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
sys.path.append(str(DOCS.parent / "experiments"))

import lab_madden  # noqa: E402

TEXT = (DOCS / "research" / "lab.md").read_text(encoding="utf-8")


def test_every_cell_is_there():
    rows, entropies, built = lab_madden.figure_data(TEXT)
    assert len(rows) == 80 and len(entropies) == 10 and len(built) == 50
    assert len({(row.x, row.size) for row in rows}) == 80


def test_least_neurons_and_parameters_follow_from_the_cells():
    rows, _, _ = lab_madden.figure_data(TEXT)
    for cells in lab_madden.table_after(TEXT, lab_madden.SIZES):
        documents, least, parameters = (
            lab_madden.whole(cells[0]),
            lab_madden.whole(cells[4]),
            lab_madden.whole(cells[5]),
        )
        first = min((row for row in rows if row.x == documents and row.memorized), key=lambda row: row.size)
        assert (first.size, first.parameters) == (least, parameters), documents


def test_every_cell_of_the_seeds_was_run():
    seeds = lab_madden.table_after(TEXT, "| documents | m | seed 0 | seed 1 | seed 2 |")
    found = {(row.x, row.size): row for row in lab_madden.figure_data(TEXT)[0]}
    assert {tuple(cells[:2]) for cells in seeds} >= {("100", "16"), ("100", "32"), ("200", "16"), ("200", "32")}
    for documents, m, first, *others in seeds:
        assert found[int(documents), int(m)].memorized == first.endswith("steps")
        assert all(cell.endswith(("steps", "%")) for cell in others) and len(others) == 2


def test_the_page_repeats_the_notebook():
    """docs/lab-results.md has some rows and columns: documents, contexts, least m, trained and fewest parameters."""
    notebook = [(*row[:2], *row[4:6], row[6], row[8]) for row in lab_madden.table_after(TEXT, lab_madden.SIZES)]
    page = (DOCS / "lab-results.md").read_text(encoding="utf-8")
    rows = lab_madden.table_after(page, "| documents | contexts: here, M24")
    assert len(rows) == 5
    for documents, contexts, least, parameters, fewest in rows:
        trained, theirs = parameters.split(", ")
        assert (documents, contexts, least, trained, theirs, fewest) in notebook
