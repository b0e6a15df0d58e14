"""The command line: `byheart --help`.

Exit status: 0 when what was asked holds (for `memorize` and `verify`: proved), 1 when it was not proved, 2 for bad
input, 130 when interrupted. docs/command-line.md has the list.
"""

from __future__ import annotations

import os
import sys

import click

from byheart.cli.bounds_command import bounds_command
from byheart.cli.compare_command import compare_command
from byheart.cli.constructions_command import constructions
from byheart.cli.export_command import export
from byheart.cli.memorize_command import memorize
from byheart.cli.paper_command import paper
from byheart.cli.predict_command import predict
from byheart.cli.recite_command import recite_command
from byheart.cli.report_command import report
from byheart.cli.verify_command import verify
from byheart.errors import ByheartError
from byheart.version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="byheart")
def commands() -> None:
    """Compile a data set into a small Transformer that knows it by heart, exactly, and prove it.

    \b
      byheart memorize table.csv -o table.byheart      build and certify
      byheart verify table.byheart table.csv           prove it again
      byheart predict table.byheart "some text"        ask it
      byheart recite book.byheart                      say a memorized text again
      byheart report table.byheart table.csv           one page about it

    Exit status: 0 yes (proved, answered, written), 1 not proved, 2 the input cannot be used, 130 interrupted.
    """


for _command in (
    memorize,
    verify,
    predict,
    compare_command,
    recite_command,
    export,
    report,
    bounds_command,
    constructions,
    paper,
):
    commands.add_command(_command)


def main() -> None:
    """Runs the command line; every expected failure is one line on standard error and exit status 2."""
    try:
        status = commands(standalone_mode=False)
    except ByheartError as error:
        _fail(str(error), 2)
    except click.exceptions.Abort:
        _fail("interrupted; nothing was written", 130)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except KeyboardInterrupt:
        _fail("interrupted; nothing was written", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:  # for example a full disk behind standard output
        _fail(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""), 2)
    except MemoryError:
        _fail("this needs more memory than there is; take fewer rows with --max-rows", 2)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str, status: int) -> None:
    click.echo(f"byheart: {message}", err=True)
    sys.exit(status)
