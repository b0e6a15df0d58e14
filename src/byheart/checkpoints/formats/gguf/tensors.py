"""The tensors of a checkpoint under llama.cpp's names, and whether llama.cpp computes what it describes.

llama.cpp's `llama` architecture rotates neighbouring dimensions of a head, Hugging Face rotates halves: rows of q and k
change places. Most other architectures rotate halves in both. Gemma's norm weights already carry their 1, as llama.cpp
wants them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from byheart.checkpoints.formats.stock import StockDecoder
from byheart.checkpoints.proof.config import Shape
from byheart.checkpoints.proof.decoder import Latents, Layer, Linear, Mlp, Norm, StockAttention
from byheart.checkpoints.proof.storage import Array
from byheart.errors import ExportError

# Hugging Face's model_type -> llama.cpp's architecture
HOSTS = {
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "granite": "granite",
    "olmo2": "olmo2",
    "smollm3": "smollm3",
    "phi3": "phi3",
    "gemma": "gemma",
    "gemma3_text": "gemma3",
    "cohere": "command-r",
    "gpt2": "gpt2",
    "gpt_neox": "gptneox",
    "gpt_oss": "gpt-oss",
    "deepseek_v3": "deepseek2",
}
FUSED = ("phi3", "gpt2", "gptneox")  # q, k and v in one tensor
PAIRED = ("llama", "granite", "smollm3", "command-r")  # dimension 2i turns with dimension 2i + 1
TIED = ("gemma", "command-r")
UNROTATED = 4  # llama.cpp's smollm3 has every fourth layer without positions, whatever the file states


def host(shape: Shape) -> str:
    """The architecture in llama.cpp that computes this decoder; an ExportError gives the reason where there is none."""
    name = HOSTS.get(shape.family)
    if name is None:
        raise ExportError(f"llama.cpp has no {shape.family} architecture; it has {', '.join(HOSTS)}")
    if not shape.kinds and shape.window is not None and shape.window < shape.positions:
        raise ExportError(
            f"this {shape.family} model has a sliding window of {shape.window} tokens, which llama.cpp ignores for it: "
            "it would answer wrongly there. Export the architecture llama instead"
        )
    _check_kinds(shape)
    if shape.latent is not None and not shape.latent.interleaved:
        raise ExportError("llama.cpp's deepseek2 turns neighbouring dimensions; this model turns halves")
    if name in TIED and not shape.tied:
        raise ExportError(f"llama.cpp's {name} uses the embedding as its head; this model has its own head")
    return name


def _check_kinds(shape: Shape) -> None:
    """Whether llama.cpp has layers that differ where these differ."""
    windows, turned = [k.window is not None for k in shape.kinds], [k.rotary is not None for k in shape.kinds]
    if shape.family == "gpt_oss" and windows != [index % 2 == 0 for index in range(shape.layers)]:
        raise ExportError("llama.cpp's gpt-oss has a window in every other layer, beginning with the first")
    if shape.family == "gemma3_text":
        window_period(shape)
    if shape.family == "smollm3" and turned != [(index + 1) % UNROTATED != 0 for index in range(shape.layers)]:
        raise ExportError(
            f"llama.cpp's smollm3 has a fixed order of layers (the last one in {UNROTATED} is without positions); "
            "this model has another. Export the architecture llama instead"
        )


def window_period(shape: Shape) -> int:
    """Return p where every p-th layer sees everything and the others have a window, which is all that a file can state.

    Raises:
        ExportError: The layers have another order.
    """
    windows = [kind.window is not None for kind in shape.kinds]
    for period in range(1, shape.layers + 2):
        if windows == [index % period < period - 1 for index in range(shape.layers)]:
            return period
    raise ExportError(f"llama.cpp's {shape.family} has one full layer in every period; windows here: {windows}")


def tensors(decoder: StockDecoder) -> Iterator[tuple[str, Array]]:
    """Name and values of every tensor, in the order of the network."""
    name = host(decoder.shape)
    yield "token_embd.weight", decoder.embedding
    rotary = decoder.shape.rotary
    if rotary is not None and rotary.scaling is not None and rotary.scaling.kind == "llama3":
        yield "rope_freqs.weight", (replace(rotary, scaling=None).frequencies / rotary.frequencies)
    if rotary is not None and rotary.scaling is not None and rotary.scaling.kind == "longrope":
        yield "rope_factors_long.weight", np.array(rotary.scaling.beyond)
        yield "rope_factors_short.weight", np.array(rotary.scaling.divisors)
    if decoder.positions is not None:
        yield "position_embd.weight", decoder.positions
    for i, layer in enumerate(decoder.layers):
        for part, values in _layer(decoder.shape, layer, name):
            yield f"blk.{i}.{part}", values
    yield from _norm("output_norm", decoder.final_norm)
    if not decoder.shape.tied:
        yield "output.weight", decoder.head.weight


def _norm(name: str, norm: Norm) -> Iterator[tuple[str, Array]]:
    yield f"{name}.weight", norm.weight
    if norm.bias is not None:
        yield f"{name}.bias", norm.bias


def _linear(name: str, linear: Linear) -> Iterator[tuple[str, Array]]:
    yield f"{name}.weight", linear.weight
    if linear.bias is not None:
        yield f"{name}.bias", linear.bias


def _layer(shape: Shape, layer: Layer, host: str) -> Iterator[tuple[str, Array]]:
    attention = layer.attention
    if layer.attention_norm is not None:
        yield from _norm("attn_norm", layer.attention_norm)
    if attention.latents is not None:
        yield from _latent_attention(shape, attention, attention.latents)
    elif host in FUSED:
        yield from _linear("attn_qkv", _joined(attention.q, attention.k, attention.v))
    else:
        turn = host in PAIRED
        yield from _linear("attn_q", _paired(attention.q, shape.heads) if turn else attention.q)
        yield from _linear("attn_k", _paired(attention.k, shape.kv_heads) if turn else attention.k)
        yield from _linear("attn_v", attention.v)
    yield from _linear("attn_output", attention.o)
    yield from _head_norms(shape, attention)
    if attention.sinks is not None:
        yield "attn_sinks.weight", attention.sinks
    before_mlp = "post_attention_norm" if host == "gpt-oss" else "ffn_norm"
    for part, norm in (
        (before_mlp, layer.mlp_norm), ("post_attention_norm", layer.after_attention), ("post_ffw_norm", layer.after_mlp)
    ):  # fmt: skip
        if norm is not None and norm is not layer.attention_norm:  # both branches may read one norm
            yield from _norm(part, norm)
    yield from _mlp(layer.mlp, host)


def _latent_attention(shape: Shape, attention: StockAttention, latents: Latents) -> Iterator[tuple[str, Array]]:
    """Keys' and values' projections, separate and head by head, the keys' transposed: llama.cpp absorbs them."""
    turned = 0 if shape.rotary is None else shape.rotary.dims
    pairs = np.arange(turned).reshape(2, -1).T.reshape(-1)  # halves become neighbours
    order = np.r_[np.arange(turned, shape.head_dim), pairs]  # what turns comes last
    rows = (np.arange(shape.heads)[:, None] * shape.head_dim + order[None]).reshape(-1)
    if latents.q_down is None or latents.q_norm is None:
        yield "attn_q.weight", attention.q.weight[rows]
    else:
        yield "attn_q_a.weight", latents.q_down.weight
        yield "attn_q_a_norm.weight", latents.q_norm.weight
        yield "attn_q_b.weight", attention.q.weight[rows]
    yield "attn_kv_a_mqa.weight", np.concatenate([latents.down.weight, latents.k_turned.weight[pairs]])
    yield "attn_kv_a_norm.weight", latents.norm.weight
    rank = len(latents.down.weight)
    yield "attn_k_b.weight", attention.k.weight.reshape(shape.heads, -1, rank).swapaxes(1, 2)
    yield "attn_v_b.weight", attention.v.weight.reshape(shape.heads, -1, rank)


def _head_norms(shape: Shape, attention: StockAttention) -> Iterator[tuple[str, Array]]:
    """llama.cpp's gemma3 divides scores by the root of the head's size; the norm of queries carries what is missing."""
    missing = shape.scale * math.sqrt(shape.head_dim) if shape.family == "gemma3_text" else 1.0
    for part, norm, factor in (("q", attention.q_norm, missing), ("k", attention.k_norm, 1.0)):
        if norm is not None:
            yield from _norm(f"attn_{part}_norm", replace(norm, weight=norm.weight * np.float32(factor)))


def _mlp(mlp: Mlp, host: str) -> Iterator[tuple[str, Array]]:
    if mlp.router is not None:
        yield from _linear("ffn_gate_inp", mlp.router)
        if mlp.correction is not None:
            yield "exp_probs_b.bias", mlp.correction
        for part in ("gate", "up", "down"):
            those = [getattr(expert, part) for expert in mlp.experts]
            yield f"ffn_{part}_exps.weight", np.stack([linear.weight for linear in those])
            if those[0].bias is not None:
                yield f"ffn_{part}_exps.bias", np.stack([linear.bias for linear in those])
            if mlp.shared is not None:
                yield f"ffn_{part}_shexp.weight", getattr(mlp.shared, part).weight
        return
    (only,) = mlp.experts
    if only.up is None:  # nothing is multiplied: llama.cpp calls the one projection up
        yield from _linear("ffn_up", only.gate)
    elif host == "phi3":
        yield from _linear("ffn_up", _joined(only.gate, only.up))
    else:
        yield from _linear("ffn_gate", only.gate)
        yield from _linear("ffn_up", only.up)
    yield from _linear("ffn_down", only.down)


def _joined(*parts: Linear) -> Linear:
    biases = [part.bias for part in parts if part.bias is not None]
    name = ", ".join(part.name for part in parts)
    return Linear(name, np.concatenate([part.weight for part in parts]), np.concatenate(biases) if biases else None)


def _paired(linear: Linear, heads: int) -> Linear:
    """Rows i and i + d/2 of every head become neighbours."""

    def turn(values: Array) -> Array:
        return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)

    return Linear(linear.name, turn(linear.weight), None if linear.bias is None else turn(linear.bias))
