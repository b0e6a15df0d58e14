"""byheart diagnose: the closest known faults, from the tokens and logits that an engine returned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from byheart.cli import show
from byheart.cli.data_options import output_options, progress_for
from byheart.errors import FileFormatError


@click.command("diagnose")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.argument("answers", metavar="[ANSWERS.json]", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option("--engine", metavar="NAME", help="Run the queries in this engine, or in a server by its URL.")
@click.option("--dtype", metavar="TYPE", help="Type that the engine computes in [float32].")
@click.option("--option", "settings", metavar="KEY=VALUE", multiple=True, help="A setting of the engine.")
@click.option("--tokens-only", is_flag=True, help="Ignore logits.")
@click.option("--queries", is_flag=True, help="Print the queries as JSON and stop.")
@output_options
def command(
    folder: str,
    answers: str | None,
    engine: str | None,
    dtype: str | None,
    settings: tuple[str, ...],
    tokens_only: bool,
    queries: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Name the known faults that return what an engine returned for DIR, a folder of the kind recital.

    Faults that the answers do not separate are one class. A distance beyond the limit is reported as unknown. The first
    run for a folder computes the signatures of all known faults (a few minutes) and caches them.

    Exit status: 0 no difference or a legitimate approximation, 1 a difference, 2 bad input.

    \b
      byheart diagnose tiny-llama --engine llama.cpp --dtype F16
      byheart diagnose tiny-llama --queries > queries.json
      byheart diagnose tiny-llama answers.json --dtype bfloat16

    \b
    ANSWERS.json: {"dtype": "float32", "answers": {NAME: {"tokens": [...], "logits": [[...], ...]}}}; tokens are
    the most likely ones after every prefix, logits those of the correct and of the failure token.
    """
    from byheart.checkpoints.suite.diagnosis import AnswerSignature, DiagnosisQueries

    if sum((answers is not None, engine is not None, queries)) != 1:
        raise click.UsageError("give ANSWERS.json, --engine NAME, or --queries")
    queried = DiagnosisQueries(folder)
    if queries:
        show.print_json(queried.to_json())
        return 0
    if engine is not None:
        observed, kind = _observe(queried, folder, engine, dtype, settings)
    else:
        content = _read(Path(str(answers)))
        observed = queried.read(content.get("answers", {}))
        kind = dtype or str(content.get("dtype", "float32"))
    if tokens_only:
        observed = AnswerSignature(observed.tokens, observed.errors * float("nan"))
    found = queried.diagnose(observed, kind, progress=progress_for(as_json, quiet))
    if as_json:
        show.print_json(found.to_json())
    else:
        _print(found, quiet)
    return 0 if found.verdict in ("no difference", "approximation") else 1


# Engines name their types differently; the scale of errors is that of the stored numbers.
_KINDS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "served": "bfloat16"}


def _observe(queried: Any, folder: str, engine: str, dtype: str | None, settings: tuple[str, ...]) -> tuple[Any, str]:
    from byheart.checkpoints.suite.adapters import engine_adapter, open_adapter
    from byheart.cli.recite import _pairs

    adapter = open_adapter(engine_adapter(engine, dtype, _pairs(settings)), Path(folder))
    try:
        return queried.observe(adapter), _KINDS.get(adapter.dtype, adapter.dtype)
    finally:
        close = getattr(adapter, "close", None)
        if callable(close):
            close()


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FileFormatError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("answers"), dict):
        raise FileFormatError(f'{path} must be an object with "answers": {{query: {{"tokens": [...]}}}}')
    return content


def _print(found: Any, quiet: bool) -> None:
    out = show.console()
    error = "" if found.largest is None else f", largest error of a logit {found.largest:.3g} nats"
    if not quiet:
        show.line(out, f"{found.incorrect} of {found.compared} tokens incorrect{error}")
    if found.verdict == "unknown":
        show.line(out, f"unknown: no known fault is closer than {found.limit:g}")
    elif found.verdict == "no difference":
        show.line(out, found.verdict)
    for rank, one in enumerate(found.classes):
        close = found.verdict in ("known", "approximation")
        words = "looks like" if rank == 0 and close else "next" if rank else "nearest"
        several = f" (or {len(one.names) - 1} more: {', '.join(one.names[1:5])})" if len(one.names) > 1 else ""
        show.line(out, f"{words}: {one.names[0]}{several}; {', '.join(one.families)}; distance {one.distance:.3f}")
