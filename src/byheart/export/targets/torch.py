"""PyTorch: an nn.Module of ordinary parts, rechecked; and a file that plain PyTorch loads without byheart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.encoder import Encoder
from byheart.errors import ExportError, MissingExtraError
from byheart.export.recheck import Array, dense, place_stride, vector
from byheart.export.request import ExportRequest
from byheart.export.targets._base import target
from byheart.ir.layers import Affine, Attention, Embedding, Kind, Layer, Pattern, Pool, Residual
from byheart.ir.network import Network, Read
from byheart.ir.walk import LayerWalk

if TYPE_CHECKING:
    from byheart.export.torch_runtime import TorchMemory


def build_torch(request: ExportRequest, *, fast: bool = False) -> TorchMemory:
    """The module, checked against the exact answers. `fast` asks for the fast form (see `torch_runtime.FastMemory`)."""
    torch = _torch()
    from byheart.export.torch_runtime import TorchMemory

    fit, queried = request.prove(), request.queries()
    config = config_of(request.network, request.encoder, request.dtype, fit.types)
    state = {name: torch.from_numpy(array) for name, array in state_of(request.network, request.dtype).items()}
    model = TorchMemory(config, state, {})
    if fast:
        try:
            model = model.fast()
        except ValueError as error:
            raise ExportError(f"{error}; ask for the plain form") from None

    def run(tokens: npt.NDArray[np.generic], present: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        mask = None if request.encoder.symbols is not None or request.encoder.task.pads else torch.from_numpy(present)
        found: npt.NDArray[np.int64] = model.predict(torch.from_numpy(np.ascontiguousarray(tokens)), mask).numpy()
        return found

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # waiting threads spin; beside another busy process they cost far more than they save
    try:
        checked = request.recheck(run, queried, "PyTorch")
    finally:
        torch.set_num_threads(threads)
    model.metadata = request.metadata(fit, checked)
    return model


@target("torch")
def write_torch(request: ExportRequest, path: Path) -> dict[str, Any]:
    """Write `path` (weights, configuration, metadata) and the module's source beside it as a .py file."""
    torch = _torch()
    from byheart.export import torch_runtime

    model = build_torch(request)
    source = path.with_suffix(".py")
    if path.suffix == ".py" or source.name == "torch.py":
        raise ExportError(f"{path.name} would hide another module; name the file like memory.pt")
    saved = {"config": model.config, "state": dict(model.state_dict()), "metadata": model.metadata}
    request.write(path, lambda part: torch.save(saved, part))
    text = Path(torch_runtime.__file__).read_text(encoding="utf-8")
    request.write(source, lambda part: part.write_text(text, encoding="utf-8"))
    return {"file": str(path), "source": str(source), "metadata": model.metadata}


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtraError("export to PyTorch", "torch") from None
    return torch


def config_of(network: Network, encoder: Encoder, dtype: str, proved: tuple[str, ...] = ()) -> dict[str, Any]:
    """The architecture as plain values; `proved` are the float types that the weights may be cast to."""
    return {
        "dtype": dtype,
        "proved": list(proved or (dtype,)),
        "read": str(network.read),
        "decode": str(network.readout.decode),
        "classes": network.readout.classes,
        "offset": network.readout.offset,
        "length": encoder.length,
        "positions": encoder.positions,
        "symbols": encoder.symbols is not None,
        "ragged": not encoder.task.pads,
        "layers": _Shapes(network.read).over(network.layers),
    }


class _Shapes(LayerWalk[dict[str, Any]]):
    """A layer as the module of `torch_runtime` is configured."""

    def __init__(self, read: Read) -> None:
        self.read = read

    def refuse(self, layer: Layer) -> NoReturn:
        raise ExportError(f"a {type(layer).__name__} layer of this kind has no PyTorch form; use construction native")

    def embedding(self, layer: Embedding) -> dict[str, Any]:
        return _shape(layer, "embedding", rows=layer.vocabulary, stride=place_stride(layer))

    def affine(self, layer: Affine) -> dict[str, Any]:
        bias = layer.bias is not None
        return _shape(layer, "affine", width_in=layer.width_in, bias=bias, relu=layer.relu)

    def residual(self, layer: Residual) -> dict[str, Any]:
        return _shape(layer, "residual", hidden=layer.hidden)

    def attention(self, layer: Attention) -> dict[str, Any]:
        if layer.kind is not Kind.SOFTMAX or layer.pattern not in (Pattern.FULL, Pattern.CAUSAL):
            self.refuse(layer)
        heads = [[len(head.value.rows), len(head.key.rows) if head.key is not None else 0] for head in layer.heads]
        causal, last = layer.pattern is Pattern.CAUSAL, self.last and self.read is Read.LAST
        return _shape(layer, "attention", heads=heads, causal=causal, last=last)

    def pool(self, layer: Pool) -> dict[str, Any]:
        return _shape(layer, "pool")


def _shape(layer: Layer, name: str, **values: Any) -> dict[str, Any]:
    return {"width": layer.width_out, "layer": name, **values}


def state_of(network: Network, dtype: str) -> dict[str, Array]:
    """Every weight by its name in the module's state_dict."""
    layers = enumerate(_Weights(dtype).over(network.layers))
    return {f"layers.{i}.{name}": array for i, layer in layers for name, array in layer.items()}


class _Weights(LayerWalk[dict[str, Array]]):
    """A layer's weights by their names in its module."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def embedding(self, layer: Embedding) -> dict[str, Array]:
        return {"rows.weight": dense(layer.table, self.dtype)}

    def affine(self, layer: Affine) -> dict[str, Array]:
        part = "0." if layer.relu else ""
        found = {f"{part}weight": dense(layer.weight, self.dtype)}
        return found if layer.bias is None else {**found, f"{part}bias": vector(layer.bias, self.dtype)}

    def residual(self, layer: Residual) -> dict[str, Array]:
        if not layer.hidden:
            return {"bias": vector(layer.bias2, self.dtype)}
        return {
            "up.weight": dense(layer.weight1, self.dtype),
            "up.bias": vector(layer.bias1, self.dtype),
            "down.weight": dense(layer.weight2, self.dtype),
            "down.bias": vector(layer.bias2, self.dtype),
        }

    def attention(self, layer: Attention) -> dict[str, Array]:
        parts = ("query", "key", "value", "output")
        found = {(h, part): getattr(head, part) for h, head in enumerate(layer.heads) for part in parts}
        return {f"heads.{h}.{part}.weight": dense(m, self.dtype) for (h, part), m in found.items() if m is not None}

    def pool(self, layer: Pool) -> dict[str, Array]:
        return {}
