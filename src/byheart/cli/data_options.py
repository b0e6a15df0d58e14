"""The flags that every command with a data file shares, and what they load."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from byheart.certify import EvaluationPlan
from byheart.data.dataset.conflicts import POLICIES
from byheart.data.dataset.settle import Settled, settle_table
from byheart.data.missing import POLICIES as MISSING
from byheart.data.read.options import UNEVEN, ReadOptions
from byheart.data.read.sources import Limits, open_bytes
from byheart.data.read.table import Planning, Table
from byheart.data.read.table import read as read_table
from byheart.data.task import Task
from byheart.data.tokens.tokenizer import names
from byheart.data.values import AUTO, TYPES
from byheart.errors import OptionError
from byheart.exact.budget import Budget
from byheart.executors import KNOWN, opened
from byheart.files import check_target
from byheart.memory import Memory, load
from byheart.progress import SILENT, Progress, console_progress, log_to_stderr

F = TypeVar("F", bound=Callable[..., Any])
_CORES = os.cpu_count() or 1

# field of ReadOptions (or `conflicts`) -> its flag. The first sentence of a help text is what `--help` shows.
_READING: dict[str, Callable[[Any], Any]] = {
    "sequence_columns": click.option(
        "--sequence-column",
        "sequence_columns",
        metavar="NAME",
        multiple=True,
        help="Input column; repeat it for several. The cells of several columns are the tokens; '*' takes all columns "
        "but the label's. Without it: a column named text, sequence or the like, else all but the label's.",
    ),
    "label_column": click.option(
        "--label-column",
        metavar="NAME",
        help="Label column. Without it: one with a usual name, else the last one.",
    ),
    "drop": click.option("--drop", metavar="NAME", multiple=True, help="A column to skip."),
    "keep": click.option(
        "--keep", metavar="NAME", multiple=True, help="A column that numbers the rows and is an input nevertheless."
    ),
    "tokens": click.option(
        "--tokens",
        metavar="HOW",
        shell_complete=lambda context, parameter, start: [name for name in names() if name.startswith(start)],
        help="How a text is tokenized: characters, words, bpe:500, … "
        f"All: {', '.join(names())}. A JSON list is always read as the tokens.  [default: auto]",
    ),
    "header": click.option(
        "--header/--no-header",
        default=None,
        help="Whether a CSV file begins with the names of its columns. If not, they are 'column 1', 'column 2', …  "
        "[default: header]",
    ),
    "encoding": click.option(
        "--encoding", metavar="NAME", help="How a text file is written, for example cp1252 (default: UTF-8)."
    ),
    "max_length": click.option(
        "--max-length", type=click.IntRange(1), metavar="n", help="Keep the first n tokens of every row."
    ),
    "pad": click.option(
        "--pad", metavar="TOKEN", help="Fill rows that are shorter than --max-length with TOKEN at the end."
    ),
    "label_type": click.option(
        "--label-type",
        metavar="TYPE",
        type=click.Choice(TYPES),
        help=f"Type of the labels: {', '.join(TYPES)}. auto leaves them as the source has them (in a text format: as "
        "texts).  [default: auto]",
    ),
    "token_type": click.option(
        "--token-type",
        metavar="TYPE",
        type=click.Choice(TYPES),
        help=f"Type of the tokens: {', '.join(TYPES)}. Tokens are cells of several columns, pieces of a text, entries "
        "of a list.  [default: auto]",
    ),
    "missing": click.option(
        "--missing",
        metavar="POLICY",
        type=click.Choice(MISSING),
        help="Rows with an empty cell: error, drop or label. label treats a missing value as a separate value.  "
        "[default: error]",
    ),
    "uneven": click.option(
        "--uneven",
        metavar="POLICY",
        type=click.Choice(UNEVEN),
        help="Lines with more or fewer cells than there are columns: error or drop.  [default: error]",
    ),
    "max_rows": click.option("--max-rows", type=click.IntRange(1), metavar="N", help="Read the first N rows only."),
    "max_bytes": click.option(
        "--max-bytes",
        type=click.IntRange(1),
        metavar="B",
        default=Limits.max_bytes,
        show_default=True,
        help="What a compressed file may unpack to.",
    ),
    "conflicts": click.option(
        "--conflicts",
        metavar="POLICY",
        type=click.Choice(POLICIES),
        help="Equal inputs, different labels: error, first, majority or drop. first keeps the first row, majority the "
        "most frequent label, drop none of them.  [default: error]",
    ),
}
# What a memory stores about its reading is taken from its file; these flags override it or bound the work.
RECORDED = (
    *("sequence_columns", "label_column", "header", "encoding", "label_type", "missing", "uneven", "conflicts"),
    *("max_length", "max_rows", "max_bytes"),
)
# Documents have no label, and recitals have their own tokenizers.
DOCUMENTS = ("sequence_columns", "header", "encoding", "missing", "max_rows", "max_bytes")


@dataclass(frozen=True)
class DataFlags:
    """The user's flags about the data: the fields of ReadOptions that were given, and the policy for conflicts."""

    given: Mapping[str, Any] = field(default_factory=dict)
    conflicts: str | None = None

    @property
    def tokens(self) -> str:
        return str(self.given.get("tokens", AUTO))

    def value(self, name: str) -> Any:
        """The user's value; None if the flag was not given."""
        return self.given.get(name)

    def options(self, task: Task, recorded: Mapping[str, Any] | None = None) -> ReadOptions:
        """The one value that a reading takes; flags override what a file recorded about an earlier reading."""
        return ReadOptions(task=task, **{**(recorded or {}), **self.given})

    def read(self, path: str, task: Task, progress: Progress = SILENT, planning: Planning | None = None) -> Table:
        """The table as these flags define it."""
        return read_table(path, self.options(task), planning=planning, progress=progress)

    def read_text(self, path: str) -> str | bytes:
        """A whole text: as characters when it is UTF-8, else (or on request) as bytes."""
        with open_bytes(path, self.options(Task.CAUSAL).limits) as file:
            data = file.read()
        if self.tokens == "bytes":
            return data
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return data

    def settle(
        self, table: Table, task: Task, positions: bool, policy: str = "error", progress: Progress = SILENT
    ) -> Settled:
        with progress.stage("comparing rows"):
            return settle_table(table, task=task, positions=positions, policy=self.conflicts or policy)


def data_options(*chosen: str) -> Callable[[F], F]:
    """Add flags about data to a command, which gets them as one argument `flags`.

    Args:
        chosen: Which fields of `ReadOptions` (and `conflicts`); all where none is named.

    Returns:
        The decorator.
    """

    def add(command: F) -> F:
        @wraps(command)
        def packed(*arguments: Any, **keywords: Any) -> Any:
            reading = {part.name: keywords.pop(part.name) for part in fields(ReadOptions) if part.name in keywords}
            # The task is an argument of some commands, and not about data.
            task = {"task": reading.pop("task")} if "task" in reading else {}
            given = {name: value for name, value in reading.items() if value not in (None, ())}
            flags = DataFlags(given, keywords.pop("conflicts", None))
            return command(*arguments, flags=flags, **task, **keywords)

        wrapped: Any = packed
        for name in reversed(chosen or tuple(_READING)):
            wrapped = _READING[name](wrapped)
        return wrapped  # type: ignore[no-any-return]

    return add


def refuse_unused(kind: str, *used: str) -> None:
    """An OptionError for a flag about data or building that was typed and is not among those that this kind uses: it
    would seem to have had an effect."""
    context = click.get_current_context()
    about_data = {part.name for part in fields(ReadOptions)} | {"conflicts", "positions", "seed", "page_length"}
    for parameter in context.command.params:
        typed = context.get_parameter_source(str(parameter.name)) is click.core.ParameterSource.COMMANDLINE
        if typed and parameter.name in about_data and parameter.name not in used:
            raise OptionError(f"{parameter.opts[0]} does not apply to {kind}; omit it")


_SHAPE = {
    "hidden": ("--hidden-size", "For a checkpoint: the shape to imitate."),
    "layers": ("--layers", "… layers."),
    "heads": ("--heads", "… attention heads."),
    "kv_heads": ("--kv-heads", "… heads of keys and values."),
    "experts": ("--experts", "… experts, where the architecture has any."),
}


def shape_options(command: F) -> F:
    """Add the numbers of a model's shape; the command gets those that were given as one argument `shape`."""

    @wraps(command)
    def packed(*arguments: Any, **keywords: Any) -> Any:
        given = {name: keywords.pop(name) for name in _SHAPE}
        return command(*arguments, shape={name: n for name, n in given.items() if n is not None}, **keywords)

    decorated: Any = packed
    for name, (flag, words) in reversed(_SHAPE.items()):
        decorated = click.option(flag, name, type=click.IntRange(1), metavar="N", help=words)(decorated)
    return decorated  # type: ignore[no-any-return]


def output_options(command: F) -> F:
    command = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")(command)
    command = click.option(
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=_remember_verbose,
        help="Log each step and its duration.",
    )(command)
    return click.option("--quiet", is_flag=True, help="No progress, no tables: the verdict or answer alone.")(command)


def budget_options(command: F) -> F:
    """Add the limits on what evaluating a file may cost; `load_limited` keeps them."""
    command = click.option(
        "--max-work",
        type=click.IntRange(1),
        metavar="UNITS",
        default=Budget.work,
        show_default=True,
        expose_value=False,
        callback=_remember_budget,
        help="Products of 56-bit numbers that FILE may cost, estimated beforehand; raise it for files you trust.",
    )(command)
    return click.option(
        "--max-memory",
        type=click.IntRange(1),
        metavar="BYTES",
        default=Budget.memory,
        show_default=True,
        expose_value=False,
        callback=_remember_budget,
        help="Bytes that the numbers of FILE may take.",
    )(command)


def executor_options(command: F) -> F:
    """Add options for where rows are evaluated and for resuming after an interruption."""
    command = click.option(
        "--resume",
        metavar="FILE",
        type=click.Path(),
        help="Keep finished parts in FILE until all are done, so that an interrupted command resumes where it stopped.",
    )(command)
    return click.option(
        "--executor",
        metavar="WHERE",
        help=f"Where to run work that can be divided: {KNOWN}. The result is the same everywhere.",
    )(command)


def evaluation_plan(executor: str | None, resume: str | None) -> EvaluationPlan:
    """How rows are evaluated, with the executor open until the command ends."""
    if resume is not None:
        check_target(Path(resume))
    opened_one = None if executor is None else click.get_current_context().with_resource(opened(executor, _CORES))
    return EvaluationPlan(opened_one, None if resume is None else Path(resume))


def _remember_budget(context: click.Context, parameter: click.Parameter, value: int) -> None:
    context.meta[f"byheart.{parameter.name}"] = value


def load_limited(file: str) -> Memory:
    """The memory in a file, with the limits of the command line."""
    meta = click.get_current_context().meta
    return load(file, budget=Budget(meta["byheart.max_work"], meta["byheart.max_memory"]))


def _remember_verbose(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta["byheart.verbose"] = value


def construction_options(command: F) -> F:
    """Add what is built: the construction, its own options, and the seed."""
    command = click.option("--seed", default=0, show_default=True)(command)
    command = click.option(
        "--option",
        "pairs",
        multiple=True,
        metavar="KEY=VALUE",
        help="A construction's own option; repeatable.",
        shell_complete=complete_option,
    )(command)
    return click.option(
        "--construction",
        default="compact",
        show_default=True,
        help="What to build; see `byheart constructions`.",
        shell_complete=complete_construction,
    )(command)


def page_options(name: str) -> Callable[[F], F]:
    """Add where a page is written (`name` by default), and whether it is shown; see `open_page`."""

    def add(command: F) -> F:
        command = click.option("--open", "opened", is_flag=True, help="Show the page in the browser.")(command)
        return click.option(
            "-o",
            "--output",
            metavar="PAGE",
            type=click.Path(),
            default=name,
            show_default=True,
            help="Where to write the page.",
        )(command)

    return add


def open_page(page: Path) -> None:
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        raise OptionError(f"no browser could be started; open {page} yourself")


def complete_construction(context: click.Context, parameter: click.Parameter, start: str) -> list[str]:
    """For the shell's Tab key."""
    from byheart import constructions

    return [name for name in constructions() if name.startswith(start)]


def complete_option(context: click.Context, parameter: click.Parameter, start: str) -> list[str]:
    """`key=` for the options of the construction on the command line."""
    from byheart import constructions

    listing = constructions().get(context.params.get("construction") or "compact")
    return [f"{name}=" for name in (listing.options if listing else ()) if name.startswith(start)]


def is_verbose() -> bool:
    context = click.get_current_context(silent=True)
    return bool(context and context.meta.get("byheart.verbose"))


def progress_for(as_json: bool, quiet: bool) -> Progress:
    """Bars where a person is watching; --verbose has lines of the log instead (also beside --json)."""
    if is_verbose() and not quiet:
        click.get_current_context().with_resource(log_to_stderr())
    return SILENT if quiet or as_json or is_verbose() else console_progress()


def parse_options(pairs: tuple[str, ...]) -> dict[str, str]:
    """`key=value` flags of a construction."""
    parsed = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise OptionError(f"--option {pair!r} must be key=value, for example --option form=residual")
        parsed[key.replace("-", "_")] = value
    return parsed
