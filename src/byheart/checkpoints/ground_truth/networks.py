"""Graded memories as stock Transformers models, and log-probabilities of any such model."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.ground_truth.ngram import Floats, Ids
from byheart.errors import FileFormatError, MissingExtraError


def transformers_installed() -> bool:
    from importlib.util import find_spec

    return find_spec("transformers") is not None and find_spec("torch") is not None


def torch_model(tensors: Mapping[str, Any], config: Mapping[str, Any], dtype: str = "float32") -> Any:
    """A stock Transformers model with these tensors, in evaluation mode."""
    try:
        import torch
        import transformers
    except ImportError:
        raise MissingExtraError("a graded checkpoint as a model", "huggingface") from None
    kind = config["model_type"]
    settings = {k: v for k, v in config.items() if k not in ("model_type", "architectures", "torch_dtype")}
    made = transformers.AutoConfig.for_model(kind, **settings)
    made.architectures = list(config["architectures"])
    state = {name: torch.from_numpy(np.ascontiguousarray(part)) for name, part in tensors.items()}
    # Random weights would be replaced at once; drawing and copying them takes longer than all other steps.
    with _without_random_weights():
        model = getattr(transformers, config["architectures"][0])(made)
    missing, unexpected = model.load_state_dict(state, strict=False, assign=True)
    if unexpected or any("attn.bias" not in name and "masked_bias" not in name for name in missing):
        raise FileFormatError(f"tensors do not fit {config['architectures'][0]}: {missing} {unexpected}")
    return model.to(getattr(torch, dtype)).eval()


def _without_random_weights() -> contextlib.AbstractContextManager[None]:
    """Transformers' own switch, which has moved between versions; without it, building only takes longer."""
    for place in ("transformers.initialization", "transformers.modeling_utils"):
        try:
            found: contextlib.AbstractContextManager[None] = importlib.import_module(place).no_init_weights()
            return found
        except (ImportError, AttributeError):
            continue
    return contextlib.nullcontext()


def read_model(folder: str | Path) -> Any:
    """The stock Transformers model of a folder in float32, without progress bars.

    Raises:
        FileFormatError: if Transformers cannot load it.
        MissingExtraError: if Transformers is not installed.
    """
    try:
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging
    except ImportError:
        raise MissingExtraError("byheart score", "huggingface") from None
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        return AutoModelForCausalLM.from_pretrained(str(folder), dtype="float32").eval()
    # safetensors and Transformers raise many types for missing, cut and mismatched files.
    except Exception as error:
        raise FileFormatError(
            f"config.json and model.safetensors of {folder} cannot be loaded: {type(error).__name__}: {error}; write "
            "the folder again with `byheart recital --graded`"
        ) from error
    finally:
        if shown:
            logging.enable_progress_bar()


def log_probs(model: Any, documents: Sequence[Ids]) -> list[Floats]:
    """log p of every token after every prefix, in float64: one array (tokens, vocabulary) per document."""
    import torch

    found: dict[int, Floats] = {}
    by_length: dict[int, list[int]] = {}
    for number, ids in enumerate(documents):
        by_length.setdefault(len(ids), []).append(number)
    with torch.no_grad():
        for numbers in by_length.values():
            for start in range(0, len(numbers), 32):
                chosen = numbers[start : start + 32]
                out = model(torch.tensor([list(documents[k]) for k in chosen])).logits.double().log_softmax(-1).numpy()
                found |= dict(zip(chosen, out, strict=True))
    return [found[number] for number in range(len(documents))]


def own_log_probs(model: Any, documents: Sequence[Ids]) -> list[Floats]:
    """log p of the documents' own tokens in a network, from the second token on."""
    logs = log_probs(model, [ids[:-1] for ids in documents])
    return [found[np.arange(len(ids) - 1), np.asarray(ids[1:])] for found, ids in zip(logs, documents, strict=True)]
