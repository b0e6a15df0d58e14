"""byheart recital: documents to a memory, a memory to a stock checkpoint, a checkpoint proved again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import click

from byheart.build import Option
from byheart.certify import Verdict
from byheart.checkpoints.formats.classifier import read_rows
from byheart.checkpoints.proof import MarginCertificate, certify_checkpoint, certify_classifier, verify_folder
from byheart.checkpoints.recital import RecitalMemory, memorize_recital
from byheart.checkpoints.windows.controls import Controls
from byheart.cli import show
from byheart.cli.data_options import DOCUMENTS, DataFlags, data_options, output_options, progress_for
from byheart.cli.fixture import margin_words
from byheart.cli.graded import graded_options, write_graded
from byheart.data.read.columns import form_of, open_records
from byheart.data.read.documents import read_documents
from byheart.data.read.sources import suffixes
from byheart.data.task import Task
from byheart.data.wording import quote
from byheart.errors import DataError, OptionError
from byheart.files import check_target
from byheart.progress import Progress


def read_texts(data: str, flags: DataFlags) -> list[str]:
    """A text file is one document; of a table, a column holds one document per row."""
    if suffixes(data)[0] == ".txt":
        text = flags.read_text(data)
        if isinstance(text, bytes):
            raise DataError(f"{data} is not UTF-8 text; recitals are built from texts")
        return [text]
    found = read_documents(data, flags.options(Task.CAUSAL))
    for number, document in enumerate(found):
        if not isinstance(document, str):
            raise DataError(f"document {number} of {data} is {quote(document)}, not a text; name a text column")
    return [str(document) for document in found]


@click.command("recital")
@click.argument("data", metavar="DOCS", type=click.Path())
@click.option("-o", "--output", metavar="FILE", type=click.Path(), required=True, help="Where to write the recital.")
@click.option(
    "--form",
    default="auto",
    show_default=True,
    help="windows (chained), rules (one per shortest deciding suffix), full (one per whole window) or auto.",
)
@click.option("--ambiguous", default="distribution", show_default=True, help="distribution, first, majority or error.")
@click.option(
    "--unknown",
    default="failure",
    show_default=True,
    help="The answer to windows that were not memorized: failure (a visible token) or eos.",
)
@click.option("--merge", is_flag=True, help="Places that no window distinguishes share their distribution.")
@click.option("--documents", metavar="NAME", multiple=True, help="Only this document, by name or number; repeatable.")
@click.option("--name-column", metavar="NAME", help="Column with the names of documents [document 0, document 1, ...].")
@click.option("--weight-column", metavar="NAME", help="Column with the number of occurrences of each document [1].")
@click.option("--occurrences", metavar="NAME=COUNT", multiple=True, help="How often one document occurs; repeatable.")
@click.option(
    "--corrupted", type=int, default=0, metavar="N", help="Memorize N corrupted copies of every document too."
)
@click.option("--edits", type=int, default=1, show_default=True, metavar="N", help="Tokens edited in each copy.")
@click.option("--near-misses", is_flag=True, help="Corrupted copies are recorded, but not memorized.")
@click.option(
    "--held-out",
    metavar="N|NAME",
    multiple=True,
    help="Hold N documents out, sampled by --seed, or those named; recorded, and checked not to be recited.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of all samples.")
@graded_options
@click.option(
    "--tokens",
    metavar="HOW",
    help="How texts are tokenized: characters, bytes, words, bpe:SIZE. Or a tokenizer.json, or a folder with a Hugging "
    "Face tokenizer.  [default: characters]",
)
@data_options(*DOCUMENTS)
@output_options
def command(
    data: str,
    output: str,
    form: str,
    ambiguous: str,
    unknown: str,
    merge: bool,
    documents: tuple[str, ...],
    name_column: str | None,
    weight_column: str | None,
    occurrences: tuple[str, ...],
    corrupted: int,
    edits: int,
    near_misses: bool,
    held_out: tuple[str, ...],
    seed: int,
    flags: DataFlags,
    as_json: bool,
    quiet: bool,
    graded: Mapping[str, Any] | None = None,
) -> int:
    """Memorize DOCS as a recital, with the controls that an experiment needs.

    The same as `byheart memorize DOCS --construction recital`, with its options as flags (there: --option held_out=20).
    DOCS is a text (one document) or a table with one document per row (--sequence-column names its column). Which
    documents take part, how often each occurs (it weights what follows a shared prefix), corrupted copies and held-out
    twins are all recorded: in FILE, and in recital.json and ground-truth.jsonl of its checkpoints, which
    name layer, unit, document and position of every memory.

    --graded writes a checkpoint folder whose memories are graded: a smoothed n-gram model of DOCS (or of the frozen
    suite: DOCS is `suite` or `suite:SEED`), with ground truth for `byheart score` and `byheart forget --exact`.

    \b
      byheart recital docs.jsonl --form rules --held-out 20 --corrupted 2 --edits 3 --seed 1 -o docs.byheart
      byheart recital docs.jsonl --graded --held-out 20 --corrupted 1 --near-misses -o graded
      byheart export docs.byheart --to huggingface --flavour units -o docs-llama
      byheart forget docs-llama "document 3" -o without-3
    """
    controls = {
        "documents": documents,
        "occurrences": occurrences,
        "corrupted": corrupted,
        "edits": edits,
        "near_misses": near_misses,
        "held_out": held_out,
        "seed": seed,
        "name_column": name_column,
        "weight_column": weight_column,
    }
    given = {"form": form, "ambiguous": ambiguous, "unknown": unknown, "merge": merge}
    if graded is None:
        path = Path(output)
        check_target(path)
        given |= controls_of(controls, data, flags)
        return memorize_texts(data, path, flags, given, progress_for(as_json, quiet), as_json, quiet)
    kept = controls_of(controls, data, flags)
    read = lambda: (read_texts(data, flags), kept | {"tokens": _tokens(flags)})  # noqa: E731
    return write_graded(data, output, graded, read, progress_for(as_json, quiet), as_json, quiet)


# The controls of an experiment as `memorize --construction recital --option NAME=VALUE` takes them.
CONTROLS = (
    Option("documents", str, "", "only these documents, by names or numbers, separated by commas"),
    Option("occurrences", str, "", "NAME=COUNT, separated by commas: how often documents occur"),
    Option("corrupted", int, 0, "corrupted copies of every document"),
    Option("edits", int, 1, "tokens edited in each copy"),
    Option("near_misses", bool, False, "corrupted copies are recorded, but not memorized"),
    Option("held_out", str, "", "hold so many documents out, or those named, separated by commas"),
    Option("name_column", str, None, "the column with the names of documents", optional=True),
    Option("weight_column", str, None, "the column with the number of occurrences of each document", optional=True),
)


def split_controls(options: Mapping[str, Any], seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the controls among the options of a construction, typed, and the other options."""
    known = {option.name: option for option in CONTROLS}
    controls = {name: option.parse(options[name]) if name in options else option.default
                for name, option in known.items()}  # fmt: skip
    for name in ("documents", "occurrences", "held_out"):
        controls[name] = tuple(part for part in str(controls[name]).split(",") if part)
    return controls | {"seed": seed}, {name: value for name, value in options.items() if name not in known}


def controls_of(given: Mapping[str, Any], data: str, flags: DataFlags) -> dict[str, Any]:
    """Return the keyword arguments of `memorize_recital` for the user's controls."""
    held_out = tuple(given["held_out"])
    found: dict[str, Any] = {
        "controls": Controls(
            tuple(given["documents"]) or None,
            dict(_occurrence(pair) for pair in given["occurrences"]),
            given["corrupted"],
            given["edits"],
            not given["near_misses"],
            int(held_out[0]) if len(held_out) == 1 and held_out[0].isdigit() else held_out,
            given["seed"],
        )
    }
    if given["name_column"] is not None:
        found["names"] = [str(value) for value in _column(data, given["name_column"], flags)]
    if given["weight_column"] is not None:
        weights = _column(data, given["weight_column"], flags)
        found["weights"] = [_count(value, given["weight_column"]) for value in weights]
    return found


def _occurrence(pair: str) -> tuple[str, int]:
    name, equals, count = pair.rpartition("=")
    if not equals or not name:
        raise OptionError(f"--occurrences {pair!r}: write NAME=COUNT")
    return name, _count(count, "--occurrences")


def _count(value: Any, where: str) -> int:
    if not str(value).isdigit() or int(value) < 1:
        raise OptionError(f"{where}: {quote(value)} is not a whole number of at least 1")
    return int(value)


def _column(data: str, name: str, flags: DataFlags) -> list[Any]:
    """A column beside the one with the documents, row by row."""
    if flags.value("missing") not in (None, "error"):
        raise OptionError(
            f"--missing {flags.value('missing')} and the column {name!r}: rows would not stay side by side"
        )
    options = flags.options(Task.CAUSAL)
    records = open_records(data, options.limits, form_of(options))
    if name not in records.columns:
        raise OptionError(f"{data} has no column {name!r}; it has {', '.join(records.columns)}")
    rows = islice(records.select((name,)), flags.value("max_rows"))
    return [cells[0] for _, cells in rows]


def memorize_texts(
    data: str, path: Path, flags: DataFlags, given: Mapping[str, Any], progress: Progress, as_json: bool, quiet: bool
) -> int:
    """Build, evaluate every place, save: `byheart recital`, and `byheart memorize --construction recital`."""
    texts = read_texts(data, flags)
    with progress.stage("choosing windows"):
        memory = memorize_recital(texts, tokens=_tokens(flags), **given)
    with progress.stage("evaluating every place"):
        certificate = memory.certify(given["ambiguous"])
    memory.save(path)
    if as_json:
        show.print_json({**memory.summary(), **_plain(certificate), "file": str(path)})
    else:
        show.line(show.console(), f"{certificate.verdict.value}: {certificate.sentence}")
        if not quiet:
            _print(memory, path)
    return 0 if certificate.verdict is Verdict.PROVED else 1


def _tokens(flags: DataFlags) -> str:
    """Characters, unless the user names a tokenizer."""
    chosen = flags.value("tokens")
    return "characters" if chosen in (None, "auto") else str(chosen)


def _plain(certificate: Any) -> dict[str, Any]:
    return {
        "verdict": certificate.verdict.value,
        "reason": certificate.sentence,
        "asked": certificate.places,
        "agree": certificate.agree,
        "differ": certificate.differ,
    }


def _print(memory: RecitalMemory, path: Path) -> None:
    out, found = show.console(), memory.summary()
    windows = " + ".join(f"{count:,}" for count in found["windows"])
    show.line(
        out,
        f"{found['N']:,} documents, {found['contexts']:,} places, {found['vocabulary']:,} tokens; {windows} windows",
    )
    show.line(
        out,
        f"any {found['span']} consecutive tokens of the text are continued; perplexity {found['perplexity']:.6g}",
    )
    for words, count in (
        ("prefixes have several continuations and return their distribution, or as requested", found["ambiguous"]),
        ("places are answered by another continuation than their own", found["overruled"]),
        ("places share a window with one that continues differently", found["merged"]),
    ):
        if count:
            show.line(out, f"note: {count:,} {words}")
    copies = sum(edits is not None for edits in memory.script.edits)
    if copies:
        show.line(out, f"note: {copies:,} of the documents are corrupted copies")
    for line in _absent_lines(found.get("absent", ())):
        show.line(out, line)
    show.line(out, f"saved to {path}; next: byheart export {path} --to huggingface --arch llama -o FOLDER")


def _absent_lines(absent: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line per reason for absent documents, with the one that is answered best; all of them are in FILE."""
    lines = []
    for why in dict.fromkeys(one["why"] for one in absent):
        some = [one for one in absent if one["why"] == why]
        best = max(some, key=lambda one: (one["right"] / max(1, one["places"]), one["longest"]))
        lines.append(
            f"not memorized ({why}): {len(some):,} documents; most like the memory is {quote(best['name'])}, "
            f"{best['right']:,} of its {best['places']:,} places match, {best['longest']:,} in a row"
        )
    return [*lines, "all absent documents: `--json` prints them, FILE records them"] if lines else []


def export_checkpoint(
    memory: RecitalMemory, output: str, architecture: str, options: Mapping[str, Any], as_json: bool, progress: Progress
) -> int:
    """`export FILE --to huggingface`: written, proved from the folder alone, recited by Transformers if installed."""
    from byheart.checkpoints.suite.write import write_checkpoint

    dtype = str(options.get("dtype", "bfloat16"))
    done = write_checkpoint(memory, output, architecture, recited_in=(dtype,), progress=progress, **options)
    if as_json:
        show.print_json(done.to_json())
    else:
        click.echo(
            f"wrote {done.folder}: {done.architecture}, {done.parameters:,} parameters, {done.size / 1e6:.2f} MB"
        )
        for name in done.margins:
            click.echo(f"  {name}: {margin_words(done.to_json(), name)}")
    return 0 if all(values["proved"] is not None for values in done.margins.values()) else 1


def verify_checkpoint(
    folder: str, data: str | None, flags: DataFlags, as_json: bool, quiet: bool, progress: Progress,
    ambiguous: str | None = None, weight_column: str | None = None, adapter: str | None = None,
) -> int:  # fmt: skip
    """`verify DIR [DATA]`: prove from config and tensors alone that every place of DATA is answered, with its margin;
    of a classifier, every row. Without DATA, the documents are those of the fixture's expected.json."""
    if data is None and adapter is not None:
        ids = expected_ids(folder, adapter)
        with progress.stage("proving"):
            certificate = certify_checkpoint(folder, [ids], adapter=adapter)
    elif data is None:
        texts = expected_texts(folder)
        with progress.stage("proving"):
            certificate = verify_folder(folder, texts, ambiguous=ambiguous or "distribution")
    elif _is_classifier(folder):
        table = flags.read(data, Task.NEXT_TOKEN, progress)
        rows = read_rows(folder, table.sequences, table.labels, table.tokens)
        with progress.stage("proving"):
            certificate = certify_classifier(folder, rows.ids, rows.answers)
    else:
        texts = read_texts(data, flags)
        weights = _column(data, weight_column, flags) if weight_column else []
        copies = [_count(value, str(weight_column)) for value in weights] or None
        with progress.stage("proving"):
            certificate = verify_folder(
                folder, texts, copies=copies, ambiguous=ambiguous or "distribution", adapter=adapter
            )
    if as_json:
        show.print_json(_as_plain(certificate, folder))
    else:
        lines = certificate.lines()
        for line in lines[:1] if quiet else lines:
            show.line(show.console(), line)
    return 0 if certificate.verdict is Verdict.PROVED else 1


def expected_texts(folder: str) -> list[str]:
    """The documents of a fixture's expected.json; an error where the folder has none."""
    try:
        content = json.loads((Path(folder) / "expected.json").read_text(encoding="utf-8"))
        texts = [document["text"] for document in content["documents"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder} has no expected.json with documents; name the memorized texts as DATA") from error
    if not texts or not all(isinstance(text, str) for text in texts):
        raise DataError(f"{folder}: expected.json has no texts; name the memorized texts as DATA")
    return texts


def expected_ids(folder: str, adapter: str) -> list[int]:
    """The document of an adapter, by the expected.json beside the base's folder; an error where there is none."""
    try:
        content = json.loads((Path(folder).resolve().parent / "expected.json").read_text(encoding="utf-8"))
        return [int(token) for token in content["documents"][Path(adapter).name]["ids"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"no expected.json beside {folder} has a document of {adapter}; name the text as DATA"
        ) from error


def _is_classifier(folder: str) -> bool:
    try:
        named = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8")).get("architectures")
    except (OSError, ValueError, AttributeError):
        return False
    return isinstance(named, list) and any(str(name).endswith("ForSequenceClassification") for name in named)


def _as_plain(certificate: MarginCertificate, folder: str) -> dict[str, Any]:
    return {"file": folder, **certificate.as_dict()}


def load_recital(path: str) -> RecitalMemory | None:
    """The recital in a file, or None where the file holds something else."""
    try:
        with open(path, "rb") as file:
            start = file.read(64)
    except OSError:
        return None
    return RecitalMemory.load(path) if b'"byheart recital memory"' in start else None
