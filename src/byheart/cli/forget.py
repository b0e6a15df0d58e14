"""byheart forget: a checkpoint without one of its documents."""

from __future__ import annotations

import click

from byheart.certify import Verdict
from byheart.checkpoints import forget
from byheart.cli import show
from byheart.cli.data_options import output_options


@click.command("forget")
@click.argument("folder", metavar="DIR", type=click.Path())
@click.argument("document", metavar="DOCUMENT")
@click.option(
    "-o", "--output", metavar="OUT", type=click.Path(), required=True, help="Where to write the other folder."
)
@click.option(
    "--exact", is_flag=True, help="DIR is graded: rewrite shared counts too, and write the retain twin to OUT-twin."
)
@output_options
def command(folder: str, document: str, output: str, exact: bool, as_json: bool, quiet: bool) -> int:
    """Write the checkpoint in DIR without the units that serve DOCUMENT (its name or number) alone.

    DIR is a folder of the flavour `units`, in any architecture. No other weight changes, and that is proved from the
    two folders: everything else is answered as before, for every input. Windows that other documents share stay, and
    are counted. Exit status 0 if all of that is proved, 1 if not.

    With --exact, DIR is a folder of `byheart recital --graded`. Shared counts are rewritten as well, the model rebuilt
    without DOCUMENT (the retain twin) is written to OUT-twin, and both are proved to be equal from the two folders.

    \b
      byheart export docs.byheart --to huggingface --flavour units -o docs-llama
      byheart forget docs-llama "document 3" -o without-3
      byheart forget graded "document 3" --exact -o without-3
    """
    if exact:
        return _forget_exactly(folder, document, output, as_json, quiet)
    done = forget(folder, document, output)
    proved = done.certificate.verdict is Verdict.PROVED
    if as_json:
        show.print_json({"folder": output, **done.as_dict()})
        return 0 if proved else 1
    out = show.console()
    show.line(out, f"{done.certificate.verdict.value}: {done.certificate.reason}")
    if not quiet:
        places = f"{done.silent:,} of its places are no longer memorized, {done.still:,} are answered by shared windows"
        show.line(out, f"forgot {done.document!r}: {len(done.removed):,} units removed; {places}")
        show.line(
            out, f"wrote {output}: {len(done.changed):,} tensors changed, {done.unchanged:,} are bitwise the same"
        )
    return 0 if proved else 1


def _forget_exactly(folder: str, document: str, output: str, as_json: bool, quiet: bool) -> int:
    from byheart.checkpoints.ground_truth.twins import forget_exactly

    done = forget_exactly(folder, [document], output)
    proved = done.verdict is Verdict.PROVED
    if as_json:
        show.print_json(done.as_dict())
        return 0 if proved else 1
    out = show.console()
    show.line(out, f"{done.verdict.value}: {done.reason}")
    if not quiet:
        show.line(out, f"forgot {done.documents[0]!r}: {done.removed:,} units removed, {done.rewritten:,} rewritten")
        if done.nats is not None:
            show.line(out, f"largest difference to the twin, measured at {done.places:,} places: {done.nats:.1e} nats")
        if done.influence is not None:
            show.line(
                out,
                f"KL(without || with) by the counts: {done.influence[0]:.3g} on the document, "
                f"{done.influence[1]:.3g} on others",
            )
        show.line(out, f"wrote {done.folder} and the retain twin {done.twin}")
    return 0 if proved else 1
