"""PyTorch: an nn.Module of ordinary parts, rechecked; and a file that plain PyTorch loads without byheart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.encoder import Encoder
from byheart.errors import ExportError, MissingExtraError
from byheart.export.recheck import Array, dense, place_stride, vector
from byheart.export.request import ExportRequest
from byheart.export.targets._base import target
from byheart.ir.layers import Affine, Attention, Embedding, Kind, Layer, Pattern, Pool, Residual
from byheart.ir.network import Network, Read

if TYPE_CHECKING:
    from byheart.export.torch_runtime import TorchMemory


def build_torch(request: ExportRequest, *, fast: bool = False) -> TorchMemory:
    """The module, checked against the exact answers. `fast` asks for the fast form (see `torch_runtime.FastMemory`)."""
    torch = _torch()
    from byheart.export.torch_runtime import TorchMemory

    fit, asked = request.prove(), request.questions()
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
    torch.set_num_threads(1)  # waiting threads spin; beside another busy process they cost far more than they bring
    try:
        checked = request.recheck(run, asked, "PyTorch")
    finally:
        torch.set_num_threads(threads)
    model.metadata = request.metadata(fit, checked)
    return model


@target("torch")
def write_torch(request: ExportRequest, path: Path) -> dict[str, Any]:
    """Writes `path` (weights, configuration, metadata) and the module's source beside it as a .py file."""
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
    mixers = [i for i, layer in enumerate(network.layers) if isinstance(layer, Attention | Pool)]
    last = mixers[-1] if mixers and network.read is Read.LAST else -1
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
        "layers": [_layer(layer, last=i == last) for i, layer in enumerate(network.layers)],
    }


def _layer(layer: Layer, *, last: bool) -> dict[str, Any]:
    out: dict[str, Any] = {"width": layer.width_out}
    match layer:
        case Embedding():
            return {**out, "layer": "embedding", "rows": layer.vocabulary, "stride": place_stride(layer)}
        case Affine():
            bias = layer.bias is not None
            return {**out, "layer": "affine", "width_in": layer.width_in, "bias": bias, "relu": layer.relu}
        case Residual():
            return {**out, "layer": "residual", "hidden": layer.hidden}
        case Attention() if layer.kind is Kind.SOFTMAX and layer.pattern in (Pattern.FULL, Pattern.CAUSAL):
            heads = [[len(head.value.rows), len(head.key.rows) if head.key is not None else 0] for head in layer.heads]
            causal = layer.pattern is Pattern.CAUSAL
            return {**out, "layer": "attention", "heads": heads, "causal": causal, "last": last}
        case Pool():
            return {**out, "layer": "pool"}
    raise ExportError(f"a {type(layer).__name__} layer of this kind has no PyTorch form; use construction native")


def state_of(network: Network, dtype: str) -> dict[str, Array]:
    """Every weight by its name in the module's state_dict."""
    state: dict[str, Array] = {}
    for i, layer in enumerate(network.layers):
        name = f"layers.{i}"
        match layer:
            case Embedding():
                state[f"{name}.rows.weight"] = dense(layer.table, dtype)
            case Affine():
                part = f"{name}.0" if layer.relu else name
                state[f"{part}.weight"] = dense(layer.weight, dtype)
                if layer.bias is not None:
                    state[f"{part}.bias"] = vector(layer.bias, dtype)
            case Residual() if layer.hidden:
                state[f"{name}.up.weight"], state[f"{name}.up.bias"] = (
                    dense(layer.weight1, dtype),
                    vector(layer.bias1, dtype),
                )
                state[f"{name}.down.weight"] = dense(layer.weight2, dtype)
                state[f"{name}.down.bias"] = vector(layer.bias2, dtype)
            case Residual():
                state[f"{name}.bias"] = vector(layer.bias2, dtype)
            case Attention():
                for h, head in enumerate(layer.heads):
                    for part in ("query", "key", "value", "output"):
                        matrix = getattr(head, part)
                        if matrix is not None:
                            state[f"{name}.heads.{h}.{part}.weight"] = dense(matrix, dtype)
    return state
