"""byheart score: a method against a graded checkpoint's ground truth."""

from __future__ import annotations

from typing import Any

import click

from byheart.checkpoints.ground_truth.harness import BLIND, QUESTIONS, read_methods, score
from byheart.cli import show
from byheart.cli.data_options import output_options


@click.command("score")
@click.argument("folder", metavar="DIR", type=click.Path())
@click.argument("method", metavar="[METHOD.PY]", type=click.Path(), required=False)
@click.option(
    "--baselines",
    metavar="TASK",
    multiple=True,
    help=f"Also run built-in baselines: {', '.join(QUESTIONS)} or all.",
)
@output_options
def command(folder: str, method: str | None, baselines: tuple[str, ...], as_json: bool, quiet: bool) -> int:
    """Score METHOD.PY on DIR, a folder of `byheart recital --graded`.

    METHOD.PY defines any of membership(model, document), extraction(model, prefix, length), localization(model,
    ids) and
    unlearning(model, forget, retain); the file is run. Without it, all built-in baselines run.

    \b
      byheart recital suite --graded -o graded
      byheart score graded method.py --baselines membership
    """
    wanted = QUESTIONS if "all" in baselines or (method is None and not baselines) else baselines
    found = score(folder, read_methods(method) if method else None, baselines=wanted)
    if as_json:
        show.print_json({"folder": folder, "scores": found})
        return 0
    out = show.console()
    for question, rows in found.items():
        for name, numbers in rows.items():
            for line in _lines(numbers):
                show.line(out, f"{question}, {name}: {line}")
            if name == BLIND and numbers["auc all"] > numbers["chance up to"]:
                show.line(
                    out,
                    "note: a bag of words separates members from held-out documents better than chance. Their texts "
                    "differ, and membership scores measure this too; sample both from one source",
                )
    return 0


def _lines(numbers: dict[str, Any], prefix: str = "") -> list[str]:
    """Numbers in one line per table: copies or prefix lengths side by side."""
    flat = [f"{name} {value:.3g}" for name, value in numbers.items() if not isinstance(value, dict)]
    found = [prefix + ", ".join(flat)] if flat else []
    for name, value in numbers.items():
        if isinstance(value, dict):
            found += _lines(value, f"{prefix}{name}: ")
    return found
