"""Hugging Face Transformers: the folder as it is, eager or fused attention, with and without a cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.engines._base import Logits, Said, Session, engine, margins_of


class TransformersSession(Session):
    can_decode_without_cache = True

    def __init__(self, folder: Path, model: Any) -> None:
        self.folder, self.model = folder, model
        config = model.config
        self.pad, self.end = config.pad_token_id, config.eos_token_id

    def logits(self, ids: Sequence[int]) -> Logits:
        import torch

        with torch.inference_mode():
            found: Logits = self.model(torch.tensor([list(ids)])).logits[0].float().numpy()
        return found

    def continued(self, pieces: Sequence[Sequence[int]]) -> Logits | None:
        import torch
        from transformers import DynamicCache

        rows, cache = [], DynamicCache(config=self.model.config)
        with torch.inference_mode():
            for ids in pieces:
                found = self.model(torch.tensor([list(ids)]), past_key_values=cache, use_cache=True)
                rows.append(found.logits[0].float().numpy())
        return np.concatenate(rows)

    def generate(self, prompts: Sequence[Sequence[int]], count: int, *, cache: bool = True) -> list[Said]:
        import torch

        longest = max(map(len, prompts))
        ids = torch.tensor([[self.pad] * (longest - len(p)) + list(p) for p in prompts])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
        with torch.inference_mode():
            out = self.model.generate(
                ids, attention_mask=mask, do_sample=False, max_new_tokens=count, use_cache=cache,
                return_dict_in_generate=True, output_logits=True,
            )  # fmt: skip
        rows = out.sequences[:, longest:].tolist()
        steps = torch.stack(out.logits, 1).float().numpy()  # (batch, count, vocabulary)
        return [self._said(row, steps[i]) for i, row in enumerate(rows)]

    def _said(self, row: list[int], logits: Logits) -> Said:
        """Without the padding behind the end token."""
        kept = row[: row.index(self.end) + 1] if self.end in row else row
        return Said(tuple(kept), tuple(margins_of(np.asarray(logits[: len(kept)]), kept).tolist()))

    def tokenize(self, text: str) -> list[int] | None:
        from transformers import AutoTokenizer

        return list(AutoTokenizer.from_pretrained(self.folder)(text)["input_ids"])


@engine(
    "transformers",
    extra="huggingface",
    packages=("transformers",),
    types=("float32", "bfloat16", "float16"),
    options={"attention": ("sdpa", "eager")},
    summary="Hugging Face Transformers on the processor: AutoModelForCausalLM reads the folder",
)
def open_transformers(folder: Path, dtype: str, options: Mapping[str, str]) -> Session:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype), attn_implementation=options["attention"], local_files_only=True
        )
    finally:
        if shown:
            logging.enable_progress_bar()
    return TransformersSession(folder, model.eval())
