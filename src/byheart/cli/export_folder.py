"""byheart export DIR: a checkpoint folder as GGUF or ONNX."""

from __future__ import annotations

import click

from byheart.cli import show
from byheart.engines.convert import convert_folder


def export_folder(folder: str, target: str, output: str, dtype: str | None, as_json: bool) -> int:
    """Converts, says how it was checked."""
    done = convert_folder(folder, target, output, dtype=dtype)
    recitation = done.recitation
    checked = (
        f"recited by {recitation.engine} {recitation.version}"
        if recitation
        else "not recited: its engine is not installed"
    )
    if as_json:
        about = None if recitation is None else recitation.to_json()
        show.print_json({"file": str(done.file), "target": target, "dtype": done.dtype, "recitation": about})
    else:
        click.echo(f"wrote {done.file} ({done.dtype}), {checked}")
    return 0
