"""byheart paper: where a theorem lives in the code."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import asdict
from itertools import groupby

import click

from byheart import paper as registry
from byheart.build import recipes
from byheart.cli import show
from byheart.errors import OptionError

PACKAGES = ("byheart.build", "byheart.theory", "byheart.certify", "byheart.memory")


def fill_registry() -> None:
    """Import every package with paper labels."""
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(module.name)


@click.command("paper")
@click.argument("label", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def command(label: str | None, as_json: bool) -> int:
    """Show the statement of LABEL, its code and its test (without LABEL: all labels).

    Labels as people write them: "Theorem 4.1", "Thm 4.1", "KS25 Lem. G.4", "eq. (158)"; or a paper: "Sontag", "V22".

    \b
      byheart paper "Thm 4.1"
      byheart paper "Lemma G.4"
      byheart paper --json
    """
    fill_registry()
    found = registry.find(label) if label else registry.entries()
    if not found:
        known = sorted({entry.ref.label for entry in registry.entries()})
        alike = [name for name in known if label and registry.plain(name).split()[0] in registry.plain(label).split()]
        raise OptionError(f"no code carries the label {label!r}; known: {', '.join(alike or known)}")
    if as_json:
        show.print_json({"entries": [{**asdict(entry), "paper": registry.PAPERS[entry.ref.paper]} for entry in found]})
        return 0
    for ref, group in groupby(found, key=lambda entry: entry.ref):
        click.echo(f"{ref} ({registry.PAPERS[ref.paper]})")
        for entry in group:
            click.echo(f"  {entry.statement}\n    {entry.status}")
            for what, where in (("code", entry.code), ("test", entry.test)):
                if where:
                    click.echo(f"    {what}: {where}")
            for name in builds(entry):
                click.echo(f"    build it: byheart memorize DATA --construction {name}")
    return 0


def builds(entry: registry.Entry) -> list[str]:
    """The constructions whose builder carries this label."""
    return [name for name, recipe in recipes().items() if code_of(recipe.builder) == (entry.module, entry.name)]


def code_of(function: Callable[..., object]) -> tuple[str, str]:
    return function.__module__, function.__qualname__
