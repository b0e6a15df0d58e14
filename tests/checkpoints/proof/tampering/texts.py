"""Edits of tokenizer.json, tokenizer_config.json and generation_config.json, and files that loaders look for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.checkpoints.proof.tampering.settings import edit_json, other_value, pick, words

Random = np.random.Generator


TOKENIZER_KEYS = words("""
    add_bos_token add_eos_token add_prefix_space legacy split_special_tokens tokenizer_class model_max_length
    padding_side truncation_side clean_up_tokenization_spaces additional_special_tokens bos_token eos_token
    pad_token unk_token sep_token mask_token cls_token chat_template added_tokens_decoder extra_special_tokens
    use_default_system_prompt spaces_between_special_tokens sp_model_kwargs tokenizer_file vocab_file
    model_input_names processor_class auto_map from_slow fix_mistral_regex do_lower_case errors backend is_local
    name_or_path max_length
""")
GENERATION_KEYS = words("""
    do_sample num_beams temperature top_k top_p repetition_penalty eos_token_id max_length max_new_tokens min_length
    min_new_tokens suppress_tokens begin_suppress_tokens forced_bos_token_id forced_eos_token_id bad_words_ids
    no_repeat_ngram_size sequence_bias guidance_scale stop_strings length_penalty early_stopping penalty_alpha
    typical_p epsilon_cutoff diversity_penalty num_beam_groups renormalize_logits remove_invalid_values
    exponential_decay_length_penalty use_cache cache_implementation cache_config watermarking_config token_healing
    prompt_lookup_num_tokens assistant_early_exit dola_layers max_time num_return_sequences return_dict_in_generate
    output_scores pad_token_id bos_token_id decoder_start_token_id encoder_repetition_penalty compile_config
    disable_compile low_memory constraints force_words_ids min_p is_assistant
""")
FILES = words("""
    added_tokens.json special_tokens_map.json vocab.json merges.txt chat_template.jinja vocab.txt tokenizer.model
    spiece.model adapter_config.json processor_config.json preprocessor_config.json tokenizer.v1.json tekken.json
    generation_config_for_text_generation.json chat_template.json
""")


def edit_texts(folder: Path, rng: Random) -> str:
    """Files of the tokenizer and of generation, and files that loaders look for beside them."""
    kind = rng.random()
    if kind < 0.15:
        name = str(rng.choice(FILES))
        contents = "{}", '{"<x>": 5}', "#version: 0.2\ns e\n", '{"eos_token": "s"}', "<s>\n</s>\n"
        (folder / name).write_text(pick(rng, contents))
        return f"{name} added"
    if kind < 0.25:
        name = pick(rng, ("tokenizer.json", "tokenizer_config.json", "generation_config.json"))
        (folder / name).unlink(missing_ok=True)
        return f"{name} removed"
    if kind < 0.6:
        return edit_json(folder / "tokenizer_config.json", lambda v: _change_key(v, TOKENIZER_KEYS, rng))
    if kind < 0.8 and (folder / "generation_config.json").exists():
        return edit_json(folder / "generation_config.json", lambda v: _change_key(v, GENERATION_KEYS, rng))
    return edit_json(folder / "tokenizer.json", lambda v: _change_tokenizer(v, rng))


NAMES = words("""
    <s> </s> <pad> s LlamaTokenizer LlamaTokenizerFast GPT2Tokenizer PreTrainedTokenizer TokenizersBackend left right
    static quantized
""")
TOKEN = {"content": "<s>", "lstrip": True, "__type": "AddedToken"}
OBJECTS: tuple[Any, ...] = (TOKEN, {"0": {"content": "s", "special": True}}, [2, 5], [[5]], 1.3)


def _change_key(value: dict[str, Any], keys: tuple[str, ...], rng: Random) -> str:
    key = str(rng.choice([*keys, *value]))
    if key in value and rng.random() < 0.3:
        del value[key]
        return f"{key} removed"
    value[key] = other_value(value.get(key), rng) if rng.random() < 0.5 else pick(rng, pick(rng, (NAMES, OBJECTS)))
    return f"{key} = {value[key]!r}"


STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
TRUNCATION = {"direction": "Right", "max_length": 9, "strategy": "LongestFirst", "stride": 0}
FIXED = {"strategy": {"Fixed": 200}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 3}
PARTS = (
    ("normalizer", {"type": "Lowercase"}), ("normalizer", {"type": "NFKC"}), ("normalizer", STRIP), ("decoder", None),
    ("decoder", {"type": "Fuse"}), ("decoder", METASPACE), ("pre_tokenizer", None), ("pre_tokenizer", BYTES),
    ("post_processor", None), ("truncation", TRUNCATION),
    ("padding", FIXED | {"pad_type_id": 0, "pad_token": "<pad>"}),
)  # fmt: skip


def _change_tokenizer(value: dict[str, Any], rng: Random) -> str:
    kind = int(rng.integers(6))
    if kind == 0:
        vocabulary = value["model"]["vocab"]
        a, b = rng.choice(np.array(sorted(vocabulary), dtype=object), 2)
        vocabulary[a], vocabulary[b] = vocabulary[b], vocabulary[a]
        return f"{a!r} and {b!r} exchanged"
    if kind == 1:
        token = value["added_tokens"][int(rng.integers(len(value["added_tokens"])))]
        key = str(rng.choice(["special", "lstrip", "rstrip", "normalized", "single_word"]))
        token[key] = not token[key]
        return f"{token['content']}: {key} = {token[key]}"
    if kind == 2:
        name, part = pick(rng, PARTS)
        value[name] = part
        return f"{name} = {value[name]!r}"
    if kind == 3:
        switches = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        new = {"id": len(value["model"]["vocab"]), "content": pick(rng, ("sh", "e s", "se"))}
        value["added_tokens"].append(new | switches | {"special": bool(rng.integers(2))})
        return "a token added"
    if kind == 4:
        pieces = [p for p in value["model"]["vocab"] if len(p) == 1]
        a, b = rng.choice(np.array(pieces, dtype=object), 2)
        value["model"]["merges"].append([a, b])
        value["model"]["vocab"][a + b] = len(value["model"]["vocab"])
        return f"merge {a!r} {b!r}"
    key = str(rng.choice(["unk_token", "byte_fallback", "ignore_merges", "dropout", "fuse_unk", "end_of_word_suffix"]))
    value["model"][key] = pick(rng, (None, True, 1.0, "s"))
    return f"model.{key} = {value['model'][key]!r}"
