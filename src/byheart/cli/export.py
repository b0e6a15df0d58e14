"""byheart export: a memory for PyTorch, ONNX Runtime or safetensors.

byheart export DIR: a checkpoint folder as GGUF or ONNX.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from byheart.certify import Verdict
from byheart.checkpoints.engines.convert import convert_folder
from byheart.checkpoints.recital import RecitalMemory
from byheart.cli import show
from byheart.cli.data_options import (
    RECORDED,
    DataFlags,
    budget_options,
    data_options,
    load_limited,
    output_options,
    progress_for,
    shape_options,
)
from byheart.cli.verify import check_data
from byheart.data.dataset.dataset import Dataset
from byheart.errors import DataError
from byheart.export.targets import targets
from byheart.files import check_target
from byheart.memory import Memory
from byheart.memory.export_memory import export_file
from byheart.progress import Progress

FORMATS = [*sorted(targets()), "huggingface", "gguf"]  # of a memory, of a recital, of a checkpoint folder


@click.command("export")
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--to", "target", type=click.Choice(FORMATS), required=True, help="What to write.")
@click.option("-o", "--output", metavar="OUT", type=click.Path(), required=True, help="Where to write it.")
@click.option(
    "--dtype", metavar="TYPE", help="float64 or float32 [the memory's own]; for a folder F16, Q8_0, float16 ..."
)
@click.option(
    "--data",
    metavar="DATA",
    type=click.Path(),
    help="Verify the memory on this data first, and recheck the model on every row of it (otherwise on 10,000 sampled "
    "inputs).",
)
@click.option("--arch", metavar="NAME", default="llama", show_default=True, help="For huggingface: the architecture.")
@click.option("--flavour", metavar="NAME", help="For huggingface: parabola, quantized (a plateau) or units.")
@click.option(
    "--style",
    type=click.Choice(["robust", "compact"]),
    default="robust",
    show_default=True,
    help="For a recital: robust has a margin in every type; compact is a float32 Llama of few parameters without one.",
)
@shape_options
@data_options(*RECORDED)
@budget_options
@output_options
def command(
    file: str,
    target: str,
    output: str,
    dtype: str | None,
    data: str | None,
    arch: str,
    flavour: str | None,
    style: str,
    shape: dict[str, int],
    flags: DataFlags,
    as_json: bool,
    quiet: bool,
) -> int:
    """Write the memory in FILE as a model that runs without byheart and answers bit for bit the same.

    A memory whose numbers do not fit the float type is refused. Every export is compared with the exact answers first.
    With --data, the memory is verified as `byheart verify` does it, and nothing is written unless it is proved.
    FILE may be a checkpoint folder (fixture, --to huggingface), which becomes GGUF or ONNX with a key-value cache.

    --to huggingface: a recital becomes a stock language model (AutoModelForCausalLM), a table of rows with a class each
    a stock classifier (AutoModelForSequenceClassification; needs --data, since FILE has no rows). Both are proved from
    the written folder where the checker can, and run in Transformers where it is installed; exit status 1 where the
    margin is not proved.

    \b
      byheart export table.byheart --to onnx -o table.onnx --data table.csv
      byheart export poem.byheart --to huggingface --arch qwen3 -o tiny-qwen3
      byheart export poem.byheart --to huggingface --style compact -o small-llama
      byheart export table.byheart --to huggingface --data table.csv -o table-llama
      byheart export tiny-llama --to gguf --dtype Q8_0 -o tiny-llama.gguf
    """
    if target == "huggingface":
        from byheart.cli.recital import export_checkpoint, load_recital

        recital = load_recital(file)
        options = {name: value for name, value in {**shape, "dtype": dtype, "flavour": flavour}.items() if value}
        if recital is None:
            return _export_classifier(file, data, flags, output, arch, options, as_json, progress_for(as_json, quiet))
        if style == "compact":
            return _export_compact(recital, output, arch, options, as_json, progress_for(as_json, quiet))
        return export_checkpoint(recital, output, arch, options, as_json, progress_for(as_json, quiet))
    check_target(Path(output))
    if Path(file).is_dir():
        return export_folder(file, target, output, dtype, as_json)
    if target == "gguf" or dtype not in (None, "float64", "float32"):
        raise click.UsageError("GGUF and types other than float64 and float32 are for checkpoint folders")
    memory, progress = load_limited(file), progress_for(as_json, quiet)
    memory, dataset = _with_data(memory, file, data, flags, progress)
    written = export_file(memory, target, output, dtype=dtype, dataset=dataset, progress=progress)
    about = written["metadata"]
    if as_json:
        shown: dict[str, Any] = {name: about[f"byheart.{name}"] for name in ("dtype", "checked", "exactness")}
        shown |= {"target": target, "recognises_unknown": memory.abstains}
        show.print_json({**{k: v for k, v in written.items() if k != "metadata"}, **shown})
    else:
        click.echo(f"wrote {written['file']} ({about['byheart.dtype']}), checked on {about['byheart.checked']}")
        if not (quiet or memory.abstains):
            remedy = f"memorize with --for {target} (abstain_bits=16) to have them recognised"
            click.echo(f"note: it answers rows that were never memorized by some label, too; {remedy}")
    return 0


def _with_data(
    memory: Memory, file: str, data: str | None, flags: DataFlags, progress: Progress
) -> tuple[Memory, Dataset | None]:
    """The memory proved on DATA, and DATA's rows as they were evaluated."""
    if data is None:
        return memory, None
    checked, _ = check_data(memory, data, flags, progress)
    if checked.certificate.verdict is not Verdict.PROVED:
        scope = checked.certificate.count_words
        raise DataError(f"{file} does not store {data}: {checked.certificate.reason} ({scope})")
    return checked.renew(memory), checked.asked


def _export_classifier(
    file: str,
    data: str | None,
    flags: DataFlags,
    output: str,
    architecture: str,
    options: dict[str, Any],
    as_json: bool,
    progress: Progress,
) -> int:
    """A table for AutoModelForSequenceClassification; status 1 where its margin is measured only."""
    from byheart.checkpoints.formats.table import to_huggingface

    memory, dataset = _with_data(load_limited(file), file, data, flags, progress)
    done = to_huggingface(memory, output, architecture, dataset=dataset, progress=progress, **options)
    if as_json:
        show.print_json(done)
        return 0 if done["verdict"] == Verdict.PROVED.value else 1
    margins = ", ".join(f"{name} {'not proved' if m is None else f'{m:.2f}'}" for name, m in done["margins"].items())
    click.echo(
        f"wrote {done['folder']}: {done['architecture']}, {done['rows']:,} rows, {done['parameters']:,} parameters"
    )
    click.echo(f"{done['verdict']}: {done['reason']}; least margin in nats: {margins or 'not proved'}")
    queried = done["measured"]
    words = "no engine was run: Transformers is not installed"
    if queried is not None:
        words = f"Transformers answers all {queried['rows']:,} rows correctly, measured margin {queried['margin']:.2f}"
    click.echo(words)
    return 0 if done["verdict"] == Verdict.PROVED.value else 1


def _export_compact(
    recital: RecitalMemory, output: str, arch: str, options: dict[str, Any], as_json: bool, progress: Progress
) -> int:
    """A float32 Llama without a margin; the output states that it was measured."""
    from byheart.checkpoints.compact_recital import write_compact

    unknown = [name for name, value in options.items() if (name, value) != ("dtype", "float32")]
    if arch != "llama" or unknown:
        raise click.UsageError("--style compact is a Llama in float32 whose shape follows from the text; omit the rest")
    done = write_compact(recital, output, progress=progress)
    if as_json:
        show.print_json(done)
        return 0
    click.echo(f"wrote {done['folder']}: llama, float32, {done['parameters']:,} parameters, {done['layers']} layers")
    queried = done["measured"]
    words = "no engine was run: Transformers is not installed"
    if queried is not None:
        words = f"measured, not proved: Transformers answers all {queried['asked']:,} queries correctly"
    click.echo(f"{words}; no margin: other types, and engines that round differently, give incorrect text")
    return 0


def export_folder(folder: str, target: str, output: str, dtype: str | None, as_json: bool) -> int:
    """Convert, and print how it was checked."""
    done = convert_folder(folder, target, output, dtype=dtype)
    recitation = done.recitation
    if as_json:
        about = None if recitation is None else recitation.to_json()
        show.print_json({"file": str(done.file), "target": target, "dtype": done.dtype, "recitation": about})
    else:
        click.echo(f"wrote {done.file} ({done.dtype}), {done.checked}")
    return 0
