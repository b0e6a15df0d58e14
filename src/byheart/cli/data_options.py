"""The flags that every command with a data file shares, and what they load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from byheart.data.dataset import Dataset, load
from byheart.data.readers import TOKENS, Table, read_table
from byheart.data.sources import open_bytes
from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.progress import SILENT, Progress, console_progress

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--sequence-column", metavar="NAME", help="Column with the sequences (guessed if not given)."),
    click.option("--label-column", metavar="NAME", help="Column with the labels (guessed if not given)."),
    click.option(
        "--tokens",
        type=click.Choice(TOKENS),
        default="auto",
        show_default=True,
        help="How a text cell is cut into tokens; a cell that is a JSON list is always taken as the tokens.",
    ),
)


def data_options(command: F) -> F:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def output_options(command: F) -> F:
    command = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")(command)
    return click.option("--quiet", is_flag=True, help="No progress bars.")(command)


def read(path: str, sequence_column: str | None, label_column: str | None, tokens: str, task: Task) -> Table:
    return read_table(path, sequence_column=sequence_column, label_column=label_column, tokens=tokens, task=task)


def read_book(path: str, tokens: str) -> str | bytes:
    """A whole text: as characters when it is UTF-8, else (or when asked) as bytes."""
    with open_bytes(path) as file:
        data = file.read()
    if tokens == "bytes":
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data


def dataset_of(table: Table, task: Task, positions: bool) -> Dataset:
    return load(table.sequences, table.labels, task=task, positions=positions)


def progress_for(as_json: bool, quiet: bool) -> Progress:
    return SILENT if as_json or quiet else console_progress()


def parse_options(pairs: tuple[str, ...]) -> dict[str, str]:
    """`key=value` flags of a construction."""
    parsed = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise OptionError(f"--option {pair!r} must be key=value, for example --option form=residual")
        parsed[key.replace("-", "_")] = value
    return parsed
