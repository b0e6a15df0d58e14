"""Hugging Face Transformers: the folder as it is, eager or fused attention, with and without a cache."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.engines._base import Logits, Reply, Session, engine, margins_of
from byheart.checkpoints.formats.inputs import task_of
from byheart.errors import MissingLibraryError


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
        return self._pieces(pieces, place=False)

    def placed(self, pieces: Sequence[Sequence[int]]) -> Logits | None:
        return self._pieces(pieces, place=True)

    def _pieces(self, pieces: Sequence[Sequence[int]], *, place: bool) -> Logits:
        import torch
        from transformers import DynamicCache

        rows, cache, past = [], DynamicCache(config=self.model.config), 0
        with torch.inference_mode():
            for ids in pieces:
                where = {"position_ids": torch.arange(past, past + len(ids))[None]} if place else {}
                found = self.model(torch.tensor([list(ids)]), past_key_values=cache, use_cache=True, **where)
                rows.append(found.logits[0].float().numpy())
                past += len(ids)
        return np.concatenate(rows)

    def generate(self, prompts: Sequence[Sequence[int]], count: int, *, cache: bool = True) -> list[Reply]:
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
        return [self._reply(row, steps[i]) for i, row in enumerate(rows)]

    def masked(self, rows: Sequence[Sequence[int]], kinds: Sequence[Sequence[int]] | None) -> list[Logits]:
        """The logits at every place of inputs of unequal lengths, padded on the right; `kinds` are token types."""
        import torch

        ids, mask = _right_padded(rows, self.pad)
        more = {} if kinds is None else {"token_type_ids": _right_padded(kinds, 0)[0]}
        with torch.inference_mode():
            found = self.model(input_ids=ids, attention_mask=mask, **more).logits.float().numpy()
        return [found[k, : len(row)] for k, row in enumerate(rows)]

    def translated(self, inputs: Sequence[Sequence[int]], count: int, *, cache: bool = True) -> list[Reply]:
        """Greedy continuations of the decoder's first token, for encoder inputs of unequal lengths."""
        import torch

        ids, mask = _right_padded(inputs, self.pad)
        with torch.inference_mode():
            out = self.model.generate(
                input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=count, use_cache=cache,
                return_dict_in_generate=True, output_logits=True,
            )  # fmt: skip
        steps = torch.stack(out.logits, 1).float().numpy()
        return [self._reply(row, steps[i]) for i, row in enumerate(out.sequences[:, 1:].tolist())]

    def translated_logits(self, ids: Sequence[int], pieces: Sequence[Sequence[int]]) -> Logits:
        """The decoder's logits after every token of a text in pieces, for one encoder input."""
        import torch

        rows, cache = [], None
        with torch.inference_mode():
            encoded = self.model.get_encoder()(input_ids=torch.tensor([list(ids)]))
            for piece in pieces:
                found = self.model(
                    encoder_outputs=encoded, decoder_input_ids=torch.tensor([list(piece)]), past_key_values=cache,
                    use_cache=True,
                )  # fmt: skip
                cache = found.past_key_values
                rows.append(found.logits[0].float().numpy())
        return np.concatenate(rows)

    def pixels(self, paths: Sequence[Path]) -> Any:
        """What the folder's processor makes of pictures."""
        from PIL import Image
        from transformers import AutoProcessor

        processor = AutoProcessor.from_pretrained(self.folder, local_files_only=True)
        images = [Image.open(path) for path in paths]
        return processor.image_processor(images=images, return_tensors="pt")["pixel_values"].to(self.model.dtype)

    def pictured(self, paths: Sequence[Path], ids: Sequence[int], count: int) -> Reply:
        """The greedy continuation of a prompt with pictures in it."""
        import torch

        prompt = torch.tensor([list(ids)])
        with torch.inference_mode():
            out = self.model.generate(
                input_ids=prompt, attention_mask=torch.ones_like(prompt), pixel_values=self.pixels(paths),
                do_sample=False, max_new_tokens=count, return_dict_in_generate=True, output_logits=True,
            )  # fmt: skip
        return self._reply(out.sequences[0, len(ids) :].tolist(), torch.stack(out.logits, 1).float().numpy()[0])

    def pictured_logits(self, paths: Sequence[Path], ids: Sequence[int]) -> Logits:
        """The logits after every token of a prompt with pictures in it."""
        import torch

        with torch.inference_mode():
            found = self.model(input_ids=torch.tensor([list(ids)]), pixel_values=self.pixels(paths))
        logits: Logits = found.logits[0].float().numpy()
        return logits

    def _reply(self, row: list[int], logits: Logits) -> Reply:
        """Without the padding after the end token."""
        kept = row[: row.index(self.end) + 1] if self.end in row else row
        return Reply(tuple(kept), tuple(margins_of(np.asarray(logits[: len(kept)]), kept).tolist()))

    def tokenize(self, text: str) -> list[int] | None:
        from transformers import AutoTokenizer

        return list(AutoTokenizer.from_pretrained(self.folder)(text)["input_ids"])


def _right_padded(rows: Sequence[Sequence[int]], pad: int) -> tuple[Any, Any]:
    """The rows as one tensor, and the mask of what is no padding."""
    import torch

    width = max(map(len, rows))
    ids = torch.tensor([list(row) + [pad] * (width - len(row)) for row in rows])
    return ids, torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])


AUTO = {
    "causal": ("AutoModelForCausalLM", "MODEL_FOR_CAUSAL_LM_MAPPING"),
    "masked": ("AutoModelForMaskedLM", "MODEL_FOR_MASKED_LM_MAPPING"),
    "seq2seq": ("AutoModelForSeq2SeqLM", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING"),
    "picture": ("AutoModelForImageTextToText", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING"),
}  # by task: the stock class that opens a folder, and where that class looks


def attention_forms(folder: Path) -> tuple[str, ...]:
    """The forms of attention that stock Transformers has for a folder's architecture, fused ones first."""
    import transformers

    known = getattr(transformers, AUTO[task_of(folder)][1])
    model = known[type(transformers.AutoConfig.from_pretrained(folder, local_files_only=True))]
    return ("sdpa", "eager") if model._supports_sdpa else ("eager",)


@engine(
    "transformers",
    extra="huggingface",
    packages=("transformers",),
    types=("float32", "bfloat16", "float16"),
    options={"attention": ("sdpa", "eager")},
    summary="Hugging Face Transformers on the processor: the stock Auto classes read the folder",
)
def open_transformers(folder: Path, dtype: str, options: Mapping[str, str]) -> Session:
    import torch
    import transformers
    from transformers.utils import logging

    forms, shown = attention_forms(folder), logging.is_progress_bar_enabled()
    form = options["attention"] if options["attention"] in forms else forms[0]
    logging.disable_progress_bar()
    try:
        model = getattr(transformers, AUTO[task_of(folder)][0]).from_pretrained(
            folder, dtype=getattr(torch, dtype), attn_implementation=form, local_files_only=True
        )
    except ImportError as error:
        if (method := _method(folder)) is None:
            raise
        raise MissingLibraryError(f"Transformers opens {method} folders with another library: {error}") from error
    finally:
        if shown:
            logging.enable_progress_bar()
    if _method(folder) in ("fp8", "mxfp4", "bitsandbytes"):
        _compute_in(model, getattr(torch, dtype))
    if dtype == "float64" and model._can_set_experts_implementation():
        model.set_experts_implementation("eager")  # the grouped product of experts has no float64
    return TransformersSession(folder, model.eval())


def _compute_in(model: Any, dtype: Any) -> None:
    """Let a quantized model compute in the requested type.

    Transformers 5.22 leaves tensors that are not quantized as stored, or decodes to bfloat16 (mxfp4); then the whole
    stream has the stored type. `model.to` refuses models of bitsandbytes. Its kernel for AVX-512 rounds inputs to
    bfloat16 in every type, so matrices are decoded instead.
    """
    for tensor in model.parameters():
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(dtype)
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def _method(folder: Path) -> Any:
    """How a folder's weights are quantized."""
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("quantization_config") or {}
    return settings.get("quant_method")
