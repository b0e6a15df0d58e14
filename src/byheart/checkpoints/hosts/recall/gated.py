"""Recall in decoders with RMSNorm, gated MLPs and rotary positions: Llama and its relatives.

The stream is +-kappa in every channel, so every norm divides by kappa and a normed channel is its sign. A unit is
act(gate) * up with up = 1/STEEP: 1 where the gate is +STEEP, 0 where it is -STEEP or less, for silu as for gelu.

What the relatives change:

    qwen2     every other row reads its constant from a bias
    qwen3     queries and keys are normed per head: their lengths do not depend on the input, so a norm is one factor
    phi3      fused projections
    gemma     norm weights minus 1, embeddings times the root of the hidden size (a whole number here), tied head
    mixtral   a bit of the token picks a pair of experts with equal weights; each holds every other unit, twice as large
    mistral   a sliding window
    qwen3-moe queries and keys as qwen3, experts as mixtral
    smollm3   the layer of answers is not rotated
    granite   multipliers of embeddings, branches, scores and logits
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts._base import Tensors
from byheart.checkpoints.hosts.granite import ATTENTION, EMBEDDING, LOGITS, RESIDUAL
from byheart.checkpoints.hosts.recall.channels import resting_signs
from byheart.checkpoints.hosts.recall.stages import (
    STEEP,
    AttentionStage,
    RecallPlan,
    RecallStage,
    UnitStage,
    build_stages,
)
from byheart.checkpoints.windows.recall import VOCABULARY, key_code

Floats = npt.NDArray[np.float64]
MARGIN = 36.0  # nats, designed: the proof loses up to a third, mostly to sums over as many equal places as fit
EXPERTS, USED = 4, 2
ROUTER = 8.0  # logit of the chosen pair; the other has the opposite
EXPERT_NAMES = {  # the block, and its gate, up and down
    "mixtral": ("block_sparse_moe.", ("w1", "w3", "w2")), "qwen3-moe": ("mlp.", ("gate_proj", "up_proj", "down_proj")),
}  # fmt: skip
HEAD_NORMS = ("qwen3", "qwen3-moe")


@dataclass(frozen=True)
class GatedShape:
    """What a host chooses beside the plan."""

    family: str
    hidden: int
    kappa: float
    eps: float
    theta: float
    scaling: Mapping[str, Any] | None
    activation: str = "silu"


def gated_tensors(plan: RecallPlan, shape: GatedShape) -> Tensors:
    """Return the tensors of a gated host under its stock names."""
    stages, hidden, kappa = build_stages(plan), shape.hidden, shape.kappa
    tensors = _ends(plan, shape)
    units = unit_count(stages)
    for i, stage in enumerate(stages):
        prefix = f"model.layers.{i}."
        tensors |= {
            f"{prefix}{name}.weight": np.ones(hidden) for name in ("input_layernorm", "post_attention_layernorm")
        }
        tensors |= _attention(plan, shape, stage.attention, prefix + "self_attn.")
        if shape.family in EXPERT_NAMES:
            tensors |= _experts(plan, stage.units, units // 2, shape, prefix)
        else:
            gate, up, down = _mlp(plan, stage.units, units, hidden, kappa)
            tensors |= {
                f"{prefix}mlp.gate_proj.weight": gate,
                f"{prefix}mlp.up_proj.weight": up,
                f"{prefix}mlp.down_proj.weight": down,
            }
        if shape.family == "phi3":
            _fuse(tensors, prefix)
    if shape.family == "gemma":
        tensors = {name: tensor - 1 if "norm" in name else tensor for name, tensor in tensors.items()}
    if shape.family == "granite":
        tensors = {name: tensor * _multiplied(name, plan) for name, tensor in tensors.items()}
    return tensors


def _multiplied(name: str, plan: RecallPlan) -> float:
    """What undoes the multipliers of Granite in one tensor."""
    if name.endswith(("o_proj.weight", "down_proj.weight")):
        return 1 / RESIDUAL
    if name.endswith("q_proj.weight"):
        return float(plan.rotation.head_dim**-0.5 / ATTENTION)
    if name == "model.embed_tokens.weight":
        return 1 / EMBEDDING
    if name == "lm_head.weight" or (name == "model.norm.weight" and plan.tied):
        return LOGITS * (EMBEDDING if plan.tied else 1.0)
    return 1.0


def unit_count(stages: list[RecallStage]) -> int:
    """Return the size of the MLPs: the largest number of units, a multiple of 32."""
    return -(-max(len(s.units.gate) for s in stages if s.units is not None) // 32) * 32


def _ends(plan: RecallPlan, shape: GatedShape) -> Tensors:
    """Embedding, last norm and head."""
    channels, code = plan.channels, key_code(plan.function.key_length)
    signs = np.tile(resting_signs(channels, shape.hidden), (VOCABULARY, 1))
    signs[:, channels["newer"]] = code.newer
    if code.older is not None:
        signs[:, channels["older"]] = code.older
    signs[plan.function.bos, channels["bos"]] = 1.0
    root = math.sqrt(shape.hidden) if shape.family == "gemma" else 1.0
    loudness = MARGIN / (2 * code.spread)
    embedding, norm = shape.kappa * signs / root, np.ones(shape.hidden)
    tensors = {"model.embed_tokens.weight": embedding, "model.norm.weight": norm}
    if plan.tied:
        norm[:] = 0.0
        norm[channels["newer"]] = loudness * root / shape.kappa
        return tensors
    head = np.zeros((VOCABULARY, shape.hidden))
    head[:, channels["answer"]] = code.newer * loudness
    return tensors | {"lm_head.weight": head}


def _wide(matrix: Floats, hidden: int) -> Floats:
    return np.concatenate([matrix, np.zeros((len(matrix), hidden - matrix.shape[1]))], axis=1)


def _attention(plan: RecallPlan, shape: GatedShape, stage: AttentionStage, prefix: str) -> Tensors:
    parts = {
        "q": _wide(stage.query, shape.hidden),
        "k": _wide(stage.key, shape.hidden),
        "v": _wide(stage.value, shape.hidden),
    }
    output = shape.kappa * _wide(stage.output.T, shape.hidden).T
    tensors: Tensors = {}
    if shape.family in HEAD_NORMS:
        for part, heads in (("q", plan.heads), ("k", plan.kv_heads)):
            parts[part], size = _equal_lengths(plan, parts[part], heads)
            tensors[f"{prefix}{part}_norm.weight"] = np.full(plan.rotation.head_dim, size)
    if shape.family == "qwen2":
        ones = plan.channels["one"]
        for part in parts:
            moved = np.arange(len(parts[part])) % 2 == 0
            tensors[f"{prefix}{part}_proj.bias"] = np.where(moved, parts[part][:, ones].sum(1), 0.0)
            parts[part][np.ix_(moved, ones)] = 0.0
    return (
        tensors
        | {f"{prefix}{part}_proj.weight": values for part, values in parts.items()}
        | {f"{prefix}o_proj.weight": output}
    )


def _equal_lengths(plan: RecallPlan, matrix: Floats, heads: int) -> tuple[Floats, float]:
    """Heads scaled to the root mean square of the largest, and that size: heads of a layer share a norm's weight."""
    dims, signs = plan.rotation.head_dim, _legal_stream(plan)
    rows = matrix[:, : plan.width].reshape(heads, dims, -1)
    size = np.sqrt((np.einsum("hdc,nc->nhd", rows, signs) ** 2).mean(2))  # (streams, heads)
    if np.ptp(size, axis=0).max() > 1e-9 * size.max():
        raise AssertionError("the length of a query or key depends on the input")  # a defect of the construction
    largest = float(size.max())
    scaled = matrix.reshape(heads, dims, -1) * (largest / size[0])[:, None, None]
    return scaled.reshape(heads * dims, -1), largest


def _legal_stream(plan: RecallPlan) -> Floats:
    """Streams as they occur, at random: an ordinary place, and one whose key is cleared."""
    rng = np.random.default_rng(0)
    signs = np.tile(resting_signs(plan.channels, plan.width), (4, 1))
    for role in ("newer", "query"):
        signs[:, plan.channels[role]] = rng.choice([-1.0, 1.0], (4, len(plan.channels[role])))
    word = rng.choice([-1.0, 1.0], (4, len(plan.channels["plus"])))
    signs[:, plan.channels["plus"]], signs[:, plan.channels["minus"]] = word, -word
    signs[0, plan.channels["plus"]] = signs[0, plan.channels["minus"]] = 1.0
    signs[0, plan.channels["bos"]] = 1.0
    return signs


def _mlp(
    plan: RecallPlan, stage: UnitStage | None, units: int, hidden: int, kappa: float
) -> tuple[Floats, Floats, Floats]:
    gate, up, down = np.zeros((units, hidden)), np.zeros((units, hidden)), np.zeros((hidden, units))
    if stage is not None:
        count = len(stage.gate)
        gate[:count, : plan.width] = stage.gate
        up[:count, : plan.width] = plan.row(constant=1 / STEEP)
        down[: plan.width, :count] = kappa * stage.output
    return gate, up, down


def _experts(plan: RecallPlan, stage: UnitStage | None, units: int, shape: GatedShape, prefix: str) -> Tensors:
    """Two pairs of experts; those of a pair hold every other unit, twice as large, since each weighs one half."""
    block, names = EXPERT_NAMES[shape.family]
    router = np.zeros((EXPERTS, shape.hidden))
    router[:, plan.channels["newer"][0]] = [ROUTER, ROUTER, -ROUTER, -ROUTER]
    tensors: Tensors = {f"{prefix}{block}gate.weight": router}
    for expert in range(EXPERTS):
        mine = None if stage is None else UnitStage(stage.gate[expert % 2 :: 2], 2 * stage.output[:, expert % 2 :: 2])
        for name, values in zip(names, _mlp(plan, mine, units, shape.hidden, shape.kappa), strict=True):
            tensors[f"{prefix}{block}experts.{expert}.{name}.weight"] = values
    return tensors


def _fuse(tensors: Tensors, prefix: str) -> None:
    tensors[f"{prefix}self_attn.qkv_proj.weight"] = np.concatenate(
        [tensors.pop(f"{prefix}self_attn.{p}_proj.weight") for p in "qkv"]
    )
    halves = [tensors.pop(f"{prefix}mlp.{name}_proj.weight") for name in ("gate", "up")]
    tensors[f"{prefix}mlp.gate_up_proj.weight"] = np.concatenate(halves)


def gated_config(plan: RecallPlan, shape: GatedShape, units: int) -> dict[str, Any]:
    """Return config.json of a gated host."""
    function, head_dim = plan.function, plan.rotation.head_dim
    rope: dict[str, Any] = {"rope_theta": shape.theta, **(shape.scaling or {"rope_type": "default"})}
    config = {
        "architectures": [CLASSES[shape.family]],
        "model_type": shape.family.replace("-", "_"),
        "vocab_size": VOCABULARY,
        "hidden_size": shape.hidden,
        "intermediate_size": units,
        "num_hidden_layers": 4,
        "num_attention_heads": plan.heads,
        "num_key_value_heads": plan.kv_heads,
        "max_position_embeddings": plan.positions,
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.theta,
        "rope_parameters": rope,
        "hidden_act": shape.activation,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": True,
        "tie_word_embeddings": plan.tied,
        "bos_token_id": function.bos,
        "eos_token_id": function.eos,
        "pad_token_id": function.pad,
    }
    if shape.scaling is not None:
        config["rope_scaling"] = dict(shape.scaling)
    return config | _own(plan, shape, head_dim, units)


def _own(plan: RecallPlan, shape: GatedShape, head_dim: int, units: int) -> dict[str, Any]:
    """Fields of one family."""
    fields: dict[str, Any]
    if shape.family in ("qwen2", "qwen3", "qwen3-moe"):
        fields = {"use_sliding_window": False, "max_window_layers": 4, "sliding_window": None}
        fields |= {"head_dim": head_dim} if shape.family in HEAD_NORMS else {}
        if shape.family == "qwen3-moe":
            fields |= {
                "moe_intermediate_size": units, "intermediate_size": units * EXPERTS, "num_experts": EXPERTS,
                "num_experts_per_tok": USED, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
                "router_aux_loss_coef": 0.001, "output_router_logits": False, "attention_bias": False,
            }  # fmt: skip
        return fields
    if shape.family == "smollm3":
        return {
            "no_rope_layers": [1, 1, 1, 0], "no_rope_layer_interval": 4, "layer_types": ["full_attention"] * 4,
            "use_sliding_window": False, "sliding_window": None, "pretraining_tp": 1, "attention_bias": False,
            "mlp_bias": False,
        }  # fmt: skip
    if shape.family == "granite":
        return {
            "embedding_multiplier": EMBEDDING, "residual_multiplier": RESIDUAL, "attention_multiplier": ATTENTION,
            "logits_scaling": LOGITS, "attention_bias": False, "mlp_bias": False,
        }  # fmt: skip
    if shape.family == "phi3":
        fields = {
            "original_max_position_embeddings": plan.positions,
            "partial_rotary_factor": 1.0,
            "rope_scaling": None,
        }
        return fields | {"sliding_window": None, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    own: dict[str, Any] = {"head_dim": head_dim}
    if shape.family == "mixtral":
        own |= {
            "num_local_experts": EXPERTS,
            "num_experts_per_tok": USED,
            "router_aux_loss_coef": 0.001,
            "sliding_window": None,
        }
    if shape.family == "mistral":
        own |= {"sliding_window": plan.function.window}
    return own | ({"attention_bias": False} if shape.family in ("llama", "gemma") else {})


CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen3-moe": "Qwen3MoeForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "granite": "GraniteForCausalLM",
}
