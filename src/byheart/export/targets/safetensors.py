"""safetensors: every weight as a named tensor, the architecture and the tables as metadata.

What such a file means is `run_arrays`, a memory in forty lines of NumPy that need nothing else of byheart.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.errors import MissingExtraError
from byheart.export.request import ExportRequest
from byheart.export.targets._base import target
from byheart.export.targets.torch import config_of, state_of

Array = npt.NDArray[Any]


def run_arrays(config: dict[str, Any], tensors: dict[str, Array], tokens: Array, present: Array) -> Array:
    """Class numbers, -1 for none: tokens are codes (B, n) or vectors (B, n, d), present (B, n) marks real tokens."""
    h = tokens if config["layers"][0]["layer"] == "embedding" else _streams(config, tokens, present)
    with np.errstate(invalid="ignore"):  # some BLAS raise the flag for lanes beyond the end of a short row
        for i, layer in enumerate(config["layers"]):
            start = f"layers.{i}."
            part = {name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)}
            h = _layer(layer, part, h, present, config)
    values = h if config["read"] == "each" else h[:, -1]
    if config["decode"] == "argmax":
        tied = (values == values.max(axis=-1, keepdims=True)).sum(axis=-1) > 1
        return np.asarray(np.where(tied, -1, values.argmax(axis=-1)))
    y = values[..., 0] - config["offset"]
    return np.where((y >= 0) & (y < config["classes"]) & (y == np.floor(y)), y, -1).astype(np.int64)


def _streams(config: dict[str, Any], tokens: Array, present: Array) -> Array:
    """Numbers (B, n, D) of codes or vectors; with positions, the place is one more of them."""
    h = np.where(present[..., None], tokens[..., None] if tokens.ndim == 2 else tokens, 0).astype(config["dtype"])
    if not config["positions"]:
        return h
    places = np.broadcast_to(np.arange(h.shape[1])[None, :, None], (*h.shape[:2], 1)).astype(h.dtype)
    return np.concatenate([h, places], axis=-1)


def _layer(layer: dict[str, Any], part: dict[str, Array], h: Array, present: Array, config: dict[str, Any]) -> Array:
    kind, n = layer["layer"], h.shape[1]
    if kind == "embedding":
        return np.asarray(part["rows.weight"][np.maximum(h, 0) + layer["stride"] * np.arange(n)])
    if kind == "residual":
        if not layer["hidden"]:
            return np.asarray(h + part["bias"])
        hidden = np.maximum(h @ part["up.weight"].T + part["up.bias"], 0)
        return np.asarray(h + (hidden @ part["down.weight"].T + part["down.bias"]))
    if kind == "pool":
        return np.asarray(np.where(present[..., None], h, 0).sum(axis=1, keepdims=True))
    if kind == "attention":
        return _attention(layer, part, h, present if config["ragged"] else np.ones_like(present))
    name = "0." if layer["relu"] else ""
    out = h @ part[f"{name}weight"].T + part.get(f"{name}bias", 0)
    return np.maximum(out, 0) if layer["relu"] else out


def _attention(layer: dict[str, Any], part: dict[str, Array], h: Array, present: Array) -> Array:
    allowed = np.broadcast_to(present[:, None, :], (len(h), h.shape[1], h.shape[1]))
    if layer["causal"]:
        allowed = np.broadcast_to(np.tril(np.ones(allowed.shape[1:], dtype=bool)), allowed.shape)
    out = h
    for i in range(len(layer["heads"])):
        query, key, value, output = (part[f"heads.{i}.{name}.weight"].T for name in ("query", "key", "value", "output"))
        scores = np.where(allowed, (h @ query) @ (h @ key).transpose(0, 2, 1), -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        out = out + (weights / weights.sum(axis=-1, keepdims=True)) @ (h @ value) @ output
    return np.asarray(out[:, -1:] if layer["last"] else out)


@target("safetensors")
def write_safetensors(request: ExportRequest, path: Path) -> dict[str, Any]:
    """Tensors named as in the PyTorch module, checked with a NumPy reader of what the file will hold."""
    try:
        from safetensors.numpy import load, save
    except ImportError:
        raise MissingExtraError("export to safetensors", "safetensors") from None
    fit, queried = request.prove(), request.queries()
    config = config_of(request.network, request.encoder, request.dtype, fit.types)
    state = {name: np.ascontiguousarray(array) for name, array in state_of(request.network, request.dtype).items()}
    tensors = load(save(state))

    def run(tokens: npt.NDArray[np.generic], present: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        return run_arrays(config, tensors, tokens, present)

    about = request.metadata(fit, request.recheck(run, queried, "safetensors"))
    about["byheart.architecture"] = json.dumps(config)
    request.write(path, lambda part: part.write_bytes(save(state, metadata=about)))
    return {"file": str(path), "metadata": about}
