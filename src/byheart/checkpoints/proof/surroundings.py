"""Files beside the tensors that would make an engine answer otherwise than the tensors do.

Engines follow generation_config.json, adapters, and the settings of a tokenizer. What is known to leave greedy decoding
of the given texts as it is, is listed here; anything else is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from byheart.checkpoints.proof.config import Undecided, count
from byheart.checkpoints.proof.tensors import read_json

# Files by which engines would load something else, or tokenize texts otherwise than tokenizer.json does.
STRANGE = (
    "adapter_config.json",
    "adapter_model.safetensors",
    "added_tokens.json",
    "custom_generate",
    "merges.txt",
    "special_tokens_map.json",
    "spiece.model",
    "tekken.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
)
# What generation_config.json may contain without changing greedy decoding: lengths, names, and settings of sampling.
# Loaders refuse other values.
GREEDY: dict[str, Callable[[Any], bool]] = {
    "_from_model_config": lambda value: isinstance(value, bool),
    "max_length": lambda value: value is None or (count(value) and value > 0),
    "max_new_tokens": lambda value: value is None or (count(value) and value > 0),
    "temperature": lambda value: isinstance(value, float) and 0 < value < float("inf"),
    "top_k": lambda value: count(value) and value > 0,
    "top_p": lambda value: isinstance(value, float) and 0 < value <= 1,
    "transformers_version": lambda value: isinstance(value, str),
    "use_cache": lambda value: isinstance(value, bool),
}
TOKENIZER: dict[str, Callable[[Any], bool]] = {
    "model_max_length": lambda value: type(value) in (int, float) and value > 0,
    "transformers_version": lambda value: isinstance(value, str),
    "backend": lambda value: value == "tokenizers",
    "is_local": lambda value: isinstance(value, bool),
    "local_files_only": lambda value: isinstance(value, bool),
}
CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
# What a loader would fill in by itself, otherwise than the texts need it.
REQUIRED = ("tokenizer_class", "padding_side", "pad_token", "bos_token", "eos_token", "add_bos_token")
ROLES = ("bos", "eos", "pad")


def check_surroundings(folder: Path, *, classifier: bool = False) -> None:
    """Refuses files and settings by which an engine would answer otherwise than the tensors of this folder do."""
    for name in STRANGE:
        if (folder / name).exists():
            what = "load an adapter over the tensors" if name.startswith("adapter") else "follow it"
            raise Undecided(f"{folder} has {name}: engines may {what}")
    config = read_json(folder / "config.json")
    if not classifier and (folder / "generation_config.json").exists():
        _check_generation(read_json(folder / "generation_config.json"), config)
    if not (folder / "tokenizer_config.json").exists():
        raise Undecided(
            f"{folder} has no tokenizer_config.json: loaders then take the tokenizer class of the architecture, which"
            " splits and joins texts by its own rules"
        )
    _check_tokenizer(folder, read_json(folder / "tokenizer_config.json"), config, classifier)


def _check_generation(generation: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    named = {f"{role}_token_id": (config.get(f"{role}_token_id"),) for role in ROLES}
    fixed = named | {"do_sample": (False,), "num_beams": (1,), "cache_implementation": (None, "dynamic", "static")}
    for key, value in generation.items():
        fine = GREEDY[key](value) if key in GREEDY else _one_of(value, fixed.get(key, ()))
        if not fine:
            raise Undecided(f"generation_config.json: {key} = {value!r} is not plain greedy decoding")
    if generation.get("eos_token_id") != config.get("eos_token_id"):
        raise Undecided("generation_config.json has no eos_token_id: engines would continue past the end")


def _check_tokenizer(folder: Path, about: Mapping[str, Any], config: Mapping[str, Any], classifier: bool) -> None:
    sides = ("right", "left") if classifier else ("left",)
    fixed: dict[str, tuple[Any, ...]] = {
        "tokenizer_class": CLASSES,
        "add_bos_token": (True,),
        "clean_up_tokenization_spaces": (False,),
        "padding_side": sides,
        "model_input_names": (["input_ids", "attention_mask"],),
    }
    for key in REQUIRED if not classifier else REQUIRED[:1]:
        if key not in about:
            raise Undecided(f"tokenizer_config.json has no {key}: loaders then choose one by the architecture")
    numbers = _numbers(folder)
    for key, value in about.items():
        role = key.removesuffix("_token")
        if role in ROLES and key.endswith("_token"):
            fine = isinstance(value, str) and numbers.get(value) == config.get(f"{key}_id")
        elif key == "unk_token":
            # Engines omit it from decoded text, so `check_padding` refuses texts that hold it.
            fine = isinstance(value, str) and value in numbers
        else:
            fine = TOKENIZER[key](value) if key in TOKENIZER else _one_of(value, fixed.get(key, ()))
        if not fine:
            raise Undecided(f"tokenizer_config.json: {key} = {value!r}: engines may split or join texts otherwise")


def _one_of(value: Any, allowed: Sequence[Any]) -> bool:
    return any(type(value) is type(known) and value == known for known in allowed)


def _numbers(folder: Path) -> dict[str, int]:
    """The numbers of tokens by tokenizer.json; what is not written as usual has none."""
    try:
        model = read_json(folder / "tokenizer.json")
        words = model["model"]["vocab"]
        added = {token["content"]: token["id"] for token in model.get("added_tokens", ())}
    except (OSError, KeyError, TypeError, AttributeError):
        return {}
    return ({} if not isinstance(words, dict) else words) | added


def check_padding(folder: Path, ids: Sequence[Sequence[int]]) -> None:
    """Engines omit, or take for the end of a row, the token that fills batches: no text may hold it. They also omit the
    unknown token from decoded text."""
    pad = read_json(folder / "config.json").get("pad_token_id")
    about = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").exists() else {}
    unknown = _numbers(folder).get(str(about.get("unk_token")))
    for token, why in ((pad, "which fills batches (pad_token_id)"), (unknown, "which engines omit (unk_token)")):
        number = next((k for k, row in enumerate(ids) if token in row), None)
        if token is not None and number is not None:
            raise Undecided(f"text {number} holds the token {token}, {why}")
