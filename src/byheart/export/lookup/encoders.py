"""`LabelEncoder` nodes in few bytes: keys and values as a list of an attribute or as a tensor, whichever is smaller.

>>> whole_bytes(np.arange(100)), list_bytes(np.arange(100))
(109, 200)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.read.cells import CellType
from byheart.data.tokens.front import Cells
from byheart.export.onnx_table import (
    tensor,
)
from byheart.export.targets.onnx import ML, Graph, pack, varint_sizes

Whole = npt.NDArray[np.int64]
RAW = 8  # bytes of a float64, and of an int64 in a raw tensor
# More bytes of a tensor in an attribute than of a list there: two wrappers, the dimension, the type; measured.
_TENSOR_BYTES, _DEFAULT_TENSOR_BYTES = 9, 8


def list_bytes(numbers: Whole) -> int:
    """Bytes of whole numbers as a repeated attribute: a tag and a varint each.

    >>> list_bytes(np.array([0, 127, 128, -1]))
    18
    """
    return int((1 + varint_sizes(numbers)).sum())


def tensor_bytes(numbers: Whole) -> int:
    """Bytes of whole numbers as a tensor in an attribute."""
    return min(int(varint_sizes(numbers).sum()), RAW * len(numbers)) + _TENSOR_BYTES


def text_bytes(texts: Sequence[str]) -> int:
    """Bytes of texts as a repeated attribute or in a tensor: a tag, the length, the UTF-8 bytes."""
    lengths = [len(text.encode()) for text in texts]
    return sum(n + 2 + (n > 127) + (n > 16383) for n in lengths)


def whole_bytes(numbers: Whole) -> int:
    """Bytes of whole numbers in the smaller of the two forms."""
    return min(list_bytes(numbers), tensor_bytes(numbers))


def castable(graph: Graph, cells: str, type: CellType) -> str:
    """`LabelEncoder` has no truth values."""
    if type is CellType.TRUTH:
        return graph.node("Cast", [cells], "truth", to=graph.onnx.TensorProto.INT64)
    return cells


def attribute(graph: Graph, name: str, **content: Any) -> Any:
    """An attribute with a long list: the library's helper inspects every element first."""
    kinds = graph.onnx.AttributeProto
    kind = {"ints": kinds.INTS, "strings": kinds.STRINGS, "t": kinds.TENSOR, "i": kinds.INT, "s": kinds.STRING}
    return graph.onnx.AttributeProto(name=name, type=kind[next(iter(content))], **content)


def whole_list(graph: Graph, role: str, numbers: Whole, extra: int = 0) -> Any:
    """Whole numbers as an attribute or as a tensor, whichever is smaller; `extra` bytes come with the tensor."""
    if list_bytes(numbers) <= tensor_bytes(numbers) + extra:
        return attribute(graph, f"{role}_int64s", ints=numbers.tolist())
    return attribute(graph, f"{role}_tensor", t=unnamed(graph, numbers))


def unnamed(graph: Graph, numbers: npt.NDArray[Any]) -> Any:
    return pack(graph.onnx.numpy_helper.from_array(numbers))


def whole_keys(graph: Graph, keys: Whole) -> Any:
    return whole_list(graph, "keys", keys)


def cell_keys(graph: Graph, cutting: Cells, type: CellType) -> Any:
    """The keys of a `LabelEncoder`: the cells of a column."""
    if type is CellType.TEXT:
        return attribute(graph, "keys_strings", strings=[(value or "").encode() for value in cutting.values])
    if type is CellType.NUMBER:
        return attribute(graph, "keys_tensor", t=unnamed(graph, tensor(cutting.values, type)))
    return whole_keys(graph, np.array(cutting.values, dtype=np.int64))


def encoder(graph: Graph, keys: Any, values: Sequence[Any], source: str, wish: str) -> str:
    """A `LabelEncoder` node; `values` are the attributes of the values and of the default."""
    name = graph.name(wish)
    node = graph.onnx.helper.make_node("LabelEncoder", [source], [name], domain=ML)
    node.attribute.extend([keys, *values])
    graph.domains.add(ML)
    graph.nodes.append(node)
    return name


def whole_values(graph: Graph, numbers: Whole, default: int) -> list[Any]:
    """The attributes of whole values and of the default: ONNX Runtime reads both from tensors or both from lists."""
    values = whole_list(graph, "values", numbers, _DEFAULT_TENSOR_BYTES)
    if values.name.endswith("_tensor"):
        return [values, attribute(graph, "default_tensor", t=unnamed(graph, np.array([default], np.int64)))]
    return [values, attribute(graph, "default_int64", i=default)]
