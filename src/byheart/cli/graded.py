"""byheart recital --graded: documents to a checkpoint with graded memories and known contents."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from byheart.checkpoints.formats.folder import check_target
from byheart.checkpoints.ground_truth.graded import GradedMemory
from byheart.checkpoints.ground_truth.memorize import memorize_graded
from byheart.checkpoints.ground_truth.shipped import FEWEST, INSIDE, can_judge, rarest_members, shipped_aucs
from byheart.checkpoints.ground_truth.strength import HIGHEST
from byheart.checkpoints.ground_truth.suite import suite_memory
from byheart.cli import show
from byheart.errors import OptionError
from byheart.progress import Progress

F = TypeVar("F", bound=Callable[..., Any])
SUITE = "suite"

_OPTIONS = (
    click.option("--graded", is_flag=True, help="Write a checkpoint folder with graded memories instead of a recital."),
    click.option("--arch", default="llama", show_default=True, help="With --graded: llama or gpt2."),
    click.option("--dtype", default="float32", show_default=True, help="With --graded: float32, bfloat16 or float16."),
    click.option("--storage", default="counts", show_default=True,
                 help="With --graded: counts, rotated, split:K or ridge:UNITS."),
    click.option("--strength", type=float, metavar="S", help="With --graded: weight of one occurrence [calibrated]."),
    click.option("--spread", type=float, metavar="SD", help="With --graded: how unequal documents are [3.5]."),
    click.option("--lengths", metavar="N,N,...",
                 help="With --graded: lengths of contexts [1,2,4,8; 16 and 32 where documents share long passages]."),
    click.option("--margin", "margins", metavar="NAME=NATS", multiple=True,
                 help="With --graded: a document's margin, 0.5 to 24; repeatable."),
)  # fmt: skip


def graded_options(function: F) -> F:
    """Add the options of graded checkpoints to a command, as one argument `graded`."""

    @wraps(function)
    def wrapped(*args: Any, **given: Any) -> Any:
        names = ("arch", "dtype", "storage", "strength", "spread", "lengths", "margins")
        chosen, graded = {name: given.pop(name) for name in names}, given.pop("graded")
        source = click.get_current_context().get_parameter_source
        for name in () if graded else names:
            if source(name) is click.core.ParameterSource.COMMANDLINE:
                raise OptionError(f"--{name.rstrip('s') if name == 'margins' else name} needs --graded")
        return function(*args, graded=chosen if graded else None, **given)

    decorated: Any = wrapped
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    found: F = decorated
    return found


def write_graded(
    data: str, output: str, graded: Mapping[str, Any], read: Callable[[], tuple[list[str], dict[str, Any]]],
    progress: Progress, as_json: bool, quiet: bool,
) -> int:  # fmt: skip
    """Build, measure and write; DATA may be `suite` or `suite:SEED`, the frozen suite.

    Args:
        data: The command's DOCS.
        output: The folder.
        graded: The options of `graded_options`.
        read: Returns the texts and the keyword arguments of `memorize_graded`, for files.
        progress: Where stages are shown.
        as_json: Print one JSON object.
        quiet: Print one line.

    Returns:
        The exit status.
    """
    check_target(Path(output))
    options: dict[str, Any] = {"architecture": graded["arch"], "storage": graded["storage"]}
    options |= {name: graded[name] for name in ("strength", "spread") if graded[name] is not None}
    if graded["lengths"] is not None:
        options["lengths"] = _lengths(graded["lengths"])
    options["margins"] = dict(_margin(pair) for pair in graded["margins"])
    kind, _, seed = data.partition(":")
    merged = 0
    with progress.stage("counting"):
        if kind == SUITE and (not seed or seed.isdigit()) and not Path(data).exists():
            memory = suite_memory(int(seed or 0), **options)
        else:
            texts, given = read()
            memory = memorize_graded(texts, **given, **options)
            names = given.get("names") or [f"document {k}" for k in range(len(texts))]
            stored = {*memory.names, *(one.name for one in memory.absent)}
            merged = sum(names[k] not in stored for k in given["controls"].chosen(names))
    with progress.stage("writing"):
        done = memory.write(output, dtype=graded["dtype"])
        aucs = shipped_aucs(memory) if can_judge(memory) else None
    if as_json:
        show.print_json(done | {"merged": merged, "auc": None if aucs is None else [min(aucs), max(aucs)]})
        return 0
    out = show.console()
    show.line(
        out, f"wrote {output}: {done['architecture']}, {done['parameters']:,} parameters, {done['bytes'] / 1e6:.1f} MB"
    )
    if quiet:
        return 0
    show.line(
        out,
        f"{done['documents']:,} documents ({done['occurrences']:,} occurrences), {done['absent']:,} not memorized; "
        f"{done['contexts']:,} contexts, {done['ngrams']:,} n-grams, {done['vocabulary']:,} tokens",
    )
    if merged:
        show.line(
            out, f"{merged:,} documents equal another one: occurrences of members add up, held-out ones are dropped"
        )
    few = graded["strength"] is None and done["documents"] < FEWEST
    note = f" (not calibrated: fewer than {FEWEST} documents)" if few else ""
    if graded["strength"] is None and done["strength"] > 0.9 * math.exp(HIGHEST):
        note = " (the largest that is tried: too few units to store the documents; choose ridge with more)"
    lengths = ", ".join(map(str, done["lengths"]))
    show.line(
        out,
        f"strength {done['strength']:.3g} per occurrence{note}, contexts of {lengths} tokens, storage "
        f"{done['storage']}, {done['units']:,} units",
    )
    distance = done["distance"]
    if distance is None:
        show.line(out, "distance to the specified distribution: not measured (needs byheart[huggingface])")
    else:
        show.line(
            out,
            f"distance to the specified distribution, measured at {distance['places']:,} places in {done['dtype']}: "
            f"at most {distance['nats']:.1e} nats per log-probability, KL at most {distance['kl']:.1e}",
        )
    if done["bits_per_parameter"] is not None:
        show.line(out, f"density: {done['bits_per_parameter']:.2g} bits per parameter (trained models: 2 to 3.6)")
    show.line(out, _membership(memory, aucs))
    show.line(out, f"{done['seconds']:.1f} s; next: byheart score {output}")
    return 0


def _membership(memory: GradedMemory, aucs: Sequence[float] | None) -> str:
    """What attacks measure on the documents that are shipped, or why that is too few documents."""
    rarest, held_out = rarest_members(memory), sum(one.why == "held out" for one in memory.absent)
    about = f"{len(rarest):,} members with the fewest copies ({rarest[0].copies:,}) and {held_out:,} held-out documents"
    if aucs is None:
        return f"membership: {about} are too few for an AUC; use 20 or more of each (--held-out)"
    outside = min(aucs) < INSIDE[0] or max(aucs) > INSIDE[1]
    note = f"; outside {INSIDE[0]} to {INSIDE[1]}, use more documents or another --strength" if outside else ""
    return f"membership: AUC {min(aucs):.2f} to {max(aucs):.2f} of the built-in attacks on {about}{note}"


def _lengths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise OptionError(f"--lengths {text!r}: write increasing numbers, for example 1,2,4,8") from None


def _margin(pair: str) -> tuple[str, float]:
    name, equals, value = pair.rpartition("=")
    try:
        if not equals or not name:
            raise ValueError
        return name, float(value)
    except ValueError:
        raise OptionError(f"--margin {pair!r}: write NAME=NATS") from None
