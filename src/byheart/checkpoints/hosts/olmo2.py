"""OLMo-2: no norm before a branch but one after it, and norms over the queries and keys of all heads at once.

Branches read the stream itself, so the weights that other architectures have in a norm, divided by the stream's size,
are part of the matrices. The norms after a branch get ballast (ballast.py). The norms of queries and keys keep the
sizes of heads relative to each other; the matrices give directions at a small size, the norms' weights size and signs.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts._base import Checkpoint, common_config, register, window_units
from byheart.checkpoints.hosts.ballast import UNITS, post_norm, weighted_mlp, weighted_output
from byheart.checkpoints.hosts.description import Design, GatedDecoder, SpecialTokens
from byheart.checkpoints.hosts.ends import LEAD
from byheart.checkpoints.hosts.gated import Demands, build_gated
from byheart.checkpoints.windows.tables import Recital

Floats = npt.NDArray[np.float64]
_SMALL = 1 / 16  # root mean square of queries and keys before their norms


@register(
    "olmo2",
    model_type="olmo2",
    summary="norms after the branches, and over all queries and keys at once",
    scalable=True,
)
def olmo2(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    decoder = build_gated(recital, tokens, design, Demands(units=UNITS))
    config = common_config(decoder, "Olmo2ForCausalLM", "olmo2") | {
        "hidden_act": design.activation or "silu",
        "attention_bias": False,
    }
    tensors = {"model.embed_tokens.weight": decoder.embedding, "model.norm.weight": decoder.norm}
    if not decoder.design.tied:
        tensors["lm_head.weight"] = decoder.head
    for i in range(len(decoder.stages)):
        tensors |= {f"model.layers.{i}.{name}.weight": tensor for name, tensor in _layer(decoder, i).items()}
    return Checkpoint("olmo2", decoder.recital, config, tensors, design.logit, LEAD, window_units(decoder))


def _layer(decoder: GatedDecoder, depth: int) -> dict[str, Floats]:
    attention, mlp = decoder.attention[depth], weighted_mlp(decoder, decoder.mlp[depth])
    kappa = decoder.design.kappa
    before, between, after = attention.norm / kappa, mlp.norm / kappa, post_norm(decoder)
    tensors = {
        "self_attn.v_proj": attention.value * before,
        "self_attn.o_proj": weighted_output(decoder, attention),
        "post_attention_layernorm": after,
        "mlp.gate_proj": mlp.gate * between,
        "mlp.up_proj": mlp.up * between,
        "mlp.down_proj": mlp.down,
        "post_feedforward_layernorm": after,
    }
    for name, matrix in (("q", attention.query * before), ("k", attention.key * before)):
        size = _root_mean_square(decoder, matrix)
        signs = np.where(np.arange(len(matrix)) % 3 == 0, -1.0, 1.0)
        tensors[f"self_attn.{name}_proj"] = matrix * signs[:, None] * (_SMALL / size)
        tensors[f"self_attn.{name}_norm"] = size * signs
    return tensors


def _root_mean_square(decoder: GatedDecoder, matrix: Floats) -> float:
    """Of the queries or keys of all heads: constants, and a part whose sign depends on the token."""
    layout = decoder.layout
    stream = decoder.design.kappa * layout.signs
    found = matrix[:, layout.constant[0]] @ stream[layout.constant[0]]
    found = np.abs(found) + np.abs(matrix[:, layout.first] @ stream[layout.first])
    return math.sqrt((found**2).mean())
