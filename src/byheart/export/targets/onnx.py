"""ONNX: a valid model with a dynamic batch axis, rechecked in ONNX Runtime before it is written.

Inputs: `tokens` (codes, or vectors), for ragged vectors also `present`. Outputs: `class` (whole numbers, -1 for none)
and `logits`. Token and label tables are metadata.

A small writer of ONNX graphs: nodes and constants with descriptive names.

The layers of a network as ONNX nodes.

Single tokens are columns: the stream is (D, columns), a block is Gemm, Relu, Gemm with the stream as its C. Deep stacks
are Scans over stacked weights (units that are missing in a block are zero), so that files load quickly. A scale is
never written as Mul after a MatMul: ONNX Runtime fuses it into another order of rounding.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.encoder import Encoder
from byheart.errors import ExportError, MissingExtraError
from byheart.export.recheck import Array, dense, place_stride, vector
from byheart.export.request import ExportRequest
from byheart.export.targets._base import target
from byheart.ir.layers import Affine, Attention, Embedding, Head, Kind, Layer, Pattern, Pool, Residual
from byheart.ir.network import Decode, Network, Read
from byheart.ir.walk import LayerWalk

IR_VERSION = 10  # what ONNX Runtime reads today; newer onnx packages write a later one by themselves
# Of ONNX's own operators.
OPSET = 20
ML_OPSET = 4  # of ai.onnx.ml, for graphs that look values up
ML = "ai.onnx.ml"
RUNTIME = "com.microsoft"  # operators that ONNX Runtime alone has
_OPSETS = {ML: ML_OPSET, RUNTIME: 1}
LEAD = 32.0  # margin of the correct class in nats; a power of two, so that scaling is exact


class Graph:
    """Collect nodes and initializers; every method returns the name of a tensor."""

    def __init__(self, dtype: str) -> None:
        import onnx

        self.onnx, self.dtype = onnx, dtype
        kinds = onnx.TensorProto
        self.element = {"float64": kinds.DOUBLE, "float32": kinds.FLOAT, "float16": kinds.FLOAT16}[dtype]
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.counts: dict[str, int] = {}
        self.domains: set[str] = set()  # beside ONNX's own

    def name(self, wish: str) -> str:
        """`wish`, or with a number when it is taken."""
        count = self.counts.get(wish, 0)
        self.counts[wish] = count + 1
        return wish if count == 0 else f"{wish}_{count}"

    def constant(self, array: npt.ArrayLike, wish: str, kind: Any = None) -> str:
        name = self.name(wish)
        data = np.ascontiguousarray(array, dtype=np.dtype(kind or self.dtype))
        self.constants.append(self.onnx.numpy_helper.from_array(data, name))
        return name

    def texts(self, values: Sequence[str], wish: str) -> str:
        """A constant of strings."""
        name = self.name(wish)
        self.constants.append(self.text_tensor(values, name))
        return name

    def text_tensor(self, values: Sequence[str], name: str) -> Any:
        """Strings, each as it is: the library's own helper would take null characters off their ends."""
        encoded = [value.encode() for value in values]
        return self.onnx.TensorProto(
            name=name, data_type=self.onnx.TensorProto.STRING, dims=[len(encoded)], string_data=encoded
        )

    def node(self, operator: str, inputs: list[str], wish: str, **attributes: Any) -> str:
        name = self.name(wish)
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, [name], name=f"{operator}:{name}", **attributes))
        return name

    def shorten(self, kept: Sequence[str]) -> None:
        """Make the graph's bytes few: no names of nodes, short ones of tensors, whole numbers as varints.

        `kept` are the names of inputs and outputs.
        """
        free = (name for size in itertools.count(1) for name in _letters(size) if name not in kept)
        short = {name: name for name in ("", *kept)}
        for node in self.nodes:
            node.name = ""
            for tensors in (node.input, node.output):
                tensors[:] = [short[name] if name in short else short.setdefault(name, next(free)) for name in tensors]
        for constant in self.constants:
            constant.name = short[constant.name]
            pack(constant)

    def look_up_values(self, keys: Any, values: str, wish: str) -> str:
        """The place of each value among `keys` (a tensor), -1 for a value that is not among them."""
        helper, kinds = self.onnx.helper, self.onnx.TensorProto
        count = keys.dims[0]
        numbers = self.onnx.numpy_helper.from_array(np.arange(count, dtype=np.int64), "values")
        nothing = helper.make_tensor("default", kinds.INT64, [1], [-1])
        self.domains.add(ML)
        return self.node(
            "LabelEncoder", [values], wish, domain=ML, keys_tensor=keys, values_tensor=numbers, default_tensor=nothing
        )

    def names(self, operator: str, inputs: list[str], wishes: list[str], **attributes: Any) -> list[str]:
        """A node with several outputs."""
        names = [self.name(wish) for wish in wishes]
        self.nodes.append(
            self.onnx.helper.make_node(operator, inputs, names, name=f"{operator}:{names[0]}", **attributes)
        )
        return names

    def whole(self, numbers: list[int], wish: str) -> str:
        return self.constant(numbers, wish, np.int64)

    def info(self, name: str, shape: list[Any], element: Any = None) -> Any:
        """A typed input or output."""
        return self.onnx.helper.make_tensor_value_info(name, self.element if element is None else element, shape)

    def model(self, inputs: list[Any], outputs: list[Any], about: dict[str, str], name: str = "memory") -> Any:
        """The finished model, valid and fully shape-inferred, or onnx's own error."""
        helper = self.onnx.helper
        graph = helper.make_graph(self.nodes, name, inputs, outputs, self.constants)
        domains = {"": OPSET} | {name: _OPSETS[name] for name in sorted(self.domains)}
        opsets = [helper.make_opsetid(name, version) for name, version in domains.items()]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="byheart")
        helper.set_model_props(model, about)
        checked = model
        if any(node.ByteSize() > _MOST_CHECKED for node in self.nodes):
            # The checks copy a model twice, and look at the types of a list, not at its length.
            nodes = [_skeleton(node) if node.ByteSize() > _MOST_CHECKED else node for node in self.nodes]
            graph = helper.make_graph(nodes, name, inputs, outputs, self.constants)
            checked = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        self.onnx.checker.check_model(checked, full_check=True)
        self.onnx.shape_inference.infer_shapes(checked, check_type=True, strict_mode=True, data_prop=True)
        return model


def _letters(size: int) -> Iterator[str]:
    return map("".join, itertools.product(string.ascii_lowercase, repeat=size))


def varint_sizes(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Bytes of each whole number as a varint: 7 bits per byte, 10 bytes for a negative number.

    >>> varint_sizes(np.array([0, 127, 128, -1])).tolist()
    [1, 1, 2, 10]
    """
    longer = (numbers[..., None] >> np.arange(7, 63, 7) > 0).sum(axis=-1)
    return np.where(numbers < 0, 10, 1 + longer)


def pack(tensor: Any) -> Any:
    """A tensor of int64 with its numbers as varints where these are shorter than 8 bytes each."""
    if tensor.data_type == tensor.INT64 and tensor.raw_data:
        numbers = np.frombuffer(tensor.raw_data, dtype="<i8")
        if int(varint_sizes(numbers).sum()) < len(tensor.raw_data):
            tensor.ClearField("raw_data")
            tensor.int64_data.extend(numbers.tolist())
    return tensor


_MOST_CHECKED = 1 << 20  # bytes of a node that is checked with its whole lists


def _skeleton(node: Any) -> Any:
    """A node with the first two elements of its lists."""
    short = type(node)(op_type=node.op_type, domain=node.domain, input=node.input, output=node.output)
    for part in node.attribute:
        copy = short.attribute.add(name=part.name, type=part.type)
        if part.HasField("t") and part.t.dims[0] > 2:
            copy.t.data_type = part.t.data_type
            copy.t.dims.append(2)
            copy.t.int64_data.extend(part.t.int64_data[:2])
            if part.t.raw_data:
                copy.t.raw_data = part.t.raw_data[:16]
        elif part.ints or part.strings:
            copy.ints.extend(part.ints[:2])
            copy.strings.extend(part.strings[:2])
        else:
            copy.CopyFrom(part)
    return short


MOST_UNROLLED = 64  # blocks; unrolled they run a little faster, but each takes a millisecond to load


def look_up(graph: Graph, layer: Embedding, codes: str, length: int) -> str:
    """Codes (batch, n) -> streams (batch, n, D)."""
    rows = graph.node("Max", [codes, graph.whole([0], "zero")], "codes")
    stride = place_stride(layer)
    if stride:
        places = graph.whole([stride * k for k in range(length)], "places")
        rows = graph.node("Add", [rows, places], "rows")
    return graph.node("Gather", [graph.constant(dense(layer.table, graph.dtype), "table"), rows], "embedded")


def map_vectors(graph: Graph, moves: list[Array], layer: Affine, vectors: str, encoder: Encoder) -> str:
    """Vectors (batch, n, d) -> streams (batch, n, D), with the `moves` added to each token one after the other before
    it is mapped; the position's part of the map is a constant per place."""
    weight, d = dense(layer.weight, graph.dtype), encoder.dimension
    bias = np.zeros(layer.width_out, weight.dtype) if layer.bias is None else vector(layer.bias, graph.dtype)
    shift = np.tile(bias, (encoder.length, 1))
    if encoder.positions:
        places = np.arange(encoder.length).astype(weight.dtype)
        for move in moves:
            places = places + move[d]
        shift += places[:, None] * weight[:, d]
    for move in moves:
        vectors = graph.node("Add", [vectors, graph.constant(move[:d], "move")], "moved")
    mapped = graph.node("MatMul", [vectors, graph.constant(weight[:, :d].T, "input_map")], "mapped")
    mapped = graph.node("Add", [mapped, graph.constant(shift, "input_shift")], "shifted")
    return graph.node("Relu", [mapped], "active") if layer.relu else mapped


def _moves(layers: tuple[Layer, ...], dtype: str) -> list[Array]:
    """What the blocks without units before the first map add to a token."""
    front = takewhile(lambda layer: isinstance(layer, Residual) and not layer.hidden, layers)
    return [vector(layer.bias2, dtype) for layer in front if isinstance(layer, Residual)]


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


@target("onnx")
def write_onnx(request: ExportRequest, path: Path) -> dict[str, Any]:
    """Builds, checks, runs and writes the model."""
    onnx, runtime = libraries()
    fit, queried = request.prove(), request.queries()
    model = build_model(request.network, request.encoder, request.dtype, {})
    session = open_session(runtime, model)

    def run(tokens: npt.NDArray[np.generic], present: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        feeds: dict[str, npt.NDArray[np.generic]] = {"tokens": tokens}
        if len(session.get_inputs()) > 1:
            feeds["present"] = present
        found: npt.NDArray[np.int64] = session.run(["class"], feeds)[0]
        return found

    about = request.metadata(fit, request.recheck(run, queried, "ONNX"))
    onnx.helper.set_model_props(model, about)
    request.write(path, lambda part: part.write_bytes(model.SerializeToString()))
    return {"file": str(path), "metadata": about}


def libraries() -> tuple[Any, Any]:
    """onnx and onnxruntime."""
    try:
        import onnx
        import onnxruntime
    except ImportError:
        raise MissingExtraError("export to ONNX", "onnx") from None
    return onnx, onnxruntime


def open_session(runtime: Any, model: Any) -> Any:
    """The model in ONNX Runtime, on one thread that does not spin."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    data = model if isinstance(model, bytes) else model.SerializeToString()
    return runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def build_model(network: Network, encoder: Encoder, dtype: str, about: dict[str, str]) -> Any:
    """The model of a network; weights that this float type cannot hold are an ExportError."""
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
    columns, tokens = walk(graph, network, encoder, "tokens", present)
    shape = ["batch", encoder.length] if network.read is Read.EACH else ["batch"]
    ends = [-1, tokens] if network.read is Read.EACH else [-1]
    values = decoded(graph, network, columns)
    best = classes(graph, network, values)
    graph.node("Reshape", [best, graph.whole(ends, "class_shape")], "class")
    ends = [*ends, network.readout.classes]
    graph.node("Reshape", [_logits(graph, network, values, best), graph.whole(ends, "logits_shape")], "logits")
    outputs = [graph.info("class", shape, types.INT64), graph.info("logits", [*shape, network.readout.classes])]
    return graph.model(inputs, outputs, about)


def walk(graph: Graph, network: Network, encoder: Encoder, codes: str, present: str | None) -> tuple[str, int]:
    """All layers, from `codes` (codes or vectors); returns the outputs as columns (width, batch·k) and k."""
    layers, length = network.layers, encoder.length
    moves = _moves(layers, graph.dtype)
    first = layers[len(moves)]
    if isinstance(first, Embedding):
        h = look_up(graph, first, codes, length)
    elif isinstance(first, Affine):
        h = codes
        if encoder.symbols is not None:
            h = graph.node("Cast", [graph.node("Unsqueeze", [h, graph.whole([2], "axis_2")], "codes")], "numbers",
                           to=graph.element)  # fmt: skip
        elif present is not None:  # what follows the end of a row is multiplied by 0, so it must be finite
            mask = graph.node("Unsqueeze", [present, graph.whole([2], "axis_2")], "present_vectors")
            h = graph.node("Where", [mask, h, graph.constant(0, "nothing")], "vectors")
        h = map_vectors(graph, moves, first, h, encoder)
    else:
        raise ExportError(f"a network that starts with {type(first).__name__} has no ONNX form; use native")
    nodes = _Nodes(graph, network, h, first.width_out, length, present)
    nodes.over(layers[len(moves) + 1 :])
    return nodes.columns(), nodes.tokens


class _Nodes(LayerWalk[None]):
    """The layers after the first as nodes. `h` holds tokens (batch, tokens, width) or, where `flat`, columns (width,
    batch·tokens); blocks are collected, so that a deep stack becomes one Scan."""

    def __init__(self, graph: Graph, network: Network, h: str, width: int, length: int, present: str | None) -> None:
        self.graph, self.h, self.width, self.length, self.present = graph, h, width, length, present
        self.read = network.read
        self.tokens, self.flat = length, False
        self.stack: list[Residual] = []

    def refuse(self, layer: Layer) -> NoReturn:
        raise ExportError(f"a {type(layer).__name__} layer has no ONNX form; use construction native")

    def columns(self) -> str:
        """Make the stream columns, after the blocks that were collected."""
        if not self.flat:
            self.h, self.flat = to_columns(self.graph, self.h, self.width), True
        if self.stack:
            self.h, self.stack = blocks(self.graph, self.stack, self.h), []
        return self.h

    def sequence(self) -> str:
        """Make the stream tokens."""
        if self.stack or self.flat:
            self.h, self.flat = to_tokens(self.graph, self.columns(), self.width, self.tokens), False
        return self.h

    def residual(self, layer: Residual) -> None:
        self.stack.append(layer)

    def affine(self, layer: Affine) -> None:
        self.h, self.width = affine(self.graph, layer, self.columns()), layer.width_out

    def attention(self, layer: Attention) -> None:
        last = self.last and self.read is Read.LAST
        self.h = attention(self.graph, layer, self.sequence(), self.present, self.length, last)
        self.tokens = 1 if last else self.tokens

    def pool(self, layer: Pool) -> None:
        self.h, self.tokens = pool(self.graph, self.sequence(), self.present), 1


def decoded(graph: Graph, network: Network, columns: str) -> str:
    """Outputs (width, columns) as rows (columns, width), from which class and logits are read."""
    rows, readout = graph.node("Transpose", [columns], "answers", perm=[1, 0]), network.readout
    if readout.decode is Decode.ARGMAX or not readout.offset:
        return rows
    return graph.node("Sub", [rows, graph.constant([readout.offset], "offset")], "answer")


def classes(graph: Graph, network: Network, rows: str) -> str:
    """Class numbers of rows, -1 for none."""
    if network.readout.decode is Decode.ARGMAX:
        first = graph.node("ArgMax", [rows], "first_best", axis=-1, keepdims=0)
        last = graph.node("ArgMax", [rows], "last_best", axis=-1, keepdims=0, select_last_index=1)
        single = graph.node("Equal", [first, last], "single")  # a tie names no class
        return graph.node("Where", [single, first, graph.whole([-1], "none")], "best")
    low = graph.node("GreaterOrEqual", [rows, graph.constant([0], "least")], "not_below")
    high = graph.node("Less", [rows, graph.constant([network.readout.classes], "classes")], "not_above")
    whole = graph.node("Equal", [rows, graph.node("Floor", [rows], "floor")], "whole")
    known = graph.node("And", [graph.node("And", [low, high], "inside"), whole], "known")
    named = graph.node("Where", [known, rows, graph.constant([-1], "none")], "named")
    flat = graph.node("Reshape", [named, graph.whole([-1], "vector")], "named_flat")
    return graph.node("Cast", [flat], "best", to=graph.onnx.TensorProto.INT64)


def _logits(graph: Graph, network: Network, rows: str, best: str) -> str:
    """Rows (columns, classes): the correct class has the margin `LEAD`; all are 0 where no class is named."""
    if network.readout.decode is Decode.ARGMAX:
        found = graph.node("Mul", [rows, graph.constant([LEAD], "lead")], "scaled")
    else:
        k = np.arange(network.readout.classes)
        away = graph.node("Sub", [rows, graph.constant(k[None, :], "class_numbers")], "away")
        squares = graph.node("Mul", [away, away], "squares")
        found = graph.node("Mul", [squares, graph.constant([-LEAD], "lead")], "parabola")  # 0 for the class itself
    each = graph.node("Reshape", [best, graph.whole([-1, 1], "one_each")], "best_column")
    named = graph.node("GreaterOrEqual", [each, graph.whole([0], "first_class")], "is_named")
    return graph.node("Where", [named, found, graph.constant([0], "no_class")], "logits_or_none")
