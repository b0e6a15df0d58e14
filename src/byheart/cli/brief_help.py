"""Help that fits on a screen: `--help` explains the common options, `--help-all` explains every one."""

from __future__ import annotations

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
    --seconds
    """.split()  # noqa: SIM905
)
FEW = 12  # commands with at most this many options explain all of them


def _show_all(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        context.meta[__name__] = True
        click.echo(context.get_help())
        context.exit()


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
            help="Explain every option.",
        )
        options = sum(isinstance(one, click.Option) for one in command.params)
        return cls(params=[*command.params, *([shown] if options > FEW else [])], **fields)

    @property
    def rare(self) -> tuple[str, ...]:
        """The options that `--help` only names."""
        options = [one for one in self.params if isinstance(one, click.Option)]
        return () if len(options) <= FEW + 1 else tuple(o.opts[0] for o in options if RARE.intersection(o.opts))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if ctx.meta.get(__name__) or not self.rare:
            super().format_options(ctx, formatter)
            return
        named = set(self.rare)
        rows = [
            record
            for one in self.get_params(ctx)
            if isinstance(one, click.Option)
            and not named.intersection(one.opts)
            and (record := one.get_help_record(ctx)) is not None
        ]
        with formatter.section("Options"):
            formatter.write_dl(rows)
        with formatter.section("More options (see --help-all)"):
            # click breaks lines at hyphens, which would cut the names of options.
            for line in textwrap.wrap(", ".join(self.rare), formatter.width - 4, break_on_hyphens=False):
                formatter.write(f"  {line}\n")
