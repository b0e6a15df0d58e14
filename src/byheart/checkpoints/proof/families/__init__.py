"""Stock architectures that the proof reads: one file per family of names and keys.

To add one: write a file with `Family` values (the reader of its config.json and the names of its tensors), and list it
here. An operation that no family had so far needs a rule too: a function in `rounding.py` or a method of `Bounds`, its
terms in `slack.py`, and a check of each term in `tests/checkpoints/proof/test_slack.py`.
"""

from __future__ import annotations

from byheart.checkpoints.proof.decoder import Family
from byheart.checkpoints.proof.families import gpt2, gpt_neox, llama, opt

FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (*llama.FAMILIES, gpt2.FAMILY, opt.FAMILY, gpt_neox.FAMILY)
}  # fmt: skip
