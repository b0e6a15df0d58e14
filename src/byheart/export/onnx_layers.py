"""The layers of a network as ONNX nodes.

Single tokens are columns: the stream is (D, columns), a block is Gemm, Relu, Gemm with the stream as its C. Deep stacks
are Scans over stacked weights (units that are missing in a block are zero), so that files load quickly. A scale is
never written as Mul behind a MatMul: ONNX Runtime fuses it into another order of rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from byheart.data.dataset.encoder import Encoder
from byheart.errors import ExportError
from byheart.export.arrays import Array, dense, place_stride, vector
from byheart.export.onnx_graph import Graph
from byheart.ir.layers import Affine, Attention, Embedding, Head, Kind, Pattern, Residual

MOST_UNROLLED = 64  # blocks; unrolled they run a little faster, but each takes a millisecond to load


def look_up(graph: Graph, layer: Embedding, codes: str, length: int) -> str:
    """Codes (batch, n) -> streams (batch, n, D)."""
    rows = graph.node("Max", [codes, graph.whole([0], "zero")], "codes")
    stride = place_stride(layer)
    if stride:
        places = graph.whole([stride * k for k in range(length)], "places")
        rows = graph.node("Add", [rows, places], "rows")
    return graph.node("Gather", [graph.constant(dense(layer.table, graph.dtype), "table"), rows], "embedded")


def map_vectors(graph: Graph, layer: Affine, vectors: str, encoder: Encoder) -> str:
    """Vectors (batch, n, d) -> streams (batch, n, D); the position's part of the map is a constant per place."""
    weight = dense(layer.weight, graph.dtype)
    bias = np.zeros(layer.width_out, weight.dtype) if layer.bias is None else vector(layer.bias, graph.dtype)
    shift = np.tile(bias, (encoder.length, 1))
    if encoder.positions:
        shift += np.arange(encoder.length)[:, None] * weight[:, encoder.dimension]
    mapped = graph.node("MatMul", [vectors, graph.constant(weight[:, : encoder.dimension].T, "input_map")], "mapped")
    mapped = graph.node("Add", [mapped, graph.constant(shift, "input_shift")], "shifted")
    return graph.node("Relu", [mapped], "active") if layer.relu else mapped


def attention(graph: Graph, layer: Attention, h: str, present: str | None, length: int, last: bool) -> str:
    """(batch, n, D) -> the same, or (batch, 1, D) where only the last token asks."""
    if layer.kind is not Kind.SOFTMAX or layer.pattern not in (Pattern.FULL, Pattern.CAUSAL):
        raise ExportError(f"{layer.kind} attention over the {layer.pattern} pattern has no ONNX form; use native")
    own = h
    if last:
        own = graph.node("Gather", [h, graph.whole([length - 1], "last")], "last_token", axis=1)
    out = own
    for head in layer.heads:
        out = graph.node("Add", [out, _head(graph, layer, head, h, own, present, length, last)], "attended")
    return out


def _head(
    graph: Graph, layer: Attention, head: Head, h: str, own: str, present: str | None, length: int, last: bool
) -> str:
    if head.key is None or head.query is None:
        raise ExportError("attention without keys and queries has no ONNX form; use construction native")

    def times(x: str, name: str, array: Array) -> str:
        return graph.node("MatMul", [x, graph.constant(array.T, f"W_{name}")], name)

    queries = times(own, "queries", dense(head.query, graph.dtype))
    keys = graph.node("Transpose", [times(h, "keys", dense(head.key, graph.dtype))], "keys_T", perm=[0, 2, 1])
    scores = graph.node("MatMul", [queries, keys], "scores")
    if layer.pattern is Pattern.CAUSAL:
        hidden = np.triu(np.full((length, length), -np.inf), 1)
        scores = graph.node("Add", [scores, graph.constant(hidden[-1:] if last else hidden, "mask")], "masked")
    elif present is not None:
        seen = graph.node("Unsqueeze", [present, graph.whole([1], "axis_1")], "seen")
        scores = graph.node("Where", [seen, scores, graph.constant(-np.inf, "minus_infinity")], "masked")
    shares = graph.node("Softmax", [scores], "shares", axis=-1)
    mixed = graph.node("MatMul", [shares, times(h, "values", dense(head.value, graph.dtype))], "mixed")
    return times(mixed, "outputs", dense(head.output, graph.dtype))


def pool(graph: Graph, h: str, present: str | None) -> str:
    """(batch, n, D) -> (batch, 1, D), present tokens added up."""
    if present is not None:
        mask = graph.node("Unsqueeze", [present, graph.whole([2], "axis_2")], "present_streams")
        h = graph.node("Where", [mask, h, graph.constant(0, "nothing")], "present_only")
    return graph.node("ReduceSum", [h, graph.whole([1], "axis_1")], "pooled", keepdims=1)


def to_columns(graph: Graph, h: str, width: int) -> str:
    """(batch, k, D) -> (D, batch·k)."""
    flat = graph.node("Reshape", [h, graph.whole([-1, width], "flat_shape")], "flat")
    return graph.node("Transpose", [flat], "columns", perm=[1, 0])


def to_tokens(graph: Graph, columns: str, width: int, length: int) -> str:
    """(D, batch·n) -> (batch, n, D)."""
    flat = graph.node("Transpose", [columns], "flat", perm=[1, 0])
    return graph.node("Reshape", [flat, graph.whole([-1, length, width], "token_shape")], "tokens_again")


def blocks(graph: Graph, stack: Sequence[Residual], h: str) -> str:
    """Residual blocks on columns, unrolled or, for deep stacks, as Scans."""
    if len(stack) <= MOST_UNROLLED:
        for block in stack:
            h = _block(graph, block, h)
        return h
    for run in _runs(stack):
        h = _scan(graph, run, h) if len(run) > 1 else _block(graph, run[0], h)
    return h


def affine(graph: Graph, layer: Affine, h: str) -> str:
    """A plain layer on columns."""
    inputs = [graph.constant(dense(layer.weight, graph.dtype), "W"), h]
    if layer.bias is not None:
        inputs.append(graph.constant(vector(layer.bias, graph.dtype)[:, None], "b"))
    out = graph.node("Gemm", inputs, "affine")
    return graph.node("Relu", [out], "active") if layer.relu else out


def _block(graph: Graph, block: Residual, h: str) -> str:
    if block.hidden:
        up = [graph.constant(dense(block.weight1, graph.dtype), "W1"), h]
        up.append(graph.constant(vector(block.bias1, graph.dtype)[:, None], "b1"))
        hidden = graph.node("Relu", [graph.node("Gemm", up, "raw")], "hidden")
        h = graph.node("Gemm", [graph.constant(dense(block.weight2, graph.dtype), "W2"), hidden, h], "stream")
    if any(block.bias2):
        h = graph.node("Add", [h, graph.constant(vector(block.bias2, graph.dtype)[:, None], "b2")], "stream")
    return h


def _runs(stack: Sequence[Residual]) -> Iterator[list[Residual]]:
    """Neighbours of similar hidden size; a block without units (a snap) stays alone, as its Add must not be merged."""
    run = [stack[0]]
    for before, block in pairwise(stack):
        sizes = sorted((run[0].hidden, block.hidden))
        if not before.hidden or not block.hidden or sizes[1] > 2 * sizes[0]:
            yield run
            run = []
        run.append(block)
    yield run


def _scan(graph: Graph, run: list[Residual], h: str) -> str:
    width, hidden = run[0].width_in, max(block.hidden for block in run)
    stacks = [np.zeros((len(run), *shape), graph.dtype) for shape in _shapes(width, hidden)]
    for i, block in enumerate(run):
        q = block.hidden
        stacks[0][i, :q], stacks[1][i, :q, 0] = dense(block.weight1, graph.dtype), vector(block.bias1, graph.dtype)
        stacks[2][i, :, :q], stacks[3][i, :, 0] = dense(block.weight2, graph.dtype), vector(block.bias2, graph.dtype)
    helper, name = graph.onnx.helper, graph.name("deep")
    names = [f"{name}_{part}" for part in ("W1", "b1", "W2", "b2")]
    body = helper.make_graph(
        [
            helper.make_node("Gemm", [names[0], "h", names[1]], [f"{name}_raw"]),
            helper.make_node("Relu", [f"{name}_raw"], [f"{name}_hidden"]),
            helper.make_node("Gemm", [names[2], f"{name}_hidden", "h"], [f"{name}_sum"]),
            helper.make_node("Add", [f"{name}_sum", names[3]], [f"{name}_out"]),
        ],
        name,
        [
            graph.info("h", [width, None]),
            *(graph.info(n, [*s]) for n, s in zip(names, _shapes(width, hidden), strict=True)),
        ],
        [graph.info(f"{name}_out", [width, None])],
    )
    weights = [graph.constant(stack, f"{n}_stack") for n, stack in zip(names, stacks, strict=True)]
    return graph.node("Scan", [h, *weights], "stream", body=body, num_scan_inputs=4)


def _shapes(width: int, hidden: int) -> list[tuple[int, int]]:
    return [(hidden, width), (hidden, 1), (width, hidden), (width, 1)]
