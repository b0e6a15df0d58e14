"""Granite: Llama with multipliers of embeddings, of what branches add, of scores, and a divisor of logits."""

from __future__ import annotations

from dataclasses import replace

from byheart.checkpoints.proof.config import ConfigReader, Shape
from byheart.checkpoints.proof.decoder import Family
from byheart.checkpoints.proof.families import llama


def _shape(r: ConfigReader) -> Shape:
    embedding, residual, scores, logits = (
        r.number(key, 1.0)
        for key in ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling")
    )
    shape = llama.read_shape(r, "granite")
    return replace(
        shape, embedding_scale=embedding, residual_scale=residual, score_scale=scores, logit_scale=logits
    )  # fmt: skip


FAMILY = Family("granite", "GraniteForCausalLM", _shape, llama.layer)
