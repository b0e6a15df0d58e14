"""Recall in decoders with LayerNorm, biases and an MLP without a gate: GPT-2, OPT, GPT-NeoX.

Every channel that depends on a token has a twin of the opposite sign, so the mean that LayerNorm subtracts is zero, and
a normed channel is its sign. A unit is act(gate): LOUD where the gate is +LOUD, 0 where it is -LOUD or less.

Learned positions are words of a code, in their own channels: that of the place itself, and those of the places one
and two back. A head that looks back matches one of the latter with the first, so nothing needs to be rotated. GPT-NeoX
rotates a part of each head and looks back by that; content lies in the other dimensions. Its attention and MLP see the
same stream, so units run one layer after the attention that they read, in six layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts._base import Tensors
from byheart.checkpoints.hosts.recall.channels import PLACES, resting_signs
from byheart.checkpoints.hosts.recall.stages import (
    KEY_SIZE,
    STEEP,
    AttentionStage,
    RecallPlan,
    RecallStage,
    UnitStage,
    build_stages,
)
from byheart.checkpoints.windows.recall import VOCABULARY, key_code, position_code

Floats = npt.NDArray[np.float64]
Part = tuple[Floats, Floats]  # weight and bias
LOOK = 56.0  # nats of a match of places; every other place has at most half of it
MARGIN = 54.0  # nats, designed: units without a gate pass on what the channels err that they read
LOUD = 4.0  # so that float16 holds the cube of every gate (-5 LOUD at least), as GPT-2 computes gelu


@dataclass(frozen=True)
class PlainShape:
    """What a host chooses beside the plan."""

    family: str
    hidden: int
    kappa: float
    eps: float
    theta: float | None  # None: learned positions
    share: float  # of the dimensions, rotated

    @property
    def parallel(self) -> bool:
        """Whether attention and MLP see the same stream."""
        return self.family == "gpt-neox"


def look_by_place(plan: RecallPlan, stage: AttentionStage, offsets: Sequence[int]) -> None:
    """Write keys that hold the word of their place, and queries that hold that of the place offsets[h] back."""
    dims, codes = plan.rotation.head_dim, plan.channels
    here, scale = codes[PLACES[0]], math.sqrt(dims) / KEY_SIZE
    for group in range(plan.kv_heads):
        stage.key[group * dims + np.arange(len(here)), here] = KEY_SIZE
    for head, offset in enumerate(offsets):
        stage.query[head * dims + np.arange(len(here)), codes[PLACES[offset]]] = LOOK / len(here) * scale


def twins(plan: RecallPlan) -> tuple[list[int], list[int]]:
    """Channels, and those of the opposite sign, which follow them."""
    placed = {int(c) for role in PLACES for c in plan.channels.roles.get(role, ())}
    own = [channel for channel in range(plan.width) if channel not in placed]
    return own, list(range(plan.width, plan.width + len(own)))


def _twins_of(plan: RecallPlan, role: str) -> list[int]:
    found = dict(zip(*twins(plan), strict=True))
    return [found[int(channel)] for channel in plan.channels[role]]


def plain_tensors(plan: RecallPlan, shape: PlainShape) -> Tensors:
    """Return the tensors of a plain host under its stock names."""
    look = (lambda stage, offsets: look_by_place(plan, stage, offsets)) if shape.theta is None else None
    stages = build_stages(plan, look)
    units = max(len(s.units.gate) for s in stages if s.units is not None)
    tensors = _ends(plan, shape)
    for number, stage in enumerate(_layers(plan, stages, shape.parallel)):
        parts = _attention(plan, shape, stage.attention) | _mlp(plan, shape, stage.units, units)
        norm: Part = (np.ones(shape.hidden), np.zeros(shape.hidden))
        parts |= {"before attention": norm, "before mlp": norm}
        for name, (weight, bias) in _NAMED[shape.family](plan, number, parts).items():
            tensors |= {f"{name}.weight": weight, f"{name}.bias": bias}
    return tensors


def _layers(plan: RecallPlan, stages: list[RecallStage], parallel: bool) -> list[RecallStage]:
    """Stages as they are; side by side, units come one layer after the attention that they read."""
    if not parallel:
        return stages
    found = []
    for stage in stages:
        found.append(RecallStage(stage.attention))
        if stage.units is not None:
            found.append(RecallStage(plan.empty(), stage.units))
    return found


def _rows(plan: RecallPlan, matrix: Floats, hidden: int) -> Part:
    """Rows over signs as a matrix over the stream and a bias, which replaces the constant."""
    wide, ones = np.zeros((len(matrix), hidden)), plan.channels["one"]
    own, two = twins(plan)
    wide[:, : plan.width] = matrix
    wide[:, ones] = 0.0
    # Halves of a channel and of its twin: whatever mean was subtracted, it cancels.
    wide[:, own] /= 2
    wide[:, two] = -wide[:, own]
    return wide, matrix[:, ones].sum(1)


def _adds(plan: RecallPlan, output: Floats, shape: PlainShape) -> Part:
    """What is added to channels, and its opposite to their twins."""
    own, two = twins(plan)
    wide = np.zeros((shape.hidden, output.shape[1]))
    wide[: plan.width] = shape.kappa * output
    wide[two] = -wide[own]
    return wide, np.zeros(shape.hidden)


def _attention(plan: RecallPlan, shape: PlainShape, stage: AttentionStage) -> dict[str, Part]:
    rows = {"q": stage.query, "k": stage.key, "v": stage.value}
    return {n: _rows(plan, m, shape.hidden) for n, m in rows.items()} | {"o": _adds(plan, stage.output, shape)}


def _mlp(plan: RecallPlan, shape: PlainShape, stage: UnitStage | None, units: int) -> dict[str, Part]:
    gate, output = np.zeros((units, plan.width)), np.zeros((plan.width, units))
    if stage is not None:
        gate[: len(stage.gate)], output[:, : len(stage.gate)] = stage.gate * (LOUD / STEEP), stage.output / LOUD
    return {"first": _rows(plan, gate, shape.hidden), "second": _adds(plan, output, shape)}


def _ends(plan: RecallPlan, shape: PlainShape) -> Tensors:
    """Embedding, table of positions, last norm and head."""
    channels, code, names = plan.channels, key_code(plan.function.key_length), ENDS[shape.family]
    own, two = twins(plan)
    signs = np.tile(resting_signs(channels, shape.hidden), (VOCABULARY, 1))
    signs[:, channels["newer"]] = code.newer
    if code.older is not None:
        signs[:, channels["older"]] = code.older
    signs[plan.function.bos, channels["bos"]] = 1.0
    signs[:, two] = -signs[:, own]
    filled = np.arange(plan.width + len(own), shape.hidden)
    signs[:, filled] = np.where(np.arange(len(filled)) % 2, -1.0, 1.0)
    tensors: Tensors = {}
    if shape.theta is None:
        words, places = position_code(plan.positions), np.arange(plan.positions)
        table = np.zeros((plan.positions, shape.hidden))
        for back, role in enumerate(PLACES):
            signs[:, channels[role]] = 0.0
            table[:, channels[role]] = shape.kappa * words[np.maximum(places - back, 0)]
        unused = np.full((2 if shape.family == "opt" else 0, shape.hidden), 2.0**-14)
        tensors[names.positions] = np.concatenate([unused, table])
    loudness, norm = MARGIN / (2 * code.spread), np.ones(shape.hidden)
    head = np.zeros((VOCABULARY, shape.hidden))
    head[:, channels["answer"]] = code.newer * loudness / 2
    head[:, _twins_of(plan, "answer")] = -code.newer * loudness / 2
    if plan.tied:
        norm[:] = 0.0
        for half in (channels["newer"], _twins_of(plan, "newer")):
            norm[half] = loudness / shape.kappa / 2
    else:
        tensors[names.head] = head
    tensors[names.embedding] = shape.kappa * signs
    tensors |= {f"{names.norm}.weight": norm, f"{names.norm}.bias": np.zeros(shape.hidden)}
    return tensors


@dataclass(frozen=True)
class EndNames:
    """Stock names of the tensors outside of layers."""

    embedding: str
    positions: str
    norm: str
    head: str


ENDS = {
    "gpt2": EndNames("transformer.wte.weight", "transformer.wpe.weight", "transformer.ln_f", "lm_head.weight"),
    "opt": EndNames(
        "model.decoder.embed_tokens.weight", "model.decoder.embed_positions.weight",
        "model.decoder.final_layer_norm", "lm_head.weight",
    ),
    "gpt-neox": EndNames("gpt_neox.embed_in.weight", "", "gpt_neox.final_layer_norm", "embed_out.weight"),
}  # fmt: skip


def _joined(parts: Sequence[Part]) -> Part:
    return np.concatenate([w for w, _ in parts]), np.concatenate([b for _, b in parts])


def _gpt2(plan: RecallPlan, number: int, parts: dict[str, Part]) -> dict[str, Part]:
    """Matrices are stored transposed, and queries, keys and values in one."""
    named = {
        "attn.c_attn": _joined([parts[n] for n in "qkv"]), "attn.c_proj": parts["o"],
        "mlp.c_fc": parts["first"], "mlp.c_proj": parts["second"],
    }  # fmt: skip
    found = {name: (weight.T, bias) for name, (weight, bias) in named.items()}
    found |= {"ln_1": parts["before attention"], "ln_2": parts["before mlp"]}
    return {f"transformer.h.{number}.{name}": part for name, part in found.items()}


def _opt(plan: RecallPlan, number: int, parts: dict[str, Part]) -> dict[str, Part]:
    names = {
        "self_attn_layer_norm": "before attention", "self_attn.q_proj": "q", "self_attn.k_proj": "k",
        "self_attn.v_proj": "v", "self_attn.out_proj": "o", "final_layer_norm": "before mlp", "fc1": "first",
        "fc2": "second",
    }  # fmt: skip
    return {f"model.decoder.layers.{number}.{name}": parts[part] for name, part in names.items()}


def _gpt_neox(plan: RecallPlan, number: int, parts: dict[str, Part]) -> dict[str, Part]:
    """Queries, keys and values of one head follow each other."""
    dims = plan.rotation.head_dim
    heads = [slice(h * dims, (h + 1) * dims) for h in range(plan.heads)]
    fused = _joined([(parts[n][0][rows], parts[n][1][rows]) for rows in heads for n in "qkv"])
    names = {
        "input_layernorm": parts["before attention"], "attention.query_key_value": fused, "attention.dense": parts["o"],
        "post_attention_layernorm": parts["before mlp"], "mlp.dense_h_to_4h": parts["first"],
        "mlp.dense_4h_to_h": parts["second"],
    }  # fmt: skip
    return {f"gpt_neox.layers.{number}.{name}": part for name, part in names.items()}


_NAMED = {"gpt2": _gpt2, "opt": _opt, "gpt-neox": _gpt_neox}


def plain_config(plan: RecallPlan, shape: PlainShape, tensors: Tensors) -> dict[str, Any]:
    """Return config.json of a plain host."""
    function, n = plan.function, plan.positions
    common = {
        "vocab_size": VOCABULARY, "initializer_range": 0.02, "use_cache": True, "tie_word_embeddings": plan.tied,
        "bos_token_id": function.bos, "eos_token_id": function.eos, "pad_token_id": function.pad,
    }  # fmt: skip
    if shape.family == "gpt2":
        units = len(tensors["transformer.h.0.mlp.c_proj.weight"])
        return common | {
            "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_positions": n, "n_ctx": n,
            "n_embd": shape.hidden, "n_layer": 4, "n_head": plan.heads, "n_inner": units,
            "activation_function": "gelu_new", "layer_norm_epsilon": shape.eps, "attn_pdrop": 0.0, "embd_pdrop": 0.0,
            "resid_pdrop": 0.0,
        }  # fmt: skip
    common |= {
        "hidden_size": shape.hidden, "num_attention_heads": plan.heads, "max_position_embeddings": n,
        "attention_dropout": 0.0,
    }  # fmt: skip
    if shape.family == "opt":
        del common["initializer_range"]
        return common | {
            "architectures": ["OPTForCausalLM"], "model_type": "opt", "word_embed_proj_dim": shape.hidden,
            "num_hidden_layers": 4, "ffn_dim": len(tensors["model.decoder.layers.0.fc1.weight"]),
            "activation_function": "relu", "do_layer_norm_before": True, "enable_bias": True,
            "layer_norm_elementwise_affine": True, "dropout": 0.0, "layerdrop": 0.0, "init_std": 0.02,
        }  # fmt: skip
    rope = {"rope_type": "default", "rope_theta": shape.theta, "partial_rotary_factor": shape.share}
    return common | {
        "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "num_hidden_layers": 6,
        "intermediate_size": len(tensors["gpt_neox.layers.0.mlp.dense_h_to_4h.weight"]), "hidden_act": "gelu",
        "rotary_pct": shape.share, "rotary_emb_base": shape.theta, "rope_theta": shape.theta, "rope_parameters": rope,
        "layer_norm_eps": shape.eps, "use_parallel_residual": True, "attention_bias": True, "hidden_dropout": 0.0,
    }  # fmt: skip
