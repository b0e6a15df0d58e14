"""ONNX: a valid model with a dynamic batch axis, rechecked in ONNX Runtime before it is written.

Inputs: `tokens` (codes, or vectors), for ragged vectors also `present`. Outputs: `class` (whole numbers, -1 for none)
and `logits`. Token and label tables are metadata.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.encoder import Encoder
from byheart.errors import ExportError, MissingExtraError
from byheart.export import onnx_layers
from byheart.export.onnx_graph import Graph
from byheart.export.request import Request
from byheart.ir.layers import Affine, Attention, Embedding, Layer, Pool, Residual
from byheart.ir.network import Decode, Network, Read


def write_onnx(request: Request, path: Path) -> dict[str, Any]:
    """Builds, checks, runs and writes the model."""
    onnx, runtime = _libraries()
    fit, asked = request.prove(), request.questions()
    model = build_model(request.network, request.encoder, request.dtype, {})
    session = _session(runtime, model)

    def run(tokens: npt.NDArray[np.generic], present: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        feeds: dict[str, npt.NDArray[np.generic]] = {"tokens": tokens}
        if len(session.get_inputs()) > 1:
            feeds["present"] = present
        found: npt.NDArray[np.int64] = session.run(["class"], feeds)[0]
        return found

    about = request.metadata(fit, request.recheck(run, asked, "ONNX"))
    onnx.helper.set_model_props(model, about)
    request.write(path, lambda part: part.write_bytes(model.SerializeToString()))
    return {"file": str(path), "metadata": about}


def _libraries() -> tuple[Any, Any]:
    try:
        import onnx
        import onnxruntime
    except ImportError:
        raise MissingExtraError("export to ONNX", "onnx") from None
    return onnx, onnxruntime


def _session(runtime: Any, model: Any) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def build_model(network: Network, encoder: Encoder, dtype: str, about: dict[str, str]) -> Any:
    """The model of a network; weights that are no floats of this type are an ExportError."""
    graph = Graph(dtype)
    types = graph.onnx.TensorProto
    ragged = not encoder.task.pads
    if encoder.symbols is not None:
        inputs = [graph.info("tokens", ["batch", encoder.length], types.INT64)]
    else:
        inputs = [graph.info("tokens", ["batch", encoder.length, encoder.dimension])]
    present = None
    if ragged and encoder.symbols is not None:
        present = graph.node("GreaterOrEqual", ["tokens", graph.whole([0], "zero")], "present")
    elif ragged:
        present = "present"
        inputs.append(graph.info("present", ["batch", encoder.length], types.BOOL))
    columns, tokens = _walk(graph, network, encoder, present)
    shape = ["batch", encoder.length] if network.read is Read.EACH else ["batch"]
    _answers(graph, network, columns, tokens if network.read is Read.EACH else 0)
    outputs = [graph.info("class", shape, types.INT64), graph.info("logits", [*shape, network.readout.classes])]
    return graph.model(inputs, outputs, about)


def _walk(graph: Graph, network: Network, encoder: Encoder, present: str | None) -> tuple[str, int]:
    """All layers; returns the outputs as columns (width, batch·k) and k."""
    layers, length = network.layers, encoder.length
    first = layers[0]
    if isinstance(first, Embedding):
        h = onnx_layers.look_up(graph, first, "tokens", length)
    elif isinstance(first, Affine):
        h = "tokens"
        if encoder.symbols is not None:
            h = graph.node("Cast", [graph.node("Unsqueeze", [h, graph.whole([2], "axis_2")], "codes")], "numbers",
                           to=graph.element)  # fmt: skip
        elif present is not None:  # what stands behind the end of a row is multiplied by 0, so it must be finite
            mask = graph.node("Unsqueeze", [present, graph.whole([2], "axis_2")], "present_vectors")
            h = graph.node("Where", [mask, h, graph.constant(0, "nothing")], "vectors")
        h = onnx_layers.map_vectors(graph, first, h, encoder)
    else:
        raise ExportError(f"a network that starts with {type(first).__name__} has no ONNX form; use native")
    mixers = [i for i, layer in enumerate(layers) if isinstance(layer, Attention | Pool)]
    width, tokens, flat, i = first.width_out, length, False, 1
    while i < len(layers):
        layer = layers[i]
        if isinstance(layer, Attention | Pool):
            if flat:
                h, flat = onnx_layers.to_tokens(graph, h, width, tokens), False
            last = network.read is Read.LAST and i == mixers[-1]
            if isinstance(layer, Attention):
                h = onnx_layers.attention(graph, layer, h, present, length, last)
            else:
                h = onnx_layers.pool(graph, h, present)
            tokens = 1 if last or isinstance(layer, Pool) else tokens
            i += 1
            continue
        if not flat:
            h, flat = onnx_layers.to_columns(graph, h, width), True
        h, used = _tokenwise(graph, layers[i:], h)
        i += used
        width = layers[i - 1].width_out
    return (h if flat else onnx_layers.to_columns(graph, h, width)), tokens


def _tokenwise(graph: Graph, layers: tuple[Layer, ...], h: str) -> tuple[str, int]:
    """The next plain layer, or the next run of residual blocks; and how many layers that were."""
    layer = layers[0]
    if isinstance(layer, Affine):
        return onnx_layers.affine(graph, layer, h), 1
    stack = []
    for block in layers:
        if not isinstance(block, Residual):
            break
        stack.append(block)
    if not stack:
        raise ExportError(f"a {type(layer).__name__} layer has no ONNX form; use construction native")
    return onnx_layers.blocks(graph, stack, h), len(stack)


def _answers(graph: Graph, network: Network, columns: str, tokens: int) -> None:
    """`class` and `logits` from outputs (width, columns); tokens > 0: one answer per token."""
    readout, k = network.readout, np.arange(network.readout.classes)
    rows = graph.node("Transpose", [columns], "answers", perm=[1, 0])
    if readout.decode is Decode.ARGMAX:
        first = graph.node("ArgMax", [rows], "first_best", axis=-1, keepdims=0)
        last = graph.node("ArgMax", [rows], "last_best", axis=-1, keepdims=0, select_last_index=1)
        single = graph.node("Equal", [first, last], "single")  # a tie names no class
        best = graph.node("Where", [single, first, graph.whole([-1], "none")], "best")
        logits = rows
    else:
        y = graph.node("Sub", [rows, graph.constant([readout.offset], "offset")], "answer") if readout.offset else rows
        low = graph.node("GreaterOrEqual", [y, graph.constant([0], "least")], "not_below")
        high = graph.node("Less", [y, graph.constant([readout.classes], "classes")], "not_above")
        whole = graph.node("Equal", [y, graph.node("Floor", [y], "floor")], "whole")
        known = graph.node("And", [graph.node("And", [low, high], "inside"), whole], "known")
        named = graph.node("Where", [known, y, graph.constant([-1], "none")], "named")
        flat = graph.node("Reshape", [named, graph.whole([-1], "vector")], "named_flat")
        best = graph.node("Cast", [flat], "best", to=graph.onnx.TensorProto.INT64)
        slopes = graph.node("MatMul", [y, graph.constant(2 * k[None, :], "two_k")], "slopes")
        logits = graph.node("Sub", [slopes, graph.constant(k[None, :] ** 2, "k_squared")], "parabola")
    ends = [-1, tokens] if tokens else [-1]
    graph.node("Reshape", [best, graph.whole(ends, "class_shape")], "class")
    graph.node("Reshape", [logits, graph.whole([*ends, readout.classes], "logits_shape")], "logits")
