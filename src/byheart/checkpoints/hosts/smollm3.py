"""SmolLM3: layers without positions between the others (unrotated.py).

Such a layer cannot look by distance. It holds half of the windows of the table before, and its own activation probe,
from which the next layer's thresholds are read.
"""

from __future__ import annotations

from byheart.checkpoints.hosts._base import Checkpoint, common_config, llama_tensors, register, window_units
from byheart.checkpoints.hosts.description import Design, SpecialTokens
from byheart.checkpoints.hosts.ends import LEAD
from byheart.checkpoints.hosts.gated import Demands, build_gated
from byheart.checkpoints.windows.tables import Recital


@register("smollm3", model_type="smollm3", summary="Llama with layers without positions", scalable=True)
def smollm3(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    decoder = build_gated(recital, tokens, design, Demands(unrotated=True, sensing=True))
    config = common_config(decoder, "SmolLM3ForCausalLM", "smollm3") | {
        "hidden_act": design.activation or "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "no_rope_layers": [int(bool(stage.places)) for stage in decoder.stages],
        "no_rope_layer_interval": 2,
        "layer_types": ["full_attention"] * len(decoder.stages),
        "use_sliding_window": False,
        "sliding_window": None,
        "pretraining_tp": 1,
    }
    tensors = llama_tensors(decoder)
    return Checkpoint(
        "smollm3", decoder.recital, config, tensors, design.logit, LEAD, window_units(decoder), decoder.sensors
    )
