"""Tampered folders of all ten architectures against stock Transformers: a proved margin is never above a measured one.

Edits are drawn with a fixed seed: blocks of tensors scaled, set to zero or to huge values, rows permuted. `proved` in a
type must hold in eager and sdpa attention, with and without left padding.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.proof import TYPES, tokenize, verify_folder
from tests.checkpoints.proof.folders import ARCHITECTURES, TEXT, copy, edit_tensor, header_of, write

# A local run may draw more: 30 edits per architecture are 300 folders.
EDITS = int(os.environ.get("BYHEART_TAMPERED", "8"))
FACTORS = (0.0, -1.0, 2.0**-8, 0.5, 0.75, 1.0078125, 2.0, 256.0, 2.0**20, 2.0**62, 2.0**-62)


def tampered(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One edit: a block of rows or columns scaled, overwritten by one number, or permuted."""
    size = len(values)
    start = int(rng.integers(size))
    block = slice(start, start + int(rng.choice([1, 1, 16, 64, size])))
    kind = rng.integers(4)
    if kind == 0:
        values[block] = values[block][::-1].copy()
    elif kind == 1 and values.ndim == 2:
        values[:, int(rng.integers(values.shape[1]))] *= np.float32(rng.choice(FACTORS))
    elif kind == 2:
        values[block] = np.float32(rng.choice([0.0, 1.0, 6e4, 3e38, 1e-38]))
    else:
        values[block] *= np.float32(rng.choice(FACTORS))
    return np.clip(values, -3e38, 3e38)


def measured(folder: Path, ids: list[int], type_: str, attention: str, padding: int) -> float:
    """The least margin over all prefixes; NaN counts as minus infinity."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=getattr(torch, type_), attn_implementation=attention
    ).eval()
    prompt = torch.tensor([[model.config.pad_token_id] * padding + ids[:-1]])
    mask = torch.ones_like(prompt)
    mask[:, :padding] = 0
    places = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = model(prompt, attention_mask=mask, position_ids=places).logits[0, padding:].double().numpy()
    rows = np.arange(len(logits))
    right = logits[rows, ids[1:]].copy()
    logits[rows, ids[1:]] = -np.inf
    gap = right - logits.max(1)
    return float(np.where(np.isfinite(gap), gap, -np.inf).min())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_tampered_folder_is_proved_beyond_what_it_does(architecture: str, tmp_path: Path) -> None:
    rng = np.random.default_rng([7, ARCHITECTURES.index(architecture)])
    honest = write(tmp_path / "honest", architecture)
    names = sorted(header_of(honest)[0])
    (ids,) = tokenize(honest, [TEXT])
    for number in range(EDITS):
        name = str(rng.choice(names))
        folder = edit_tensor(copy(honest, tmp_path / str(number)), name, lambda w: tampered(w, rng))
        for found in verify_folder(folder, [TEXT], TYPES, reach=160).types:
            if found.verdict is not Verdict.PROVED or found.margin is None:
                continue
            for attention in ("eager", "sdpa"):
                for padding in (0, 5):
                    lead = measured(folder, ids, found.type, attention, padding)
                    assert lead >= found.margin, (number, name, found.type, attention, padding, lead, found.margin)
