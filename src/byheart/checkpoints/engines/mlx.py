"""MLX: mlx-lm reads the folder as it is and decodes with its own cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.engines._base import Logits, Reply, Session, engine, one_by_one
from byheart.checkpoints.engines.queries import read_queries
from byheart.errors import OptionError


class MlxSession(Session):
    batches = False

    def __init__(self, model: Any, end: int) -> None:
        self.model, self.end = model, end

    def logits(self, ids: Sequence[int]) -> Logits:
        return self._logits(ids, None)

    def _logits(self, ids: Sequence[int], cache: Any) -> Logits:
        import mlx.core as mx

        out = self.model(mx.array([list(ids)])) if cache is None else self.model(mx.array([list(ids)]), cache=cache)
        return np.array(out[0].astype(mx.float32))

    def continued(self, pieces: Sequence[Sequence[int]]) -> Logits | None:
        from mlx_lm.models.cache import make_prompt_cache

        kept = make_prompt_cache(self.model)
        return np.concatenate([self._logits(ids, kept) for ids in pieces])

    def generate(self, prompts: Sequence[Sequence[int]], count: int, *, cache: bool = True) -> list[Reply]:
        from mlx_lm.models.cache import make_prompt_cache

        found = []
        for prompt in prompts:
            kept = make_prompt_cache(self.model)
            first = self._logits(prompt, kept)[-1]
            found.append(one_by_one(lambda token, kept=kept: self._logits([token], kept)[-1], first, count, self.end))  # type: ignore[misc]
        return found


@engine(
    "mlx",
    extra="mlx",
    packages=("mlx-lm",),
    types=("float32", "bfloat16", "float16"),
    summary="Apple's MLX through mlx-lm (its processor backend runs on Linux too)",
)
def open_mlx(folder: Path, dtype: str, options: Mapping[str, str]) -> Session:
    import mlx.core as mx
    from mlx_lm.utils import load_model

    mx.set_default_device(mx.cpu)
    try:
        model, _ = load_model(folder)
    except ValueError as error:
        raise OptionError(f"mlx-lm does not read {folder}: {error}") from error
    model.set_dtype(getattr(mx, dtype))
    return MlxSession(model, read_queries(folder).eos)
