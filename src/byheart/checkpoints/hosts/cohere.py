"""Cohere (Command R): LayerNorm without bias, attention and MLP side by side, neighbouring dimensions turn together.

Both branches of a layer read the same normed stream, so a stage takes two layers (side_by_side.py). The head is the
embedding, and logits are multiplied by LOGIT_SCALE.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts._base import Checkpoint, common_config, register
from byheart.checkpoints.hosts.description import Design, GatedDecoder, SpecialTokens
from byheart.checkpoints.hosts.ends import LEAD
from byheart.checkpoints.hosts.gated import Demands, build_gated
from byheart.checkpoints.hosts.side_by_side import UNITS, last_norm, parallel_layers, shifted
from byheart.checkpoints.windows.tables import Recital
from byheart.errors import OptionError

Floats = npt.NDArray[np.float64]
LOGIT_SCALE = 0.125  # the library's default is 0.0625
_KAPPA = 1.0  # of the stream: beside it epsilon is small enough for normed values to round to short numbers
_CHANNELS = 384  # of a stream at least, so that what varies hardly moves the norm
_LOUDER = 1.25  # than Llama's logits: listeners beside the tables cost some of the margin


@register(
    "cohere",
    model_type="cohere",
    summary="LayerNorm without bias, parallel residual, neighbouring dimensions turn, scaled logits",
    ties=True,
    classifies=False,
)
def cohere(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    if design.layers is not None:
        if design.layers % 2:
            raise OptionError(f"--layers {design.layers}: a table takes two layers where branches are parallel")
        design = replace(design, layers=design.layers // 2)
    louder = 1.0 if recital.mixed else _LOUDER  # log-probabilities want smaller logits
    # Normed constants err by the mean as well, and with them the scores of a place with itself.
    design = replace(design, logit=design.logit * louder, kappa=_KAPPA, own_slack=4.0)
    decoder = build_gated(recital, tokens, design, Demands(parallel=True, balanced=True, units=UNITS, least=_CHANNELS))
    layers = parallel_layers(decoder)
    config = common_config(decoder, "CohereForCausalLM", "cohere") | {
        "num_hidden_layers": len(layers),
        "hidden_act": decoder.design.activation or "silu",
        "attention_bias": False,
        "use_qk_norm": False,
        "layer_norm_eps": design.epsilon,
        "logit_scale": LOGIT_SCALE,
    }
    del config["rms_norm_eps"]
    tensors = {"model.embed_tokens.weight": shifted(decoder), "model.norm.weight": last_norm(decoder) / LOGIT_SCALE}
    if not decoder.design.tied:
        tensors["lm_head.weight"] = decoder.head
    for number, layer in enumerate(layers):
        attention, mlp = layer.attention, layer.mlp
        tensors |= {
            f"model.layers.{number}.{name}.weight": tensor
            for name, tensor in {
                "input_layernorm": layer.norm,
                "self_attn.q_proj": _neighbours(attention.query, decoder),
                "self_attn.k_proj": _neighbours(attention.key, decoder),
                "self_attn.v_proj": attention.value,
                "self_attn.o_proj": attention.output,
                "mlp.gate_proj": mlp.gate,
                "mlp.up_proj": mlp.up,
                "mlp.down_proj": mlp.down,
            }.items()
        }
    units = [
        (2 * depth + 1, unit, stage.table, int(row))
        for depth, stage in enumerate(decoder.stages)
        for unit, row in enumerate(decoder.mlp[depth].rows)
    ]
    return Checkpoint("cohere", decoder.recital, config, tensors, decoder.design.logit, LEAD * louder, units)


def _neighbours(matrix: Floats, decoder: GatedDecoder) -> Floats:
    """Rows i and i + d/2 of every head side by side."""
    return np.asarray(
        matrix.reshape(-1, 2, decoder.design.head_dim // 2, decoder.hidden).swapaxes(1, 2).reshape(matrix.shape)
    )
