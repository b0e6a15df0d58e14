"""ONNX Runtime: the checkpoint as one ONNX file with a key-value cache (`byheart.export.onnx_decoder`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from byheart.engines._base import Session, engine
from byheart.engines._cached_graph import CachedGraphSession, Feeds
from byheart.engines.questions import read_questions
from byheart.export.onnx_decoder import build_onnx_decoder
from byheart.export.stock import read_decoder


@engine(
    "onnxruntime",
    extra="onnx",
    packages=("onnxruntime",),
    types=("float32", "float16"),
    summary="ONNX Runtime on the processor: one ONNX file with a key-value cache",
)
def open_onnxruntime(folder: Path, dtype: str, options: Mapping[str, str]) -> Session:
    import onnxruntime

    decoder, asked = read_decoder(folder), read_questions(folder)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.log_severity_level = 3
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    data = build_onnx_decoder(decoder, dtype=dtype).SerializeToString()
    session = onnxruntime.InferenceSession(data, settings, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(feeds: Feeds) -> dict[str, Any]:
        return dict(zip(names, session.run(names, feeds), strict=True))

    return CachedGraphSession(decoder, run, dtype, asked.pad, asked.eos)
