"""OLMo-2: norms after the branches and none before them; norms over the queries and keys of all heads at once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from byheart.checkpoints.proof.decoder import Family, Layer, TensorReader
from byheart.checkpoints.proof.families import llama


def _layer(r: TensorReader, p: str) -> Layer:
    s = r.checkpoint.shape
    attention = replace(
        llama.attention(r, p),
        q_norm=r.norm(f"{p}.self_attn.q_norm", s.heads * s.head_dim),
        k_norm=r.norm(f"{p}.self_attn.k_norm", s.kv_heads * s.head_dim),
        all_heads=True,
    )
    after = r.norm(f"{p}.post_attention_layernorm", s.hidden), r.norm(f"{p}.post_feedforward_layernorm", s.hidden)
    return Layer(None, attention, None, llama.glu(r, f"{p}.mlp"), *after)


FAMILY = Family("olmo2", "Olmo2ForCausalLM", partial(llama.read_shape, family="olmo2", eps=1e-5), _layer)
