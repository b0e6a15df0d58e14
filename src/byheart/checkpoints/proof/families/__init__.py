"""Stock architectures that the proof reads: one file per family of names and keys.

To add one: write a file with `Family` values (the reader of its config.json and the names of its tensors), and list it
here. An operation that no family had so far needs a rule too: a function in `rounding.py` or a method of `Bounds`, its
terms in `slack.py`, and a check of each term in `tests/checkpoints/proof/test_slack.py`.
"""

from __future__ import annotations

from byheart.checkpoints.proof.decoder import Family
from byheart.checkpoints.proof.families import gemma3, gpt2, gpt_neox, granite, llama, olmo2, opt, qwen3_moe, smollm3

FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (
        *llama.FAMILIES, gpt2.FAMILY, opt.FAMILY, gpt_neox.FAMILY, qwen3_moe.FAMILY, granite.FAMILY, olmo2.FAMILY,
        smollm3.FAMILY, gemma3.FAMILY,
    )
}  # fmt: skip
