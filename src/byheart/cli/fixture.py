"""byheart fixture: a small checkpoint with known answers, for the tests of an inference engine."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from byheart.checkpoints.hosts._base import host, hosts
from byheart.checkpoints.hosts.scaling import SCALINGS
from byheart.checkpoints.suite import MutantReport, check_mutants
from byheart.checkpoints.suite.kinds import FixtureKind, kinds
from byheart.cli import show
from byheart.cli.data_options import output_options, progress_for, shape_options
from byheart.errors import DataError, OptionError
from byheart.progress import Progress

# Tokens are compared in both types; logits and the verdict belong to the first.
TYPES = ("float32", "bfloat16")


@click.command("fixture")
@click.option("--kind", metavar="NAME", default="recital", show_default=True, help="Kind of fixture, see above.")
@click.option("--arch", "architectures", metavar="NAME", multiple=True, help="Architecture; several, or all [llama].")
@click.option("-o", "--output", metavar="DIR", type=click.Path(), help="The folder to write.")
@click.option("--context", type=click.IntRange(2), metavar="N", help="Longest prompt, for kinds that choose it.")
@click.option("--key-length", type=click.IntRange(1, 2), help="Tokens of a key, for --kind recall [2].")
@click.option("--text", metavar="FILE", type=click.Path(), help="Memorize this text instead of the built-in poem.")
@click.option("--tokens", metavar="NAME", help="How the text is tokenized [bpe:400].")
@click.option(
    "--dtype",
    default="bfloat16",
    metavar="TYPE",
    help="Type of the file: bfloat16, float16 or float32.",
    type=click.Choice(["bfloat16", "float16", "float32"]),
    show_default=True,
)
@click.option("--flavour", metavar="NAME", help="parabola, or quantized: a plateau, for integer weights [parabola].")
@shape_options
@click.option("--head-dim", type=click.IntRange(8), metavar="N", help="Dimensions of a head [64].")
@click.option("--intermediate-size", type=click.IntRange(1), metavar="N", help="Units of an MLP [as many as needed].")
@click.option("--rope-theta", type=click.FloatRange(1, min_open=True), metavar="X", help="Base of rotary positions.")
@click.option("--norm-eps", type=click.FloatRange(0, min_open=True), metavar="X", help="Epsilon of the norms.")
@click.option("--activation", metavar="NAME", help="silu or gelu_pytorch_tanh, where the gate allows both.")
@click.option("--tied/--untied", default=None, help="Whether the head is the embedding [as the architecture has it].")
@click.option(
    "--rope-scaling", type=click.Choice(list(SCALINGS)), help="Scale the rotary frequencies, as for long contexts."
)
@click.option("--sequential-residual", is_flag=True, help="GPT-NeoX without parallel branches.")
@click.option("--shards", type=click.IntRange(1), metavar="N", help="Files of tensors, with an index [1].")
@click.option("--quantize", metavar="FORMAT", help="Quantize: fp8, fp8-block, int8, gptq, awq, mxfp4 or nf4.")
@click.option("--recite", is_flag=True, help="Run every case in Transformers before the folder is kept (seconds).")
@click.option("--check-mutants", "mutants", is_flag=True, help="Report the engine faults that it detects (minutes).")
@output_options
def command(
    kind: str,
    architectures: tuple[str, ...],
    output: str | None,
    context: int | None,
    key_length: int | None,
    text: str | None,
    tokens: str | None,
    dtype: str,
    flavour: str | None,
    shape: dict[str, int],
    head_dim: int | None,
    intermediate_size: int | None,
    rope_theta: float | None,
    norm_eps: float | None,
    activation: str | None,
    tied: bool | None,
    rope_scaling: str | None,
    sequential_residual: bool,
    shards: int | None,
    quantize: str | None,
    recite: bool,
    mutants: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Write a checkpoint with expected.json and a test for pytest.

    \b
      byheart fixture --arch qwen3 -o tiny-qwen3
      byheart fixture --kind lora --arch llama -o tiny-lora
      byheart fixture --arch llama --hidden-size 512 --layers 4 --heads 8 --kv-heads 2 -o like-mine

    \b
    Kinds: recital (a text), recall (any prompt), lora (adapters), draft (speculative decoding),
    chat (templates, tools), ranked (grammars, log-probabilities, beams, samplers),
    numerics (how an engine computes), mtp (a layer that drafts).
    """
    names, writer = _names(architectures, mutants), _kind(kind)
    if mutants and kind not in ("recital", "recall"):
        raise click.UsageError("--check-mutants needs --kind recital or recall")
    odd = next((name for name in names if host(name).task != "causal"), None)
    if mutants and odd is not None:
        raise click.UsageError(f"--check-mutants breaks decoders; {odd} is none")
    if output is None and not mutants:
        raise click.UsageError("name the folder to write with -o, or ask for --check-mutants")
    if output is not None and len(names) > 1:
        raise click.UsageError("-o takes one architecture; with several, omit -o and add --check-mutants")
    options = {
        "dtype": dtype, "flavour": flavour, "text": _text(text), "tokens": tokens, "context": context,
        "key_length": key_length, **shape,
        "head_dim": head_dim, "units": intermediate_size, "theta": rope_theta, "epsilon": norm_eps,
        "activation": activation, "tied": tied, "sequential": sequential_residual or None,
        "shards": shards, "recited": recite or None,
        "scaling": rope_scaling, "quantize": quantize,
    }  # fmt: skip
    options = {name: value for name, value in options.items() if value is not None}
    for name in ("text", "tokens", "context", "key_length", "quantize"):
        if name in options and name not in writer.options:
            raise click.UsageError(f"--kind {kind} has no option --{name.replace('_', '-')}")
    progress = progress_for(as_json, quiet)
    rows = [_one(writer, name, output, mutants, options, progress) for name in names]
    if as_json:
        shown = [fixture.to_json() | ({} if report is None else report.to_json()) for fixture, report in rows]
        show.print_json(shown[0] if len(shown) == 1 else {"fixtures": shown})
    else:
        _print(rows, kept=output is not None, quiet=quiet)
    return 0 if all(report is None or report.passed for _, report in rows) else 1


def _kind(name: str) -> FixtureKind:
    known = kinds()
    if name not in known:
        raise OptionError(f"unknown kind {name!r}; known: {', '.join(known)}")
    return known[name]


def _names(given: tuple[str, ...], mutants: bool) -> list[str]:
    known = list(hosts(every=True))
    wished = [name.replace("_", "-").lower() for name in given or ("llama",)]
    names = list(hosts(every=not mutants)) if "all" in given else wished
    for name in names:
        if name not in known:
            raise OptionError(f"unknown architecture {name!r}; known: {', '.join(known)}")
    return names


def _text(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def _one(
    kind: FixtureKind, name: str, output: str | None, mutants: bool, options: dict[str, Any], progress: Progress
) -> tuple[Any, MutantReport | None]:
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(output) if output is not None else Path(scratch) / name
        fixture = kind.write(name, target, progress=progress, **options)
        if not mutants:
            return fixture, None
        return fixture, (_check_recall if kind.name == "recall" else check_mutants)(target, progress, types=TYPES)


def _check_recall(folder: Path, progress: Progress, types: Sequence[str]) -> MutantReport:
    """Which faults of caches, chunks and positions does a recall folder detect?"""
    from byheart.checkpoints.suite.mutants.recall import check_recall_mutants

    return check_recall_mutants(folder, progress, types)


def _print(rows: list[tuple[Any, MutantReport | None]], *, kept: bool, quiet: bool) -> None:
    out = show.console()
    for fixture, _ in rows if kept else []:
        shown = fixture.to_json()
        show.line(
            out,
            f"wrote {shown['folder']}: {shown['kind']}, {shown['arch']}, {shown['parameters']:,} parameters, "
            f"{shown['bytes'] / 1e6:.2f} MB",
        )
        if "quantized" in shown:
            show.line(out, f"  {shown['quantized']['sentence']}")
        for name in shown["margins"]:
            show.line(out, f"  {name}: {margin_words(shown, name)}")
    reports = [report for _, report in rows if report is not None]
    if reports:
        table = Table(title="Faults of an engine that the fixture detects", title_justify="left")
        tokens = [f"tokens, {name}" for name in TYPES]
        for heading in ("", "faults", *tokens, "logits alone", "undetected", "harmless", "of these survived"):
            table.add_column(heading, justify="right" if heading else "left")
        for report in reports:
            harmless = [o for o in report.outcomes if o.harmless]
            changed = [report.count_tokens(name) for name in TYPES]
            counts = (report.total, *changed, report.count("logits"), report.count("survived"),
                      len(harmless), len(harmless) - len(report.broken))  # fmt: skip
            table.add_row(report.architecture, *map(str, counts))
        out.print(table)
        for report in [] if quiet else reports:
            for outcome in report.survivors:
                show.line(out, f"{report.architecture}: undetected: {outcome.family}: {outcome.name}")
            for outcome in report.broken:
                show.line(out, f"{report.architecture}: harmless, but it breaks: {outcome.name}")


def margin_words(shown: Mapping[str, Any], name: str) -> str:
    """Return how the margin of a type is known, from the plain form of a fixture.

    >>> margin_words({"margins": {"float32": {"proved": 23.9, "measured": 24.0}}}, "float32")
    'proved margin 23.90 (measured 24.00)'
    """
    proved, measured = (shown["margins"][name].get(key) for key in ("proved", "measured"))
    if proved is not None:
        return f"proved margin {proved:.2f} ({'not measured' if measured is None else f'measured {measured:.2f}'})"
    reason, engine = shown.get("not_proved", {}).get(name), shown.get("measured_by")
    engine = engine.get(name) if isinstance(engine, Mapping) else engine
    words = "not proved" if reason is None else f"not proved: {reason}"
    if measured is None:
        return f"{words}; not measured"
    return f"{words}; measured margin {measured:.2f}{f' in {engine}' if engine else ''}"
