"""Cohere (Command R): LayerNorm without bias, both branches after one norm, rotation of neighbours, scaled logits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from byheart.checkpoints.proof.config import ConfigReader, Shape
from byheart.checkpoints.proof.decoder import Family, Layer, Linear, TensorReader
from byheart.checkpoints.proof.families import llama


def _shape(r: ConfigReader) -> Shape:
    scale = r.number("logit_scale", 0.0625)
    r.must("use_qk_norm", False)
    shape = llama.read_shape(r, "cohere", theta=5e5, eps=1e-5, tied=True, eps_key="layer_norm_eps")
    return replace(shape, logit_scale=1 / scale, parallel=True)


def _layer(r: TensorReader, p: str) -> Layer:
    s = r.checkpoint.shape
    norm, attention = r.norm(f"{p}.input_layernorm", s.hidden, True), llama.attention(r, p)
    attention = replace(attention, q=halves(attention.q, s.head_dim), k=halves(attention.k, s.head_dim))
    return Layer(norm, attention, norm, llama.glu(r, f"{p}.mlp"))


def halves(layer: Linear, head_dim: int) -> Linear:
    """Queries or keys whose dimensions 2i and 2i + 1 turn together, as ones whose dimensions i and i + d/2 do: scores
    are sums over dimensions in any order."""
    order = np.arange(len(layer.weight)).reshape(-1, head_dim // 2, 2).swapaxes(1, 2).reshape(-1)
    return Linear(layer.name, layer.weight[order], None if layer.bias is None else layer.bias[order])


FAMILY = Family("cohere", "CohereForCausalLM", _shape, _layer, centred=True, biased=False)
