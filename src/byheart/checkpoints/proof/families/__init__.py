"""Stock architectures that the proof reads: one file per family of names and keys.

To add one: write a file with `Family` values (the reader of its config.json and the names of its tensors), and list it
here. An operation that no family had so far needs a rule too: a function in `rounding.py` or a method of `Bounds`, its
terms in `slack.py`, and a check of each term in `tests/checkpoints/proof/test_slack.py`.
"""

from __future__ import annotations

from byheart.checkpoints.proof.decoder import Family
from byheart.checkpoints.proof.families import (
    bamba,
    cohere,
    deepseek_v3,
    gemma2,
    gemma3,
    gpt2,
    gpt_neox,
    gpt_oss,
    granite,
    llama,
    olmo2,
    opt,
    phi3,
    qwen3_moe,
    qwen3_next,
    smollm3,
)

FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (
        *llama.FAMILIES,
        gpt2.FAMILY,
        opt.FAMILY,
        gpt_neox.FAMILY,
        phi3.FAMILY,
        qwen3_moe.FAMILY,
        granite.FAMILY,
        olmo2.FAMILY,
        smollm3.FAMILY,
        gemma2.FAMILY,
        gemma3.FAMILY,
        gpt_oss.FAMILY,
        deepseek_v3.FAMILY,
        cohere.FAMILY,
        qwen3_next.FAMILY,
        bamba.FAMILY,
    )
}
