"""`--help` fits on a screen and names every option; `--help-all` explains them all."""

import click
import pytest
from click.testing import CliRunner

from byheart.cli import COMMANDS, commands
from byheart.cli.brief_help import RARE, BriefCommand

SCREEN = 40  # lines of 80 characters


NAMES = [*COMMANDS, "lab run", "lab worker", "lab resume", "lab plot", "lab export", "lab status"]


@pytest.mark.parametrize("name", NAMES)
def test_help_is_short_and_complete(name):
    run = CliRunner()
    brief = run.invoke(commands, [*name.split(), "--help"], terminal_width=80).output
    assert len(brief.splitlines()) <= SCREEN
    command = commands
    for part in name.split():
        command = command.get_command(click.Context(command), part)
    assert command is not None
    for option in (one for one in command.params if isinstance(one, click.Option)):
        assert option.opts[0].lstrip("-") in brief.replace("\n", ""), option.opts
    if isinstance(command, BriefCommand) and command.rare:
        full = run.invoke(commands, [*name.split(), "--help-all"]).output
        assert len(full) > len(brief) and all(option in full for option in command.rare)


def test_rare_options_still_work():
    result = CliRunner().invoke(commands, ["bounds", "--N", "10", "--n", "2", "--d", "1", "--C", "2", "--json"])
    assert result.exit_code == 0 and "--max-rows" in RARE
