"""A checkpoint folder in another format, recited by the engine that reads it before it is returned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from byheart.checkpoints.engines._base import engines
from byheart.checkpoints.engines.queries import read_queries, read_texts
from byheart.checkpoints.engines.recite import Recitation, recite
from byheart.checkpoints.formats.gguf import KINDS, write_gguf
from byheart.checkpoints.formats.gguf.anchors import ANCHORS
from byheart.checkpoints.formats.onnx_decoder import write_onnx_decoder
from byheart.errors import ExportError, OptionError

READERS = {"gguf": "llama.cpp", "onnx": "onnxruntime"}
DEFAULTS = {"gguf": "F16", "onnx": "float32"}
RECITED = 64  # tokens per continuation


@dataclass(frozen=True)
class Converted:
    """The written file, and how it was recited; None where its engine is not installed."""

    file: Path
    target: str
    dtype: str
    recitation: Recitation | None

    @property
    def checked(self) -> str:
        """How the file was checked, in words; coarse types that were not recited are named."""
        if self.recitation is not None:
            return f"recited by {self.recitation.engine} {self.recitation.version}"
        missing = f"not recited: {READERS[self.target]} is not installed"
        if self.dtype not in ANCHORS:
            return missing
        return (
            f"{missing}. {self.dtype} is too coarse for the usual flavour (a Llama answered fewer than half of its "
            "prefixes rightly in Q4_0); such a folder must be written with --flavour quantized"
        )


def convert_folder(folder: str | Path, target: str, path: str | Path, *, dtype: str | None = None) -> Converted:
    """Writes the checkpoint in `folder` as GGUF or ONNX.

    It is recited first, where the engine is installed. A type too coarse for the checkpoint (Q4_0, say) is an
    ExportError with the first incorrect answer, and nothing is written.
    """
    if target not in READERS:
        raise OptionError(f"a checkpoint folder becomes {' or '.join(READERS)}, not {target!r}")
    kind, engine = dtype or DEFAULTS[target], READERS[target]
    if target == "gguf" and kind not in KINDS:
        raise OptionError(f"unknown type {kind!r} for GGUF; there are {', '.join(KINDS)}")
    queried, recitation = read_queries(folder), None
    if engines()[engine].version is not None:
        recitation = recite(folder, engine, dtype=kind, limit=RECITED)
        wrong = next((check for check in recitation.checks if not check.passed), None)
        if wrong is not None:
            raise ExportError(
                f"{engine} does not recite {folder} as {kind}: {wrong.name}: {wrong.wrong}; nothing was written. Take "
                "a finer type, or the flavour quantized"
            )
    if target == "gguf":
        write_gguf(folder, path, kind=kind, texts=read_texts(folder, queried))
    else:
        write_onnx_decoder(folder, path, dtype=kind)
    return Converted(Path(path), target, kind, recitation)
