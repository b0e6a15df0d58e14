"""Qwen3-MoE: Qwen3's attention; softmax over all experts, then the best ones divided by their sum."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from byheart.checkpoints.proof.config import ConfigReader, Shape, Undecided
from byheart.checkpoints.proof.decoder import Family, Mlp, TensorReader
from byheart.checkpoints.proof.families import llama


def _shape(r: ConfigReader) -> Shape:
    experts, used, units = (
        r.integer(key, default)
        for key, default in (("num_experts", 128), ("num_experts_per_tok", 8), ("moe_intermediate_size", 768))
    )
    if not r.flag("norm_topk_prob", False):
        raise Undecided("config.json: norm_topk_prob is false; the proof needs weights that are divided by their sum")
    r.must("decoder_sparse_step", 1)
    r.must("mlp_only_layers", None, [])
    shape = llama.read_shape(r, "qwen3_moe", kv_heads=4)
    return replace(shape, units=units, experts=experts, experts_used=used, expert_units=units)


def _mlp(r: TensorReader, p: str) -> Mlp:
    return llama.experts(r, f"{p}.mlp", "gate_proj", "up_proj", "down_proj")


FAMILY = Family("qwen3_moe", "Qwen3MoeForCausalLM", _shape, partial(llama.layer, normed=True, mlp=_mlp))
