"""OpenVINO: its own runtime on byheart's ONNX file with a key-value cache."""

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
    "openvino",
    extra="openvino",
    packages=("openvino",),
    types=("float32", "float16", "bfloat16"),
    summary="OpenVINO on the processor: byheart's ONNX file; the smaller types are hints that a processor may ignore",
)
def open_openvino(folder: Path, dtype: str, options: Mapping[str, str]) -> Session:
    import openvino

    decoder, asked = read_decoder(folder), read_questions(folder)
    core, graph = openvino.Core(), build_onnx_decoder(decoder)
    model = core.read_model(graph.SerializeToString())
    hint = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}[dtype]
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": 1})
    # An output may have several names, of which OpenVINO shows any; the order is that of the file.
    names = [output.name for output in graph.graph.output]

    def run(feeds: Feeds) -> dict[str, Any]:
        found = compiled(feeds)
        return {name: found[output] for name, output in zip(names, compiled.outputs, strict=True)}

    return CachedGraphSession(decoder, run, "float32", asked.pad, asked.eos)
