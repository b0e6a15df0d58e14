"""Help that fits on a screen: `--help` explains the common options, `--help-all` explains every one.

Short help has the first paragraph and the examples of a command, and the first sentence of every option.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

import click

# Options that few users need. Tuned by hand: they apply to unusual files, untrusted files or long jobs.
RARE = frozenset(
    """
    --header --encoding --max-length --pad --label-type --token-type --max-rows --max-bytes --max-memory --max-work
    --executor --resume --uneven --left-out --verbose --quiet --weight-column --ambiguous --gap --part --name-column
    --occurrences --merge --unknown --hidden-size --layers --heads --kv-heads --experts --time-limit --memory-gb
    --trained --drop --keep --text --seed --page-length --zeros --omega --documents --flavour --head-dim
    --intermediate-size --rope-theta --norm-eps --activation --tied --sequential-residual --requests --concurrency
    --seconds --positions --strength --spread --margin --storage --style --abstain-bits --heartbeat --data-folder
    --embedding --plots --constructed
    """.split()  # noqa: SIM905
)
FEW = 12  # commands with at most this many options explain all of them
_COLUMN = 26  # characters of an option and its value before its help


def _show_all(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        context.meta[__name__] = True
        click.echo(context.get_help())
        context.exit()


def first_sentence(words: str) -> str:
    """Return the first sentence of an option's help, with its default.

    >>> first_sentence("Rows with an empty cell. They are counted.  [default: error]")
    'Rows with an empty cell.  [default: error]'
    """
    default = re.search(r"  \[[^]]*\]$", words)
    sentence = re.split(r"(?<=[.…])\s+(?=[A-Z'a-z])", words.removesuffix(default[0] if default else ""), maxsplit=1)[0]
    return sentence + (default[0] if default else "")


class BriefCommand(click.Command):
    """A command whose `--help` leaves rare options to `--help-all`.

    >>> @click.command
    ... @click.option("--encoding", help="of the file")
    ... @click.option("--label", help="its column")
    ... def read(encoding, label): ...
    >>> BriefCommand.of(read).rare
    ()
    """

    @classmethod
    def of(cls, command: click.Command) -> click.Command:
        """The same command with brief help; groups and commands with few options stay as they are."""
        if isinstance(command, click.Group | BriefCommand):
            return command
        fields: dict[str, Any] = {
            name: getattr(command, name)
            for name in ("name", "context_settings", "callback", "help", "epilog", "short_help", "deprecated", "hidden")
        }
        shown = click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_all,
            help="Explain everything.",
        )
        options = sum(isinstance(one, click.Option) for one in command.params)
        return cls(params=[*command.params, *([shown] if options > FEW else [])], **fields)

    @property
    def rare(self) -> tuple[str, ...]:
        """The options that `--help` only names."""
        options = [one for one in self.params if isinstance(one, click.Option)]
        return () if len(options) <= FEW + 1 else tuple(o.opts[0] for o in options if RARE.intersection(o.opts))

    def _is_brief(self, ctx: click.Context) -> bool:
        return bool(self.rare) and not ctx.meta.get(__name__)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The first paragraph and the examples, or all of the text."""
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        if not self._is_brief(ctx):
            super().format_help_text(ctx, formatter)
            return
        kept = [paragraphs[0], *(part for part in paragraphs[1:] if part.startswith("\b"))]
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text("\n\n".join(kept))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The first sentence of the common options and the names of the rare ones, or all of them."""
        if not self._is_brief(ctx):
            super().format_options(ctx, formatter)
            return
        named = set(self.rare)
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        rows = [one.get_help_record(ctx) for one in options if not named.intersection(one.opts)]
        with formatter.section("Options"):
            found = [(row[0], first_sentence(row[1])) for row in rows if row is not None]
            formatter.write_dl(found, col_max=_COLUMN)
        with formatter.section("More options (see --help-all)"):
            # click breaks lines at hyphens, which would split the names of options.
            for line in textwrap.wrap(", ".join(self.rare), formatter.width - 4, break_on_hyphens=False):
                formatter.write(f"  {line}\n")
