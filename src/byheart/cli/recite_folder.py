"""byheart recite DIR: a checkpoint folder, recited by a real engine."""

from __future__ import annotations

import click
from rich.table import Table

from byheart.cli import show
from byheart.engines import Recitation, recite
from byheart.errors import OptionError


def recite_folder(
    folder: str, engine: str, dtype: str | None, settings: tuple[str, ...], as_json: bool, quiet: bool
) -> int:
    """Asks the engine, shows what it answered; 0 if everything was right, else 1."""
    recitation = recite(folder, engine, dtype=dtype, options=_pairs(settings))
    if as_json:
        show.print_json(recitation.to_json())
    elif quiet:
        click.echo("recited" if recitation.passed else "not recited")
    else:
        _print(recitation)
    return 0 if recitation.passed else 1


def _pairs(settings: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise OptionError(f"--option {setting!r}: write KEY=VALUE")
        pairs[name] = value
    return pairs


def _print(recitation: Recitation) -> None:
    out = show.console()
    chosen = ", ".join(f"{name} {value}" for name, value in recitation.options.items())
    title = f"{recitation.engine} {recitation.version}, {recitation.dtype}" + (f", {chosen}" if chosen else "")
    table = Table(title=title, title_justify="left")
    for heading, justify in (("", "left"), ("asked", "right"), ("right", "right"), ("least lead (nats)", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for check in recitation.checks:
        lead = "" if check.margin is None else f"{check.margin:.3f}"
        table.add_row(check.name, f"{check.asked:,}", f"{check.right:,}", lead)
    out.print(table)
    for check in recitation.checks:
        if check.wrong is not None:
            show.line(out, f"{check.name}: {check.wrong}")
    show.line(out, "recited" if recitation.passed else "not recited")
