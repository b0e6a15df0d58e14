"""The files of a laboratory run: tables, pictures and one page, built from the study at any time."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byheart.errors import ByheartError, MissingExtraError
from byheart.files import replacing, write_atomically
from byheart.lab import results
from byheart.lab.comparison import Built, as_plain, compare, constructions_for
from byheart.lab.presets import PRESETS
from byheart.lab.problem import Documents, make_problem
from byheart.lab.study.run import DataPlace
from byheart.lab.study.study import Study
from byheart.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def publish(
    folder: Path, study: Study, data: DataPlace, plots: bool, constructed: bool, progress: Progress
) -> list[str]:
    """Write tables into the folder, and with `plots` pictures and the page; the names of what was written, and a line
    for what could not be."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = results.plain_tables(study)
    names = ["records.jsonl", "table.csv"]
    results.export_rows(study, folder / "records.jsonl")
    write_csv(folder / "table.csv", tables["rows"])
    if tables["minima"]:
        write_csv(folder / "minima.csv", tables["minima"])
        names.append("minima.csv")
    if not plots:
        return names
    built = compared(folder, study, data, constructed, progress)
    try:
        figures = draw(study, data, built)
        names += save_figures(folder, figures)
        write_atomically(folder / "report.html", page(study, figures, tables, built).encode())
        names.append("report.html")
    except MissingExtraError as error:
        names.append(f"(no pictures: {error})")
    return names


def compared(folder: Path, study: Study, data: DataPlace, constructed: bool, progress: Progress) -> list[Built]:
    """Constructed sizes and bounds for every problem, kept in constructed.json because building takes a while."""
    if study.experiment.variants:
        return []  # the same data several times: constructions do not differ
    kept = folder / "constructed.json"
    known: dict[str, list[dict[str, Any]]] = {}
    if kept.exists():
        try:
            known = json.loads(kept.read_text(encoding="utf-8"))
        except ValueError:
            known = {}  # half a file of an older program: build again
    specs = study.experiment.problems
    keys = []
    with progress.stage("comparing with constructions", total=len(specs)) as stage:
        for spec in specs:
            problem = make_problem(spec, data.file, data.folder)
            wanted = constructions_for(problem) if constructed else ()
            keys.append(key := f"{problem.fingerprint} {','.join(wanted)}")
            if key not in known:
                known[key] = as_plain(compare(problem, wanted))
                write_atomically(kept, (json.dumps(known, indent=1) + "\n").encode())
            stage.advance()
    return [Built(**line) for key in known if key in keys for line in known[key]]


def draw(study: Study, data: DataPlace, built: Sequence[Built]) -> dict[str, Figure]:
    """The preset's pictures, by file name."""
    from byheart.plots import lab as plots

    experiment, finished = study.experiment, study.finished()
    rows = results.table(experiment, finished)
    figures: dict[str, Figure] = {}
    if experiment.kind == "curves":
        figures["curves"] = plots.curves_figure(experiment, finished)
    elif experiment.variants:
        figures["variants"] = plots.variants_figure(experiment, results.minima(experiment, finished))
    elif experiment.kind == "minimum":
        figures["minimum"] = plots.minimum_figure(experiment, results.minima(experiment, finished), built)
    else:
        problems = [make_problem(spec, data.file, data.folder) for spec in experiment.problems]
        entropies = {p.name: p.entropy for p in problems if isinstance(p, Documents)}
        figures["gap"] = plots.grid_figure(experiment, rows, entropies, built)
    trained = [] if experiment.variants else trained_bits(study, data, rows)
    if trained:
        figures["bits"] = plots.bits_figure(trained, built)
    return figures


def trained_bits(study: Study, data: DataPlace, rows: Sequence[results.Row]) -> list[tuple[str, float]]:
    """Bits of labels per trained parameter: every size of a curve, the least sizes of a search."""
    experiment = study.experiment
    problems = {s.name: make_problem(s, data.file, data.folder) for s in experiment.problems}
    unit = "blocks" if experiment.model == "uniform" else "neurons"
    wanted = list(rows)
    if experiment.kind == "minimum":
        least = {(m.problem, m.size) for m in results.minima(experiment, study.finished())}
        wanted = [row for row in rows if (row.problem, row.size) in least]
    found = []
    for row in wanted:
        bits = results.stored_bits(problems[row.problem], row.loss, row.accuracy)
        if bits is not None:
            size = f"{row.size} {unit}" if row.size > 1 else f"1 {unit[:-1]}"
            found.append((f"trained, {row.problem}, {size}", bits / row.parameters))
    return found


def save_figures(folder: Path, figures: Mapping[str, Figure]) -> list[str]:
    from byheart.plots.style import save

    return [save(figure, folder / f"{name}.{kind}").name for name, figure in figures.items() for kind in ("png", "svg")]


def page(study: Study, figures: Mapping[str, Figure], tables: Mapping[str, Any], built: Sequence[Built]) -> str:
    from byheart.plots.lab import render

    experiment = study.experiment
    finished = study.finished()
    some = next(iter(finished.values()), None)
    facts = {
        "command": f"byheart lab run {experiment.preset} --scale {experiment.scale} --seed {experiment.seed}",
        "epochs, at most": experiment.epochs,
        "trials per cell, at most": experiment.trials,
        "finished trials": len(finished),
        "training time of all trials": f"{tables['seconds_of_training']:.0f} s",
        "versions": ", ".join(f"{k} {v}" for k, v in some.versions.items()) if some else "–",
        "machine": some.machine if some else "–",
    }
    sections = {
        "Least sizes": tables["minima"],
        "Cells": tables["rows"],
        "Constructed networks and bounds": as_plain(built),
    }
    title = f"{PRESETS[experiment.preset].title} ({experiment.scale})" if experiment.preset in PRESETS else study.name
    captions = {
        "curves": "Curves",
        "minimum": "Least sizes",
        "gap": "Gap to the entropy",
        "variants": "Least sizes",
        "bits": "Bits per parameter",
    }
    return render(title, facts, {captions.get(k, k): f for k, f in figures.items()}, sections)


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        raise ByheartError(f"nothing to write to {path}: no trial is finished yet")
    with replacing(path) as draft, open(draft, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
