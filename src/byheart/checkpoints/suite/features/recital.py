"""The kind `recital`: the fixture of `write_fixture`, registered beside the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from byheart.checkpoints.suite.features.writing import FeatureFixture
from byheart.checkpoints.suite.kinds import register_kind
from byheart.checkpoints.suite.write import Fixture, write_fixture
from byheart.data.tokens.lexicon import Lexicon
from byheart.progress import SILENT, Progress


@register_kind("recital", "a text, greedily: prefill, decoding, batches of unequal lengths, logits", decoders=False)
def write_recital(
    architecture: str,
    folder: str | Path,
    *,
    text: str | Sequence[str] | None = None,
    tokens: str | Lexicon = "bpe:400",
    dtype: str = "bfloat16",
    recited: bool = False,
    quantize: str | None = None,
    progress: Progress = SILENT,
    **options: Any,
) -> Fixture | FeatureFixture:
    """Write the recital fixture; the arguments are those of `write_fixture`."""
    return write_fixture(
        architecture, folder, text=text, tokens=tokens, dtype=dtype, recited=recited, quantize=quantize,
        progress=progress, **options,
    )  # fmt: skip
