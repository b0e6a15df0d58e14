"""byheart paper: where a theorem lives in the code."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import asdict

import click

from byheart import paper as registry
from byheart.cli import show
from byheart.errors import OptionError

ROOMS = ("byheart.build", "byheart.theory", "byheart.certify")


def fill_registry() -> None:
    """Imports every room that carries paper labels."""
    for room in ROOMS:
        package = importlib.import_module(room)
        for module in pkgutil.walk_packages(package.__path__, f"{room}."):
            importlib.import_module(module.name)


@click.command("paper")
@click.argument("label", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def command(label: str | None, as_json: bool) -> int:
    """Find the code, the statement and the test of LABEL (all labels without it).

    \b
      byheart paper "Lemma G.4"
      byheart paper --json
    """
    fill_registry()
    found = registry.find(label) if label else registry.entries()
    if not found:
        known = sorted({entry.ref.label for entry in registry.entries()})
        alike = [name for name in known if label and name.split()[:1] == label.split()[:1]]
        raise OptionError(f"no code carries the label {label!r}; known: {', '.join(alike or known)}")
    if as_json:
        show.print_json({"entries": [{**asdict(entry), "paper": registry.PAPERS[entry.ref.paper]} for entry in found]})
        return 0
    for entry in found:
        click.echo(f"{entry.ref}\n  {entry.statement}\n  code: {entry.module}.{entry.name}\n  test: {entry.test}")
    return 0
