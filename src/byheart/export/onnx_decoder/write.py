"""The whole decoder: input_ids, attention_mask, position_ids, past_key_values.* -> logits, present.*.

The names and shapes are those of Hugging Face's ONNX exports, so runtimes that know these (transformers.js, Optimum)
know this file. Everything is inside one file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from byheart.errors import ExportError, MissingExtraError, OptionError
from byheart.export.onnx_decoder import blocks
from byheart.export.stock import Decoder, read_decoder
from byheart.export.targets.onnx import Graph
from byheart.files import write_atomically

TYPES = ("float32", "float16")
LARGEST = (1 << 31) - 1  # bytes in one protobuf message


def write_onnx_decoder(folder: str | Path, path: str | Path, *, dtype: str = "float32") -> Path:
    """Writes the checkpoint in `folder` as one ONNX file."""
    path = Path(path)
    data = build_onnx_decoder(read_decoder(folder), dtype=dtype).SerializeToString()
    if len(data) > LARGEST:
        raise ExportError(f"{folder} would make an ONNX file of {len(data)} bytes; one file holds at most {LARGEST}")
    write_atomically(path, data)
    return path


def build_onnx_decoder(decoder: Decoder, *, dtype: str = "float32") -> Any:
    """The model as an onnx.ModelProto, checked and shape-inferred."""
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise MissingExtraError("export to ONNX", "onnx") from None
    if dtype not in TYPES:
        raise OptionError(f"ONNX decoders are written in {' or '.join(TYPES)}, not in {dtype!r}")
    graph = Graph(dtype)
    h = _embed(graph, decoder)
    windows = {layer.attention.window for layer in decoder.layers}
    rotations = {
        layer.attention.rotary.dims: layer.attention.rotary for layer in decoder.layers if layer.attention.rotary
    }
    turns = {dims: blocks.turns(graph, rotary, "position_ids") for dims, rotary in rotations.items()}
    shared = blocks.Shared(blocks.hidden_scores(graph, windows), turns)
    for i, layer in enumerate(decoder.layers):
        mixed = blocks.attention(
            graph, layer.attention, shared, blocks.norm(graph, layer.attention_norm, h, f"layer_{i}.attention_norm"), i
        )
        after = graph.node("Add", [h, mixed], f"layer_{i}.after_attention")
        read = blocks.norm(graph, layer.mlp_norm, h if layer.parallel else after, f"layer_{i}.mlp_norm")
        h = graph.node("Add", [after, blocks.mlp(graph, layer.mlp, read, f"layer_{i}.mlp")], f"layer_{i}.out")
    h = blocks.norm(graph, decoder.final_norm, h, "final_norm")
    if decoder.tied:
        logits = graph.node("MatMul", [h, graph.node("Transpose", ["embedding"], "head", perm=[1, 0])], "raw_logits")
    else:
        logits = blocks.linear(graph, decoder.head, h, "head")
    # float32 logits in every flavour: greedy decoding then compares what was computed, not what was rounded.
    graph.node("Cast", [logits], "logits", to=graph.onnx.TensorProto.FLOAT)
    return graph.model(
        *_ends(graph, decoder), about={"byheart.architecture": decoder.architecture, "byheart.dtype": dtype}
    )


def _embed(graph: Graph, decoder: Decoder) -> str:
    table = graph.constant(decoder.embedding, "embedding")
    h = graph.node("Gather", [table, "input_ids"], "embedded")
    if decoder.embedding_scale != 1.0:
        h = graph.node("Mul", [h, graph.constant([decoder.embedding_scale], "embedding_scale")], "scaled")
    if decoder.positions is not None:
        rows = graph.node("Gather", [graph.constant(decoder.positions, "positions"), "position_ids"], "placed")
        h = graph.node("Add", [h, rows], "embedded_in_place")
    return h


def _ends(graph: Graph, decoder: Decoder) -> tuple[list[Any], list[Any]]:
    """Inputs and outputs with their shapes."""
    whole, wide = graph.onnx.TensorProto.INT64, graph.onnx.TensorProto.FLOAT
    inputs = [
        graph.info("input_ids", ["batch", "t"], whole),
        graph.info("attention_mask", ["batch", "past_and_t"], whole),
        graph.info("position_ids", ["batch", "t"], whole),
    ]
    outputs = [graph.info("logits", ["batch", "t", decoder.vocabulary], wide)]
    for i, layer in enumerate(decoder.layers):
        groups, d = layer.attention.groups, layer.attention.head_dim
        for part in ("key", "value"):
            inputs.append(graph.info(f"past_key_values.{i}.{part}", ["batch", groups, "past", d]))
            outputs.append(graph.info(f"present.{i}.{part}", ["batch", groups, "past_and_t", d]))
    return inputs, outputs
