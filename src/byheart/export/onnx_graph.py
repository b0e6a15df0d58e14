"""A small writer of ONNX graphs: nodes and constants with names that say what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

IR_VERSION = 10  # what ONNX Runtime reads today; newer onnx packages write a later one by themselves
OPSET = 20


class Graph:
    """Collects nodes and initializers; every method returns the name of a tensor."""

    def __init__(self, dtype: str) -> None:
        import onnx

        self.onnx, self.dtype = onnx, dtype
        kinds = onnx.TensorProto
        self.element = {"float64": kinds.DOUBLE, "float32": kinds.FLOAT, "float16": kinds.FLOAT16}[dtype]
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.counts: dict[str, int] = {}

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

    def node(self, operator: str, inputs: list[str], wish: str, **attributes: Any) -> str:
        name = self.name(wish)
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, [name], name=f"{operator}:{name}", **attributes))
        return name

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

    def model(self, inputs: list[Any], outputs: list[Any], about: dict[str, str]) -> Any:
        """The finished model, valid and fully shape-inferred, or onnx's own error."""
        helper = self.onnx.helper
        graph = helper.make_graph(self.nodes, "memory", inputs, outputs, self.constants)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="byheart"
        )
        helper.set_model_props(model, about)
        self.onnx.checker.check_model(model, full_check=True)
        self.onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        return model
