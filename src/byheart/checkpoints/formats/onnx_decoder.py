"""A decoder checkpoint as one ONNX file with a key-value cache (`write_onnx_decoder`).

input_ids, attention_mask, position_ids, past_key_values.* -> logits, present.*: the names and shapes are those of
Hugging Face's ONNX exports, so runtimes that know these (transformers.js, Optimum) know this file. Everything is inside
one file.

Shapes: the stream h is (batch, t, hidden); queries are (batch, heads, t, head_dim); keys and values in the cache are
(batch, groups, past, head_dim) with a fixed last dimension, which some readers take as 0 when it has only a name.
Norms, rotations and softmax are computed in float32 whatever the weights are stored in, as stock engines do.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.formats.stock import StockDecoder, frequencies, read_decoder
from byheart.checkpoints.proof.config import Rotary, Shape
from byheart.checkpoints.proof.decoder import Expert, Linear, Mlp, Norm, StockAttention
from byheart.errors import ExportError, MissingExtraError, OptionError
from byheart.export.targets.onnx import Graph
from byheart.files import write_atomically

FAR = -1e9  # what a hidden score becomes; finite, so that a row that sees nothing (padding) stays a number


@dataclass(frozen=True)
class Shared:
    """Names of tensors that all layers share."""

    hidden_scores: str  # (batch, 1, t, past + t), 0 where visible and FAR elsewhere
    turns: tuple[str, str] | None  # cos, sin of (batch, 1, t, rotated dimensions)


def widen(graph: Graph, x: str) -> str:
    """x in float32."""
    return x if graph.dtype == "float32" else graph.node("Cast", [x], "wide", to=graph.onnx.TensorProto.FLOAT)


def narrow(graph: Graph, x: str) -> str:
    """x in the type of the weights."""
    return x if graph.dtype == "float32" else graph.node("Cast", [x], "narrow", to=graph.element)


def number(graph: Graph, value: float, wish: str) -> str:
    return graph.constant(np.float32(value), wish, np.float32)


def linear(graph: Graph, layer: Linear, x: str, wish: str) -> str:
    y = graph.node("MatMul", [x, graph.constant(layer.weight.T, f"{wish}.weight")], wish)
    return (
        y if layer.bias is None else graph.node("Add", [y, graph.constant(layer.bias, f"{wish}.bias")], f"{wish}.sum")
    )


def norm(graph: Graph, layer: Norm | None, x: str, wish: str) -> str:
    """The normed vector; the vector itself where the architecture has no norm."""
    if layer is None:
        return x
    wide = widen(graph, x)
    axes = graph.whole([-1], "last_axis")
    if layer.centred:
        wide = graph.node("Sub", [wide, graph.node("ReduceMean", [wide, axes], f"{wish}.mean")], f"{wish}.centred")
    square = graph.node("ReduceMean", [graph.node("Mul", [wide, wide], f"{wish}.square"), axes], f"{wish}.energy")
    root = graph.node("Sqrt", [graph.node("Add", [square, number(graph, layer.eps, f"{wish}.eps")], f"{wish}.safe")],
                      f"{wish}.size")  # fmt: skip
    y = narrow(graph, graph.node("Div", [wide, root], f"{wish}.unit"))
    y = graph.node("Mul", [y, graph.constant(layer.weight, f"{wish}.weight")], f"{wish}.scaled")
    return y if layer.bias is None else graph.node("Add", [y, graph.constant(layer.bias, f"{wish}.bias")], wish)


def turns(graph: Graph, rotary: Rotary, positions: str) -> tuple[str, str]:
    """cos and sin of position * frequency, each frequency twice: (batch, 1, t, dims)."""
    once = frequencies(rotary)
    both = np.concatenate([once, once])
    where = graph.node("Unsqueeze", [graph.node("Cast", [positions], "places", to=graph.onnx.TensorProto.FLOAT),
                                     graph.whole([1, 3], "axes_1_3")], "places_4d")  # fmt: skip
    angle = graph.node("Mul", [where, graph.constant(both, "rotary.frequencies", np.float32)], "rotary.angle")
    found = [graph.node(op, [angle], f"rotary.{op.lower()}") for op in ("Cos", "Sin")]
    if rotary.gain != 1:
        size = number(graph, rotary.gain, "rotary.gain")
        found = [graph.node("Mul", [part, size], "rotary.magnified") for part in found]
    return narrow(graph, found[0]), narrow(graph, found[1])


def rotate(graph: Graph, dims: int, turns: tuple[str, str], x: str, head_dim: int) -> str:
    """x cos + rotate_half(x) sin on the first dimensions, the others as they are."""
    half, (cos, sin) = dims // 2, turns
    ends = {k: graph.whole([k], f"at_{k}") for k in (0, half, dims, head_dim)}
    last = graph.whole([3], "axis_3")

    def cut(a: int, b: int, wish: str) -> str:
        return str(graph.node("Slice", [x, ends[a], ends[b], last], wish))

    first, second = cut(0, half, "first_half"), cut(half, dims, "second_half")
    swapped = graph.node("Concat", [graph.node("Neg", [second], "minus"), first], "swapped", axis=-1)
    turned = cut(0, dims, "turning") if dims < head_dim else x
    y = graph.node(
        "Add", [graph.node("Mul", [turned, cos], "by_cos"), graph.node("Mul", [swapped, sin], "by_sin")], "turned"
    )
    return y if dims == head_dim else graph.node("Concat", [y, cut(dims, head_dim, "still")], "partly_turned", axis=-1)


def split_heads(graph: Graph, x: str, heads: int, head_dim: int, wish: str) -> str:
    """(batch, t, heads * head_dim) -> (batch, heads, t, head_dim)."""
    apart = graph.node("Reshape", [x, graph.whole([0, 0, heads, head_dim], f"{wish}.shape")], f"{wish}.apart")
    return graph.node("Transpose", [apart], f"{wish}.heads", perm=[0, 2, 1, 3])


def attention(graph: Graph, shape: Shape, layer: StockAttention, shared: Shared, x: str, index: int) -> str:
    """Reads past_key_values.index.*, writes present.index.*."""
    d, base = shape.head_dim, f"layer_{index}.attention"
    q, k = linear(graph, layer.q, x, f"{base}.q"), linear(graph, layer.k, x, f"{base}.k")
    if layer.all_heads:
        q, k = norm(graph, layer.q_norm, q, f"{base}.q_norm"), norm(graph, layer.k_norm, k, f"{base}.k_norm")
    q = split_heads(graph, q, shape.heads, d, f"{base}.q")
    k = split_heads(graph, k, shape.kv_heads, d, f"{base}.k")
    v = split_heads(graph, linear(graph, layer.v, x, f"{base}.v"), shape.kv_heads, d, f"{base}.v")
    if not layer.all_heads:
        q, k = norm(graph, layer.q_norm, q, f"{base}.q_norm"), norm(graph, layer.k_norm, k, f"{base}.k_norm")
    if shape.rotary is not None and shared.turns is not None:
        q, k = (rotate(graph, shape.rotary.dims, shared.turns, part, d) for part in (q, k))
    past = f"past_key_values.{index}."
    k = graph.node("Concat", [past + "key", k], f"present.{index}.key", axis=2)
    v = graph.node("Concat", [past + "value", v], f"present.{index}.value", axis=2)
    k, v = (_repeat(graph, part, shape, base) for part in (k, v))
    scores = graph.node("MatMul", [q, graph.node("Transpose", [k], f"{base}.keys", perm=[0, 1, 3, 2])], f"{base}.dots")
    scores = graph.node("Mul", [widen(graph, scores), number(graph, shape.scale, f"{base}.scale")], f"{base}.scores")
    scores = graph.node("Add", [scores, shared.hidden_scores], f"{base}.visible")
    shares = narrow(graph, graph.node("Softmax", [scores], f"{base}.shares", axis=-1))
    mixed = graph.node(
        "Transpose", [graph.node("MatMul", [shares, v], f"{base}.mix")], f"{base}.back", perm=[0, 2, 1, 3]
    )
    flat = graph.node("Reshape", [mixed, graph.whole([0, 0, shape.heads * d], f"{base}.flat_shape")], f"{base}.flat")
    return linear(graph, layer.o, flat, f"{base}.o")


def _repeat(graph: Graph, x: str, shape: Shape, base: str) -> str:
    """Each key-value head once for every query head of its group: (batch, heads, s, d)."""
    times = shape.heads // shape.kv_heads
    if times == 1:
        return x
    wide = graph.node("Unsqueeze", [x, graph.whole([2], "axis_2")], f"{base}.grouped")
    wide = graph.node("Expand", [wide, graph.whole([1, 1, times, 1, 1], f"{base}.times")], f"{base}.expanded")
    size = graph.whole([0, shape.heads, -1, shape.head_dim], f"{base}.repeated_shape")
    return graph.node("Reshape", [wide, size], f"{base}.repeated")


def activate(graph: Graph, kind: str, x: str, wish: str) -> str:
    if kind == "silu":
        return graph.node("Mul", [x, graph.node("Sigmoid", [x], f"{wish}.sigmoid")], wish)
    if kind == "relu":
        return graph.node("Relu", [x], wish)
    return graph.node("Gelu", [x], wish, approximate="tanh" if kind == "gelu_tanh" else "none")


def mlp(graph: Graph, shape: Shape, layer: Mlp, x: str, wish: str) -> str:
    """Every expert is computed and weighted; the weights of those that are not among the best are 0."""
    if layer.router is None:
        (only,) = layer.experts
        return _expert(graph, shape.activation, only, x, wish)
    logits = widen(graph, linear(graph, layer.router, x, f"{wish}.router"))
    top = graph.whole([shape.experts_used], "top")
    best = graph.names("TopK", [logits, top], [f"{wish}.best", f"{wish}.which"], axis=-1)
    shares = graph.node("Softmax", [best[0]], f"{wish}.shares", axis=-1)
    nothing = graph.node("Mul", [logits, number(graph, 0.0, "nothing")], f"{wish}.nothing")
    weights = narrow(graph, graph.node("ScatterElements", [nothing, best[1], shares], f"{wish}.weights", axis=-1))
    total = ""
    for e, expert in enumerate(layer.experts):
        y = _expert(graph, shape.activation, expert, x, f"{wish}.expert_{e}")
        share = graph.node("Gather", [weights, graph.whole([e], f"expert_{e}")], f"{wish}.share_{e}", axis=-1)
        part = graph.node("Mul", [y, share], f"{wish}.part_{e}")
        total = graph.node("Add", [total, part], f"{wish}.total_{e}") if total else part
    return total


def _expert(graph: Graph, activation: str, expert: Expert, x: str, wish: str) -> str:
    gate = activate(graph, activation, linear(graph, expert.gate, x, f"{wish}.gate"), f"{wish}.active")
    if expert.up is not None:
        gate = graph.node("Mul", [gate, linear(graph, expert.up, x, f"{wish}.up")], f"{wish}.gated")
    return linear(graph, expert.down, gate, f"{wish}.down")


def hidden_scores(graph: Graph, window: int | None) -> str:
    """0 where a query may look, FAR elsewhere, from attention_mask (batch, past + t) and the lengths."""
    whole = graph.whole
    ids, mask = (graph.node("Shape", [name], f"{name}.shape") for name in ("input_ids", "attention_mask"))
    one = whole([1], "index_1")
    t, s = graph.node("Gather", [ids, one], "t"), graph.node("Gather", [mask, one], "s")
    zero, step = graph.constant(0, "from", np.int64), graph.constant(1, "step", np.int64)
    end = graph.node("Squeeze", [s], "s_scalar")
    columns = graph.node("Range", [zero, end, step], "columns")  # (s,)
    start = graph.node("Squeeze", [graph.node("Sub", [s, t], "past")], "past_scalar")
    rows = graph.node("Unsqueeze", [graph.node("Range", [start, end, step], "rows"), whole([1], "axis_1")], "rows_2d")
    distance = graph.node("Sub", [rows, columns], "distance")  # (t, s)
    causal = graph.node("GreaterOrEqual", [distance, graph.constant(0, "no_distance", np.int64)], "causal")
    real = graph.node("Greater", [attention_4d(graph), graph.constant(0, "masked", np.int64)], "real")
    if window is not None:
        near = graph.node("Less", [distance, graph.constant(window, "window", np.int64)], "near")
        causal = graph.node("And", [causal, near], "causal_near")
    seen = graph.node("And", [causal, real], "seen")
    return graph.node("Where", [seen, number(graph, 0.0, "open"), number(graph, FAR, "far")], "hidden_scores")


def attention_4d(graph: Graph) -> str:
    return graph.node("Unsqueeze", ["attention_mask", graph.whole([1, 2], "axes_1_2")], "mask_4d")


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


def build_onnx_decoder(decoder: StockDecoder, *, dtype: str = "float32") -> Any:
    """The model as an onnx.ModelProto, checked and shape-inferred."""
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise MissingExtraError("export to ONNX", "onnx") from None
    if dtype not in TYPES:
        raise OptionError(f"ONNX decoders are written in {' or '.join(TYPES)}, not in {dtype!r}")
    graph, shape = Graph(dtype), decoder.shape
    h = _embed(graph, decoder)
    kinds: dict[tuple[Rotary | None, int | None], Shared] = {}
    for i, layer in enumerate(decoder.layers):
        own = shape.at(i)
        if (own.rotary, own.window) not in kinds:
            rotated = None if own.rotary is None else turns(graph, own.rotary, "position_ids")
            kinds[own.rotary, own.window] = Shared(hidden_scores(graph, own.window), rotated)
        shared = kinds[own.rotary, own.window]
        normed = norm(graph, layer.attention_norm, h, f"layer_{i}.attention_norm")
        mixed = attention(graph, own, layer.attention, shared, normed, i)
        mixed = _added(graph, shape, layer.after_attention, mixed, f"layer_{i}.after_attention_norm")
        after = graph.node("Add", [h, mixed], f"layer_{i}.after_attention")
        read = norm(graph, layer.mlp_norm, h if shape.parallel else after, f"layer_{i}.mlp_norm")
        inner = mlp(graph, shape, layer.mlp, read, f"layer_{i}.mlp")
        inner = _added(graph, shape, layer.after_mlp, inner, f"layer_{i}.after_mlp_norm")
        h = graph.node("Add", [after, inner], f"layer_{i}.out")
    h = norm(graph, decoder.final_norm, h, "final_norm")
    if shape.tied:
        logits = graph.node("MatMul", [h, graph.node("Transpose", ["embedding"], "head", perm=[1, 0])], "raw_logits")
    else:
        logits = linear(graph, decoder.head, h, "head")
    if shape.logit_scale != 1:
        logits = graph.node("Div", [logits, graph.constant([shape.logit_scale], "logit_scale")], "scaled_logits")
    # float32 logits in every flavour: greedy decoding then compares what was computed, not what was rounded.
    graph.node("Cast", [logits], "logits", to=graph.onnx.TensorProto.FLOAT)
    return graph.model(*_ends(graph, shape), about={"byheart.architecture": shape.family, "byheart.dtype": dtype})


def _added(graph: Graph, shape: Shape, layer: Norm | None, x: str, wish: str) -> str:
    """What a branch adds: its output after its norm and its multiplier, where it has them."""
    x = norm(graph, layer, x, wish)
    if shape.residual_scale == 1:
        return x
    return graph.node("Mul", [x, graph.constant([shape.residual_scale], "residual_scale")], f"{wish}.scaled")


def _embed(graph: Graph, decoder: StockDecoder) -> str:
    table = graph.constant(decoder.embedding, "embedding")
    h = graph.node("Gather", [table, "input_ids"], "embedded")
    if decoder.embedding_scale != 1.0:
        h = graph.node("Mul", [h, graph.constant([decoder.embedding_scale], "embedding_scale")], "scaled")
    if decoder.positions is not None:
        rows = graph.node("Gather", [graph.constant(decoder.positions, "positions"), "position_ids"], "placed")
        h = graph.node("Add", [h, rows], "embedded_in_place")
    return h


def _ends(graph: Graph, shape: Shape) -> tuple[list[Any], list[Any]]:
    """Inputs and outputs with their shapes."""
    whole, wide = graph.onnx.TensorProto.INT64, graph.onnx.TensorProto.FLOAT
    inputs = [
        graph.info("input_ids", ["batch", "t"], whole),
        graph.info("attention_mask", ["batch", "past_and_t"], whole),
        graph.info("position_ids", ["batch", "t"], whole),
    ]
    outputs = [graph.info("logits", ["batch", "t", shape.vocabulary], wide)]
    for i in range(shape.layers):
        for part in ("key", "value"):
            past, now = (["batch", shape.kv_heads, length, shape.head_dim] for length in ("past", "past_and_t"))
            inputs.append(graph.info(f"past_key_values.{i}.{part}", past))
            outputs.append(graph.info(f"present.{i}.{part}", now))
    return inputs, outputs
