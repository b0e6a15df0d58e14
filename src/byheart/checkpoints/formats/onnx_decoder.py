"""A decoder checkpoint as one ONNX file with a key-value cache (`write_onnx_decoder`).

input_ids, attention_mask, position_ids, past_key_values.* -> logits, present.*: the names and shapes are those of
Hugging Face's ONNX exports, so runtimes that support these (transformers.js, Optimum) support this file. All is inside
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
from byheart.checkpoints.proof.decoder import Expert, Latents, Linear, Mlp, Norm, StockAttention
from byheart.checkpoints.proof.storage import Array
from byheart.checkpoints.proof.units import QUICK
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
    if layer.latents is None:
        q, k = linear(graph, layer.q, x, f"{base}.q"), linear(graph, layer.k, x, f"{base}.k")
        v = linear(graph, layer.v, x, f"{base}.v")
        if layer.all_heads:
            q, k = norm(graph, layer.q_norm, q, f"{base}.q_norm"), norm(graph, layer.k_norm, k, f"{base}.k_norm")
        k = split_heads(graph, k, shape.kv_heads, d, f"{base}.k")
    else:
        q, k, v = _latents(graph, shape, layer, layer.latents, x, base)
    q = split_heads(graph, q, shape.heads, d, f"{base}.q")
    v = split_heads(graph, v, shape.kv_heads, shape.value_size, f"{base}.v")
    if not layer.all_heads:
        q, k = norm(graph, layer.q_norm, q, f"{base}.q_norm"), norm(graph, layer.k_norm, k, f"{base}.k_norm")
    if shape.rotary is not None and shared.turns is not None:
        q, k = (rotate(graph, shape.rotary.dims, shared.turns, part, d) for part in (q, k))
    past = f"past_key_values.{index}."
    k = graph.node("Concat", [past + "key", k], f"present.{index}.key", axis=2)
    v = graph.node("Concat", [past + "value", v], f"present.{index}.value", axis=2)
    k, v = _repeat(graph, k, shape, d, base), _repeat(graph, v, shape, shape.value_size, base)
    scores = graph.node("MatMul", [q, graph.node("Transpose", [k], f"{base}.keys", perm=[0, 1, 3, 2])], f"{base}.dots")
    scores = graph.node("Mul", [widen(graph, scores), number(graph, shape.scale, f"{base}.scale")], f"{base}.scores")
    scores = graph.node("Add", [scores, shared.hidden_scores], f"{base}.visible")
    shares = narrow(graph, _softmax(graph, scores, layer.sinks, base))
    mixed = graph.node(
        "Transpose", [graph.node("MatMul", [shares, v], f"{base}.mix")], f"{base}.back", perm=[0, 2, 1, 3]
    )
    size = graph.whole([0, 0, shape.heads * shape.value_size], f"{base}.flat_shape")
    return linear(graph, layer.o, graph.node("Reshape", [mixed, size], f"{base}.flat"), f"{base}.o")


def _latents(
    graph: Graph, shape: Shape, layer: StockAttention, latents: Latents, x: str, base: str
) -> tuple[str, str, str]:  # fmt: skip
    """Queries and values side by side, and keys by head: the rotated part is the same for all heads."""
    latent = norm(graph, latents.norm, linear(graph, latents.down, x, f"{base}.down"), f"{base}.latent")
    queried = x if latents.q_down is None else linear(graph, latents.q_down, x, f"{base}.q_down")
    q = linear(graph, layer.q, norm(graph, latents.q_norm, queried, f"{base}.q_latent"), f"{base}.q")
    turned = len(latents.k_turned.weight)
    once = graph.node(
        "Unsqueeze", [linear(graph, latents.k_turned, x, f"{base}.k_turned"), graph.whole([1], "axis_1")],
        f"{base}.k_once",
    )  # fmt: skip
    same = graph.node("Expand", [once, graph.whole([1, shape.heads, 1, 1], "every_head")], f"{base}.k_shared")
    own = split_heads(
        graph, linear(graph, layer.k, latent, f"{base}.k"), shape.heads, shape.head_dim - turned, f"{base}.k"
    )
    k = graph.node("Concat", [same, own], f"{base}.keys_beside", axis=-1)
    return q, k, linear(graph, layer.v, latent, f"{base}.v")


def _softmax(graph: Graph, scores: str, sinks: Array | None, base: str) -> str:
    """Weights of the places; a sink is one more score, whose weight is dropped."""
    if sinks is None:
        return str(graph.node("Softmax", [scores], f"{base}.shares", axis=-1))
    ends = [graph.whole([k], f"at_{k}") for k in (0, 1)]
    last = graph.whole([3], "axis_3")
    nothing = graph.node(
        "Mul", [graph.node("Slice", [scores, *ends, last], f"{base}.first"), number(graph, 0.0, "nothing")],
        f"{base}.no_score",
    )  # fmt: skip
    sink = graph.constant(np.asarray(sinks).reshape(1, -1, 1, 1), f"{base}.sinks", np.float32)
    more = graph.node("Concat", [scores, graph.node("Add", [nothing, sink], f"{base}.sink")], f"{base}.sunk", axis=-1)
    shares = graph.node("Softmax", [more], f"{base}.all_shares", axis=-1)
    return str(graph.node("Slice", [shares, ends[0], graph.whole([-1], "at_minus_1"), last], f"{base}.shares"))


def _repeat(graph: Graph, x: str, shape: Shape, size: int, base: str) -> str:
    """Each key-value head once for every query head of its group: (batch, heads, s, d)."""
    times = shape.heads // shape.kv_heads
    if times == 1:
        return x
    wide = graph.node("Unsqueeze", [x, graph.whole([2], "axis_2")], f"{base}.grouped")
    wide = graph.node("Expand", [wide, graph.whole([1, 1, times, 1, 1], f"{base}.times")], f"{base}.expanded")
    whole = graph.whole([0, shape.heads, -1, size], f"{base}.repeated_shape")
    return graph.node("Reshape", [wide, whole], f"{base}.repeated")


def activate(graph: Graph, kind: str, x: str, wish: str) -> str:
    if kind == "silu":
        return graph.node("Mul", [x, graph.node("Sigmoid", [x], f"{wish}.sigmoid")], wish)
    if kind == "relu":
        return graph.node("Relu", [x], wish)
    if kind == "quick_gelu":
        inner = graph.node("Mul", [x, graph.constant([QUICK], "quick")], f"{wish}.scaled")
        return graph.node("Mul", [x, graph.node("Sigmoid", [inner], f"{wish}.sigmoid")], wish)
    return graph.node("Gelu", [x], wish, approximate="tanh" if kind == "gelu_tanh" else "none")


def mlp(graph: Graph, shape: Shape, layer: Mlp, x: str, wish: str) -> str:
    """Every expert is computed and weighted; the weights of those that are not among the best are 0."""
    if layer.router is None:
        (only,) = layer.experts
        return _expert(graph, shape, only, x, wish)
    logits = widen(graph, linear(graph, layer.router, x, f"{wish}.router"))
    which, shares = (_by_softmax if shape.routing.scoring == "softmax" else _by_sigmoid)(
        graph, shape, layer, logits, wish
    )
    nothing = graph.node("Mul", [logits, number(graph, 0.0, "nothing")], f"{wish}.nothing")
    weights = narrow(graph, graph.node("ScatterElements", [nothing, which, shares], f"{wish}.weights", axis=-1))
    total = ""
    for e, expert in enumerate(layer.experts):
        y = _expert(graph, shape, expert, x, f"{wish}.expert_{e}")
        share = graph.node("Gather", [weights, graph.whole([e], f"expert_{e}")], f"{wish}.share_{e}", axis=-1)
        part = graph.node("Mul", [y, share], f"{wish}.part_{e}")
        total = graph.node("Add", [total, part], f"{wish}.total_{e}") if total else part
    if layer.shared is None:
        return total
    return graph.node("Add", [total, _expert(graph, shape, layer.shared, x, f"{wish}.shared")], f"{wish}.with_shared")


def _by_softmax(graph: Graph, shape: Shape, layer: Mlp, logits: str, wish: str) -> tuple[str, str]:
    """Which experts serve a token, and their weights."""
    best = graph.names("TopK", [logits, graph.whole([shape.experts_used], "top")], [f"{wish}.best", f"{wish}.which"],
                       axis=-1)  # fmt: skip
    return best[1], graph.node("Softmax", [best[0]], f"{wish}.shares", axis=-1)


def _by_sigmoid(graph: Graph, shape: Shape, layer: Mlp, logits: str, wish: str) -> tuple[str, str]:
    """The same by sigmoids: groups win with their two best corrected scores, then experts inside of them."""
    rule, last = shape.routing, graph.whole([-1], "last_axis")
    scores = graph.node("Sigmoid", [logits], f"{wish}.scores")
    corrected = scores
    if layer.correction is not None:
        shift = graph.constant(layer.correction, f"{wish}.correction", np.float32)
        corrected = graph.node("Add", [scores, shift], f"{wish}.corrected")
    shapes = [graph.whole([0, 0, *sizes], f"groups_{len(sizes)}") for sizes in ((rule.groups, -1), (shape.experts,))]
    grouped = graph.node("Reshape", [corrected, shapes[0]], f"{wish}.grouped")
    two = graph.names("TopK", [grouped, graph.whole([2], "two")], [f"{wish}.two", f"{wish}.which_two"], axis=-1)
    sums = graph.node("ReduceSum", [two[0], last], f"{wish}.sums", keepdims=0)
    best = graph.names("TopK", [sums, graph.whole([rule.groups_used], "top_groups")],
                       [f"{wish}.best_groups", f"{wish}.which_groups"], axis=-1)  # fmt: skip
    none, one = (graph.node("Mul", [x, number(graph, 0.0, "nothing")], f"{wish}.zero") for x in (sums, best[0]))
    ones = graph.node("Add", [one, number(graph, 1.0, "one")], f"{wish}.ones")
    wins = graph.node("ScatterElements", [none, best[1], ones], f"{wish}.wins", axis=-1)
    lost = graph.node("Unsqueeze", [graph.node("Sub", [wins, number(graph, 1.0, "one")], f"{wish}.lost"), last],
                      f"{wish}.lost_4d")  # fmt: skip
    far = graph.node("Mul", [lost, number(graph, -FAR, "minus_far")], f"{wish}.far")
    allowed = graph.node("Reshape", [graph.node("Add", [grouped, far], f"{wish}.allowed"), shapes[1]], f"{wish}.flat")
    which = graph.names("TopK", [allowed, graph.whole([shape.experts_used], "top")], [f"{wish}.best", f"{wish}.which"],
                        axis=-1)[1]  # fmt: skip
    chosen = graph.node("GatherElements", [scores, which], f"{wish}.chosen", axis=-1)
    share = graph.node("Div", [chosen, graph.node("ReduceSum", [chosen, last], f"{wish}.sum")], f"{wish}.shares")
    return which, graph.node("Mul", [share, number(graph, rule.factor, "factor")], f"{wish}.factored")


def _expert(graph: Graph, shape: Shape, expert: Expert, x: str, wish: str) -> str:
    gate = linear(graph, expert.gate, x, f"{wish}.gate")
    up = None if expert.up is None else linear(graph, expert.up, x, f"{wish}.up")
    if shape.clamp is not None and up is not None:
        most, least, one = (graph.constant(v, f"clamp_{v:g}") for v in (shape.clamp, -shape.clamp, 1.0))
        gate = graph.node("Min", [gate, most], f"{wish}.cut")
        up = graph.node("Add", [graph.node("Clip", [up, least, most], f"{wish}.clipped"), one], f"{wish}.raised")
    gate = activate(graph, shape.activation, gate, f"{wish}.active")
    if up is not None:
        gate = graph.node("Mul", [gate, up], f"{wish}.gated")
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
    if decoder.shape.mixer is not None:
        raise ExportError(f"ONNX decoders have no recurrent layers, which {decoder.shape.family} has")
    if decoder.shape.score_cap is not None or decoder.shape.logit_cap is not None:
        raise ExportError(f"ONNX decoders have no caps of scores and logits, which {decoder.shape.family} has")
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
        for part, size in (("key", shape.head_dim), ("value", shape.value_size)):
            past, now = (["batch", shape.kv_heads, length, size] for length in ("past", "past_and_t"))
            inputs.append(graph.info(f"past_key_values.{i}.{part}", past))
            outputs.append(graph.info(f"present.{i}.{part}", now))
    return inputs, outputs
