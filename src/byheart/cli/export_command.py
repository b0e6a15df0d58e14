"""byheart export: a memory for PyTorch, ONNX Runtime or safetensors."""

from __future__ import annotations

import click

from byheart.cli import show
from byheart.cli.data_options import data_options, dataset_of, output_options, progress_for, read
from byheart.compiler import load
from byheart.compiler.export_memory import TARGETS, export_file


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--to", "target", type=click.Choice(TARGETS), required=True, help="What to write.")
@click.option("-o", "--output", metavar="OUT", required=True, help="Where to write it.")
@click.option("--dtype", type=click.Choice(["float64", "float32"]), help="Float type [default: the memory's own].")
@click.option("--data", metavar="DATA", help="Recheck on every row of this data (otherwise on 10,000 drawn inputs).")
@data_options
@output_options
def export(
    file: str,
    target: str,
    output: str,
    dtype: str | None,
    data: str | None,
    sequence_column: str | None,
    label_column: str | None,
    tokens: str,
    as_json: bool,
    quiet: bool,
) -> int:
    """Write the memory in FILE as a model that runs without byheart, bit-exactly.

    A memory whose numbers do not fit the float type is refused. Every export is compared with the exact answers first.

    \b
      byheart export table.byheart --to onnx -o table.onnx --data table.csv
    """
    memory = load(file)
    dataset = None
    if data is not None:
        table = read(data, sequence_column, label_column, memory.tokens if tokens == "auto" else tokens, memory.task)
        dataset = dataset_of(table, memory.task, memory.encoder.positions)
    progress = progress_for(as_json, quiet)
    written = export_file(memory, target, output, dtype=dtype, dataset=dataset, progress=progress)
    about = written["metadata"]
    if as_json:
        shown = {
            name.removeprefix("byheart."): about[name]
            for name in ("byheart.dtype", "byheart.checked", "byheart.exactness")
        }
        show.print_json({**{k: v for k, v in written.items() if k != "metadata"}, "target": target, **shown})
    else:
        click.echo(f"wrote {written['file']} ({about['byheart.dtype']}), checked on {about['byheart.checked']}")
    return 0
