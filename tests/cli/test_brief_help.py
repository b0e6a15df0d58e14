"""`--help` fits on a screen and names every option; `--help-all` explains them all."""

import click
import pytest
from click.testing import CliRunner

from byheart.cli import COMMANDS, commands
from byheart.cli.brief_help import RARE, BriefCommand

SCREEN = 60  # lines; memorize and export describe their inputs at length


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "lab"])
def test_help_is_short_and_complete(name):
    run = CliRunner()
    brief = run.invoke(commands, [name, "--help"], terminal_width=110).output
    assert len(brief.splitlines()) <= SCREEN
    command = commands.get_command(click.Context(commands), name)
    assert command is not None
    for option in (one for one in command.params if isinstance(one, click.Option)):
        assert option.opts[0].lstrip("-") in brief.replace("\n", ""), option.opts
    if isinstance(command, BriefCommand) and command.rare:
        full = run.invoke(commands, [name, "--help-all"]).output
        assert len(full) > len(brief) and all(option in full for option in command.rare)


def test_rare_options_still_work():
    result = CliRunner().invoke(commands, ["bounds", "--N", "10", "--n", "2", "--d", "1", "--C", "2", "--json"])
    assert result.exit_code == 0 and "--max-rows" in RARE
