"""A decoder's tensors under the names and in the layouts of llama.cpp, per architecture.

llama.cpp's `llama` architecture rotates neighbouring dimensions of a head, Hugging Face rotates halves: rows of q and k
change places. The other architectures here rotate halves in both. Gemma's norm weights already carry their 1, as
llama.cpp wants them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from byheart.errors import ExportError
from byheart.export.stock import Decoder
from byheart.export.stock.decoder import Attention, Experts, Gated, Layer, Linear, Norm, Plain
from byheart.export.stock.folder import Array

# Hugging Face's model_type -> llama.cpp's architecture
HOSTS = {
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "phi3": "phi3",
    "gemma": "gemma",
    "gpt2": "gpt2",
    "gpt_neox": "gptneox",
}
FUSED = ("phi3", "gpt2", "gptneox")  # q, k and v in one tensor


def host(decoder: Decoder) -> str:
    """The architecture in llama.cpp that computes this decoder; an ExportError says why there is none."""
    name = HOSTS.get(decoder.architecture)
    if name is None:
        raise ExportError(f"llama.cpp has no {decoder.architecture} architecture; it has {', '.join(HOSTS)}")
    windows = {layer.attention.window for layer in decoder.layers} - {None}
    if any(window < decoder.reach for window in windows if window is not None):
        raise ExportError(
            f"this {decoder.architecture} model has a sliding window of {min(w for w in windows if w)} tokens, which "
            f"llama.cpp ignores for it: it would answer wrongly there. Export the architecture llama instead"
        )
    if name == "gemma" and not decoder.tied:
        raise ExportError("llama.cpp's gemma uses the embedding as its head; this model has a head of its own")
    return name


def tensors(decoder: Decoder) -> Iterator[tuple[str, Array]]:
    """Name and values of every tensor, in the order of the network."""
    name = host(decoder)
    yield "token_embd.weight", decoder.embedding
    if decoder.positions is not None:
        yield "position_embd.weight", decoder.positions
    for i, layer in enumerate(decoder.layers):
        for part, values in _layer(layer, name):
            yield f"blk.{i}.{part}", values
    yield from _norm("output_norm", decoder.final_norm)
    if not decoder.tied:
        yield "output.weight", decoder.head.weight


def _norm(name: str, norm: Norm) -> Iterator[tuple[str, Array]]:
    yield f"{name}.weight", norm.weight
    if norm.bias is not None:
        yield f"{name}.bias", norm.bias


def _linear(name: str, linear: Linear) -> Iterator[tuple[str, Array]]:
    yield f"{name}.weight", linear.weight
    if linear.bias is not None:
        yield f"{name}.bias", linear.bias


def _layer(layer: Layer, host: str) -> Iterator[tuple[str, Array]]:
    attention = layer.attention
    yield from _norm("attn_norm", layer.attention_norm)
    if host in FUSED:
        yield from _linear("attn_qkv", _joined(attention.q, attention.k, attention.v))
    else:
        turn = host == "llama"
        yield from _linear("attn_q", _paired(attention.q, attention.heads) if turn else attention.q)
        yield from _linear("attn_k", _paired(attention.k, attention.groups) if turn else attention.k)
        yield from _linear("attn_v", attention.v)
    yield from _linear("attn_output", attention.o)
    yield from _head_norms(attention)
    yield from _norm("ffn_norm", layer.mlp_norm)
    mlp = layer.mlp
    if isinstance(mlp, Plain):
        yield from _linear("ffn_up", mlp.up)
        yield from _linear("ffn_down", mlp.down)
    elif isinstance(mlp, Gated):
        if host == "phi3":
            yield from _linear("ffn_up", _joined(mlp.gate, mlp.up))
        else:
            yield from _linear("ffn_gate", mlp.gate)
            yield from _linear("ffn_up", mlp.up)
        yield from _linear("ffn_down", mlp.down)
    else:
        yield from _experts(mlp)


def _head_norms(attention: Attention) -> Iterator[tuple[str, Array]]:
    for part, norm in (("q", attention.q_norm), ("k", attention.k_norm)):
        if norm is not None:
            yield from _norm(f"attn_{part}_norm", norm)


def _experts(mlp: Experts) -> Iterator[tuple[str, Array]]:
    yield "ffn_gate_inp.weight", mlp.router.weight
    for part in ("gate", "up", "down"):
        yield f"ffn_{part}_exps.weight", np.stack([getattr(expert, part).weight for expert in mlp.experts])


def _joined(*parts: Linear) -> Linear:
    biases = [part.bias for part in parts if part.bias is not None]
    return Linear(np.concatenate([part.weight for part in parts]), np.concatenate(biases) if biases else None)


def _paired(linear: Linear, heads: int) -> Linear:
    """Rows i and i + d/2 of every head become neighbours."""

    def turn(values: Array) -> Array:
        return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)

    return Linear(turn(linear.weight), None if linear.bias is None else turn(linear.bias))
