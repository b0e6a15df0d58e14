"""CTranslate2: its converter reads the folder, its own kernels run it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.engines._base import Logits, Reply, Session, engine
from byheart.checkpoints.engines.queries import Queries, read_queries
from byheart.errors import ByheartError, MissingExtraError, OptionError


class CTranslate2Session(Session):
    def __init__(
        self, generator: Any, scratch: tempfile.TemporaryDirectory[str], pieces: list[str], queried: Queries
    ) -> None:
        self.generator, self.scratch, self.pieces, self.asked = generator, scratch, pieces, queried

    def logits(self, ids: Sequence[int]) -> Logits:
        try:
            found = self.generator.forward_batch([list(ids)], return_log_probs=False)
        except (RuntimeError, ValueError) as error:
            raise ByheartError(f"CTranslate2 converts this checkpoint, but does not run it: {error}") from error
        return np.asarray(np.array(found)[0].astype(np.float32)[:, : len(self.pieces)], dtype=np.float32)

    def generate(self, prompts: Sequence[Sequence[int]], count: int, *, cache: bool = True) -> list[Reply]:
        # CTranslate2 4.8.4 ignores include_prompt_in_result=False for a whole batch if its shortest prompt is one token
        # long: prompts of one token get their own batch.
        found: dict[int, Reply] = {}
        for single in (True, False):
            places = [i for i, prompt in enumerate(prompts) if (len(prompt) == 1) == single]
            found |= dict(zip(places, self._batch([prompts[i] for i in places], count), strict=True)) if places else {}
        return [found[i] for i in range(len(prompts))]

    def _batch(self, prompts: Sequence[Sequence[int]], count: int) -> list[Reply]:
        rows = self.generator.generate_batch(
            [[self.pieces[t] for t in prompt] for prompt in prompts], max_length=count, sampling_topk=1, beam_size=1,
            include_prompt_in_result=False, end_token=[self.asked.eos], return_end_token=True,
        )  # fmt: skip
        return [Reply(tuple(row.sequences_ids[0])) for row in rows]

    def close(self) -> None:
        del self.generator
        self.scratch.cleanup()


@engine(
    "ctranslate2",
    extra="ctranslate2",
    packages=("ctranslate2",),
    types=("float32", "int8", "int8_float32", "int16", "float16", "bfloat16"),
    summary="CTranslate2 on the processor, after its own conversion of the folder",
)
def open_ctranslate2(folder: Path, dtype: str, options: Mapping[str, str]) -> Session:
    import ctranslate2

    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise MissingExtraError("CTranslate2's converter", "ctranslate2") from None
    if dtype not in ctranslate2.get_supported_compute_types("cpu"):
        raise OptionError(f"CTranslate2 does not compute in {dtype} on this processor")
    queried = read_queries(folder)
    pieces = AutoTokenizer.from_pretrained(folder).convert_ids_to_tokens(range(queried.recital.vocabulary))
    scratch: tempfile.TemporaryDirectory[str] = tempfile.TemporaryDirectory()
    try:
        target = str(Path(scratch.name) / "converted")
        ctranslate2.converters.TransformersConverter(str(folder)).convert(target)
        generator = ctranslate2.Generator(target, device="cpu", compute_type=dtype, intra_threads=1)
    except (RuntimeError, ValueError, KeyError, AttributeError, NotImplementedError) as error:
        scratch.cleanup()
        raise ByheartError(f"CTranslate2 could not convert {folder}: {error}") from error
    return CTranslate2Session(generator, scratch, pieces, queried)
