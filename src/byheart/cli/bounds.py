"""`byheart bounds`: lower and upper bounds for a size of problem, as a table, as JSON, as a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from byheart.cli.show import console as output
from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.files import write_atomically
from byheart.theory import Architecture, Bound, LowerBound, Problem, hard_documents, lower_bound, upper_bounds
from byheart.theory.madden import HardDocuments
from byheart.theory.problem import Scope, count

_UNITS = {
    "parameters": "parameters",
    "total_bits": "bits in all",
    "max_bits": "bits per parameter",
    "points": "sequences",
}


@click.command("bounds")
@click.option("--N", "sequences", type=int, required=True, help="Sequences (sets).")
@click.option(
    "--n", "length", type=int, default=None, help="Tokens per sequence.  [default: 1, or the contexts' of --documents]"
)
@click.option(
    "--d", "dimension", type=int, default=None, help="Numbers per token.  [default: the architecture's, or 1]"
)
@click.option("--C", "classes", type=int, default=2, show_default=True, help="Classes.")
@click.option("--task", default=str(Task.NEXT_TOKEN), show_default=True, help=f"One of {', '.join(Task)}.")
@click.option("--architecture", default=None, metavar="d,m,s,H,q,L", help="Show what this Transformer cannot store.")
@click.option("--omega", type=int, default=None, help="Vocabulary: adds Madden et al. and the embedding layer.")
@click.option("--zeros", type=int, default=0, help="Further points whose output must be zero.")
@click.option("--r", type=float, default=None, help="Largest norm of a token.  [default: that of numbered symbols]")
@click.option("--delta", type=float, default=1.0, show_default=True, help="Smallest distance of two tokens.")
@click.option("--B", "limit", type=int, default=None, help="KS25's limit on bits, 1 to √N: adds Theorem F.1.")
@click.option(
    "--documents",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="With --omega: a JSON Lines file to write, N contexts with random next tokens. Almost all such documents "
    "force a smooth model to have N(ω − 1) parameters.",
)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), default=None, help="PNG, SVG or PDF to write.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    sequences: int,
    length: int | None,
    dimension: int | None,
    classes: int,
    task: str,
    architecture: str | None,
    omega: int | None,
    zeros: int,
    r: float | None,
    delta: float,
    limit: int | None,
    documents: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Print lower and upper bounds on a network that memorizes N sequences, each with its theorem.

    \b
      byheart bounds --N 10000 --n 8 --C 16
      byheart bounds --N 2000 --n 8 --C 3 --architecture 16,16,16,1,64,20 --json
      byheart bounds --N 10000 --n 8 --C 16 --plot bounds.png
      byheart bounds --N 50 --omega 10 --documents hard.jsonl
    """
    shape = None if architecture is None else Architecture.parse(architecture)
    found = None if documents is None else hard(sequences, omega)
    lower = lower_bound(
        task=task,
        N=sequences,
        n=length if length is not None else 1 if found is None else found.length,
        d=dimension,
        C=classes,
        omega=omega,
        zeros=zeros,
        architecture=shape,
        r=r,
        delta=delta,
    )
    problem = Problem(lower.task, lower.N, lower.n, lower.d, lower.C, omega, r, delta, limit)
    upper = upper_bounds(problem)
    written = None if documents is None or found is None else write_documents(documents, found)
    if plot is not None:
        draw(problem, plot)
    if as_json:
        answer = {**as_object(lower, upper, omega, plot), "documents": written}
        click.echo(json.dumps(answer, ensure_ascii=False))
    else:
        show(lower, upper, plot)
        if written is not None:
            sentence = "{file}: documents {documents:,}, contexts {contexts:,}; {meaning}"
            output().print(sentence.format(**written), highlight=False)


def hard(contexts: int, omega: int | None) -> HardDocuments:
    """The documents of M24's Theorem 1 with this many hard contexts: for models with one parameter too few."""
    if omega is None:
        raise OptionError("--documents needs --omega, the number of tokens that may follow a context")
    return hard_documents(count("N", contexts) * (omega - 1) - 1, omega)


def write_documents(path: Path, found: HardDocuments) -> dict[str, Any]:
    """Write the documents, and print the bound for almost all such documents."""
    lines = [json.dumps({"tokens": [str(token) for token in document]}) for document in found.documents]
    write_atomically(path, ("\n".join(lines) + "\n").encode("utf-8"))
    return {
        "file": str(path),
        "documents": len(found.documents),
        "contexts": found.contexts,
        "hard": found.hard,
        "forced": found.forced,
        "theorem": "M24, Theorem 1",
        "meaning": f"almost all such documents force a smooth model to have {found.forced:,} parameters or more (M24, "
        "Theorem 1, as their number grows); this is not a proof about one file",
    }


def draw(problem: Problem, path: Path) -> None:
    """Write the two pictures; matplotlib is imported only here."""
    from byheart.plots.bounds import bounds_figure
    from byheart.plots.style import check_target, save

    check_target(path)
    save(bounds_figure(problem), path)


def as_object(lower: LowerBound, upper: list[Bound], omega: int | None, plot: Path | None) -> dict[str, Any]:
    """What --json prints: the lower bound's fields, all bounds in one list."""
    found = lower.as_dict()
    found["bounds"] += [bound.as_dict() for bound in upper]
    return {**found, "omega": omega, "plot": None if plot is None else str(plot)}


def show(lower: LowerBound, upper: list[Bound], plot: Path | None) -> None:
    """Print the lower bounds, a table for each scope, the guaranteed and the expected sizes, and the verdict."""
    console = output()
    size = f"N = {lower.N:,}, n = {lower.n:,}, d = {lower.d:,}, C = {lower.C:,}"
    for scope, (title, words) in SCOPES.items():
        bounds = [bound for bound in lower.bounds if bound.scope == scope]
        if bounds:
            console.print(lower_table(bounds, f"{lower.task}: {title} ({size})"))
            if words:
                console.print(words, style="dim", highlight=False)
    guaranteed = [bound for bound in upper if bound.proved]
    expected = [bound for bound in upper if not bound.proved]
    if guaranteed:
        console.print(upper_table(guaranteed, f"{lower.task}: guaranteed upper bounds"))
    if expected:
        console.print(expected_table(expected, f"{lower.task}: expected sizes, no theorem"))
    if lower.verdict is not None:
        console.print(f"This architecture {lower.verdict.sentence}.", highlight=False)
        console.print(f"It has {lower.verdict.architecture.parameters:,} parameters.", highlight=False)
    if any(bound.own_constants for bound in lower.bounds):
        console.print(OWN, style="dim", highlight=False)
    if plot is not None:
        console.print(f"plot: {plot}", highlight=False)


OWN = "* The paper states an order of growth; the constants are byheart's."

SCOPES: dict[Scope, tuple[str, str]] = {
    "labels": ("worst-case lower bounds", ""),
    "distributions": (
        "worst-case lower bounds for distributions, not labels",
        "For a smooth model that fits every choice of next-token distributions; the given ones may be easier.",
    ),
    "any points": (
        "lower bounds for one network shape and every such set of points",
        "For every labelling of every N sequences of equal tokens (sets of one element), wherever they lie; a network "
        "for one data set may have fewer.",
    ),
}


def lower_table(bounds: Sequence[Bound], title: str) -> Table:
    """Return one line per bound: the number, its unit, its source and its formula."""
    table = Table(title=title, title_justify="left")
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("of", no_wrap=True)
    table.add_column("from", overflow="fold")
    table.add_column("formula", overflow="fold")
    for bound in bounds:
        sign = "≥" if bound.kind == "lower" else "≤"
        table.add_row(f"{sign} {bound.value:,}", _UNITS[bound.quantity], _source(bound), bound.formula)
    return table


def _source(bound: Bound) -> str:
    """Return the bound's name and theorem once each, a star for byheart's constants, and whether it is only cited."""
    remark = f"; {bound.remark}" if bound.remark else ""
    star = " *" if bound.own_constants else ""
    if bound.name.startswith(bound.ref.label):
        return f"{bound.ref.paper}, {bound.name}{star}{remark}"
    return f"{bound.name} ({bound.ref}{remark}){star}"


def upper_table(bounds: list[Bound], title: str) -> Table:
    """Return one line per construction: parameters, width, depth and bits that its theorem guarantees."""
    table = Table(title=title, title_justify="left")
    table.add_column("construction", overflow="fold")
    quantities = ("parameters", "width", "depth", "max_bits")
    for name in ("parameters ≤", "width ≤", "depth ≤", "bits per weight ≤"):
        table.add_column(name, justify="right")
    table.add_column("theorem", overflow="fold")
    lines: dict[str, dict[str, Bound]] = {}
    for bound in bounds:
        lines.setdefault(bound.name, {})[bound.quantity] = bound
    for name, line in lines.items():
        cells = [f"{line[q].value:,}" if q in line else "" for q in quantities]
        table.add_row(name, *cells, str(line["parameters"].ref))
    return table


def expected_table(bounds: list[Bound], title: str) -> Table:
    """Return one line per construction that no theorem sizes: reconstructions and estimates, with the reason."""
    table = Table(title=title, title_justify="left")
    table.add_column("construction", overflow="fold")
    table.add_column("parameters ~", justify="right")
    table.add_column("from", overflow="fold")
    table.add_column("basis", overflow="fold")
    for bound in bounds:
        table.add_row(bound.name, f"{bound.value:,}", str(bound.ref), bound.assumptions[-1])
    return table
