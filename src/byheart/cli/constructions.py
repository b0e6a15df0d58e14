"""byheart constructions: what can be built."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.table import Table

from byheart.cli import show
from byheart.cli.data_options import complete_construction


@click.command("constructions")
@click.argument("name", required=False, shell_complete=complete_construction)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def command(name: str | None, as_json: bool) -> int:
    """List the constructions, or the options of one of them by NAME.

    \b
      byheart constructions
      byheart constructions compact
    """
    from byheart import build as package  # loads every builder, so not for the other commands

    listings = package.constructions()
    if name is not None:
        package.recipe(name)
        listings = {name: listings[name]}
    if as_json:
        show.print_json({key: asdict(listing) for key, listing in listings.items()})
        return 0
    table = Table("name", "what it builds", "theorem", "tasks")
    for key, listing in listings.items():
        table.add_row(key, listing.summary, listing.paper, ", ".join(listing.tasks))
    show.console().print(table)
    for option, words in listings[name].options.items() if name is not None else ():
        click.echo(f"  --option {option}={words}")
    return 0
