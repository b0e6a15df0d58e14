"""The kind `recital`: the fixture of `write_fixture`, registered beside the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from byheart.checkpoints.suite.kinds import register_kind
from byheart.checkpoints.suite.write import Fixture, write_fixture
from byheart.progress import SILENT, Progress


@register_kind("recital", "a text, greedily: prefill, decoding, batches of unequal lengths, logits")
def write_recital(
    architecture: str, folder: str | Path, *, dtype: str = "bfloat16", progress: Progress = SILENT, **options: Any
) -> Fixture:
    """Write the recital fixture; `options` are those of `write_fixture`."""
    return write_fixture(architecture, folder, dtype=dtype, progress=progress, **options)
