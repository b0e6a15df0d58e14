"""The command line: `byheart --help`.

Exit status: 0 when the statement holds (for `memorize` and `verify`: proved), 1 when it was not proved, 2 for bad
input, 70 for a bug in byheart itself, 130 when interrupted; docs/command-line.md has the list. Defects are
reported in one line; with BYHEART_DEBUG set, with their traceback.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from difflib import get_close_matches
from types import FrameType

import click
from click.shell_completion import CompletionItem

from byheart.cli.brief_help import BriefCommand
from byheart.errors import ByheartError, TableError
from byheart.version import __version__

DEFECT = 70  # EX_SOFTWARE of sysexits.h
LONGEST_INTEGER = 100_000  # digits of a label or token that commands read and write; Python stops at 4,300
ISSUES = "the project's issue tracker"

# name -> one line of help; the command itself is `command` in the module of that name, loaded when it is used
COMMANDS = {
    "fixture": "Write a small checkpoint with known answers, to test an inference engine.",
    "suite": "Run every test case with a known answer in an inference engine.",
    "diagnose": "Name the known faults that explain an engine's incorrect answers.",
    "recite": "Recite a memorized text, or run a checkpoint folder in a real engine.",
    "recital": "Memorize documents for a stock checkpoint, with an experiment's controls.",
    "forget": "Remove one document from a checkpoint and prove that nothing else changed.",
    "score": "Score a method against a graded checkpoint's ground truth.",
    "memorize": "Compute a Transformer that stores DATA exactly, certify it, save it.",
    "verify": "Prove a saved memory or a checkpoint folder again.",
    "predict": "Predict labels with a memory.",
    "compare": "Build every construction on your data and compare sizes.",
    "export": "Write a memory for PyTorch, ONNX, safetensors, Transformers or GGUF.",
    "deploy": "Export TABLE as an ONNX model that maps cells to labels.",
    "report": "Write a self-contained page about a memory.",
    "explain": "Write a page that builds and evaluates a Transformer step by step.",
    "bounds": "Print lower and upper bounds, each with its theorem.",
    "lab": "Measure how much trained networks memorize.",
    "constructions": "List the constructions and their options.",
    "paper": "Find the code and the test of a theorem.",
}

# commands of earlier versions -> what does their work now
GONE = {"decoder": "byheart memorize DOCS --construction madden24"}


class _Commands(click.Group):
    """A group whose commands are imported one by one, so that `predict` does not load the laboratory."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"byheart.cli.{cmd_name}").command
        return BriefCommand.of(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            if args[0] in GONE:
                raise click.UsageError(f"there is no command {args[0]!r} any more; use `{GONE[args[0]]}`", ctx)
            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(COMMANDS)}"
            raise click.UsageError(f"there is no command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names without loading their commands: the Tab key must not wait."""
        names = [CompletionItem(name, help=words) for name, words in COMMANDS.items()]
        found = [item for item in names if item.value.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="byheart")
def commands() -> None:
    """Compute the weights of small Transformers that store a data set exactly, and prove it.

    \b
      byheart fixture --arch qwen3 -o tiny-qwen3       a checkpoint with known answers, for an engine's tests
      byheart recite tiny-qwen3 --engine llama.cpp     run it in an engine
      byheart memorize table.csv -o table.byheart      build and certify
      byheart verify table.byheart table.csv           prove it again
      byheart predict table.byheart "some text"        predict a label
      byheart deploy table.csv -o table.onnx           a table as a model for ONNX Runtime
      byheart explain --open                           watch one being built, in the browser

    Exit status: 0 proved or correct, 1 not proved or incorrect, 2 bad input, 70 a defect of byheart itself (set
    BYHEART_DEBUG=1 for its traceback), 130 interrupted.
    """


def main() -> None:
    """Run the command line; every expected failure is a line on standard error and exit status 2.

    Anything unexpected is our defect and never looks like "not proved": it has its own status.
    """
    digits = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(LONGEST_INTEGER)
    restore = _end_in_order()
    try:
        status = commands(prog_name="byheart", standalone_mode=False)
        sys.stdout.flush()  # while a closed pipe can still be distinguished from success
    except TableError as error:
        _fail(error.lines, 2)
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
        _end_like_other_tools()
    except OSError as error:  # for example a full disk under standard output
        _fail(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""), 2)
    except UnicodeEncodeError as error:
        character = ascii(error.object[error.start : error.start + 1])
        _fail(f"the encoding of the output, {error.encoding}, cannot write {character}; use --json", 2)
    except MemoryError:
        _fail("this needs more memory than there is; read fewer rows with --max-rows", 2)
    except Exception as error:
        _report_defect(error)
    finally:  # limit and handlers are the process's, which may be a program that calls this
        sys.set_int_max_str_digits(digits)
        restore()
    sys.exit(status if isinstance(status, int) else 0)


def _end_in_order() -> Callable[[], None]:
    """Turn SIGTERM and SIGHUP into an exit that removes drafts on its way; return what undoes that.

    By default these signals end a process at once, and its `.part` files stay. A signal that the caller ignores
    (`nohup`) or handles keeps its meaning, and only the main thread may set handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    ours = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ours = [number for number in ours if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _exit_by_signal)

    def restore() -> None:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)

    return restore


def _exit_by_signal(number: int, frame: FrameType | None) -> None:
    """Unwind with the status that shells give to a process which this signal ended."""
    # A second signal must not interrupt the removal of drafts.
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _end_like_other_tools() -> None:
    """The reader of our output is gone: end by SIGPIPE, as `cat` does, or with its status."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
    sys.exit(141)


def _report_defect(error: Exception) -> None:
    """One line and where to report it; the traceback only on request."""
    if os.environ.get("BYHEART_DEBUG"):
        traceback.print_exception(error)
    what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": ")
    _fail(
        f"this is a bug in byheart, and proves or refutes nothing ({what}); please report it at {ISSUES}, with the "
        "command and what BYHEART_DEBUG=1 prints",
        DEFECT,
    )


def _fail(message: str | tuple[str, ...], status: int) -> None:
    """One line, or those of a list: names in a hostile file may hold control characters, which are shown and
    not executed."""
    from byheart.data.wording import visible

    first, *rest = (message,) if isinstance(message, str) else message
    click.echo("\n  ".join(map(visible, (f"byheart: {first}", *rest))), err=True)
    sys.exit(status)
