"""Edits of config.json and recall.json: every key that Transformers reads for a family, with values of all kinds."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

Random = np.random.Generator


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def pick(rng: Random, options: Sequence[Any]) -> Any:
    """One of several values of any kind."""
    return options[int(rng.integers(len(options)))]


def edit_json(path: Path, change: Callable[[dict[str, Any]], str]) -> str:
    value = json.loads(path.read_text(encoding="utf-8"))
    done = change(value)
    path.write_text(json.dumps(value), encoding="utf-8")
    return f"{path.name}: {done}"


VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, 3, 4, -1, 4096, 10**7, 0.0, 0.5, 1.0, 2.0, 1e-12, 1e-5, 0.1, 1e6, "", "x", "1"),
    *("float16", "bfloat16", "auto", "gelu", "gelu_new", "gelu_fast", "silu", "relu", "gelu_pytorch_tanh", "eager"),
    *([], [1, 2], {}, [None], {"x": 1}, float("1e400"), 2**63, "None"),
)  # fmt: skip
ROPES: tuple[Any, ...] = (
    {"rope_type": "linear", "factor": 2.0}, {"rope_type": "dynamic", "factor": 2.0}, {"type": "linear", "factor": 2.0},
    {"rope_type": "default"}, {"rope_type": "default", "rope_theta": 5e5}, {"rope_theta": 1e4, "factor": 4.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "attention_factor": 1.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 256},
    {"rope_type": "longrope", "short_factor": [1.0] * 32, "long_factor": [2.0] * 32, "factor": 4.0},
    {"full_attention": {"rope_type": "default", "rope_theta": 1e4}},
    {"full_attention": {"rope_type": "default", "rope_theta": 1e4},
     "sliding_attention": {"rope_type": "default", "rope_theta": 5e5}},
    {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}, {"rope_type": "proportional"},
)  # fmt: skip
COMMON = words("""
    rope_theta rope_scaling rope_parameters partial_rotary_factor rotary_pct rotary_emb_base rotary_dim layer_types
    sliding_window use_sliding_window max_window_layers attn_implementation _attn_implementation
    attention_chunk_size num_labels is_causal use_cache tie_word_embeddings tie_encoder_decoder torch_dtype dtype
    auto_map quantization_config text_config max_length logit_scale final_logit_softcapping attn_logit_softcapping
    query_pre_attn_scalar clip_qkv embedding_multiplier residual_multiplier logits_scaling attention_multiplier
    no_rope_layers no_rope_layer_interval num_experts num_experts_per_tok num_local_experts norm_topk_prob
    decoder_sparse_step mlp_only_layers moe_intermediate_size attention_bias mlp_bias sub_configs hidden_act
    hidden_activation activation_function n_inner d_ff n_embd hidden_size n_layer num_hidden_layers
    num_attention_heads n_head head_dim vocab_size architectures model_type base_model_tp_plan
    keys_to_ignore_at_inference attribute_map id2label label2id eos_token_id bos_token_id pad_token_id sep_token_id
    decoder_start_token_id suppress_tokens _name_or_path transformers_version output_attentions output_hidden_states
    return_dict use_return_dict prefix experts_implementation _experts_implementation pretraining_tp
    chunk_size_feed_forward layer_norm_eps
""")


@lru_cache(maxsize=64)
def keys_of(model_type: str) -> tuple[str, ...]:
    """The keys that Transformers reads for a family: its configuration class's, and those of its modelling code."""
    import transformers

    config = transformers.AutoConfig.for_model(model_type)
    model = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    source = inspect.getsource(sys.modules[model.__module__]) + inspect.getsource(sys.modules[type(config).__module__])
    read = set(re.findall(r"config\.([a-z_]\w+)", source)) | set(config.to_dict()) | set(type(config).attribute_map)
    return tuple(sorted(read))


def other_value(value: Any, rng: Random) -> Any:
    """The same in another type or nearby, or any sampled value."""
    if isinstance(value, dict) and rng.random() < 0.6:
        inner = words("factor rope_theta rope_type x type partial_rotary_factor truncate short_factor long_factor")
        return {**value, pick(rng, inner): pick(rng, VALUES)}
    if isinstance(value, list) and rng.random() < 0.5:
        return pick(rng, (value[::-1], value[:-1], [*value, *value], [*value, None], value[:1]))
    if isinstance(value, bool) or not isinstance(value, int | float) or rng.random() < 0.4:
        return pick(rng, VALUES)
    return pick(rng, (float(value), str(value), value + 1, value * 2, value // 2, -value, [value], value * 1.0001))


def edit_config(folder: Path, rng: Random, ropes: bool = False) -> str:
    def change(config: dict[str, Any]) -> str:
        done, model_type = [], config["model_type"]
        for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
            read = keys_of(model_type)
            source = int(rng.choice(3, p=(0.45, 0.35, 0.2)))
            pool = (sorted(config), read, COMMON)[source]
            key = str(rng.choice(np.array(pool, dtype=object)))
            if ropes:
                key = str(rng.choice(["rope_parameters", "rope_parameters", "rope_scaling", "rope_theta", "layer_types",
                                      "max_position_embeddings", "original_max_position_embeddings",
                                      "partial_rotary_factor", "head_dim", "rope_local_base_freq"]))  # fmt: skip
            if rng.random() < 0.2 and key in config:
                del config[key]
                done.append(f"{key} removed")
                continue
            about_rope = key in ("rope_parameters", "rope_scaling") and rng.random() < 0.7
            new = pick(rng, ROPES) if about_rope else other_value(config.get(key), rng)
            if key == "layer_types" and rng.random() < 0.8:
                kinds = ["full_attention", "sliding_attention", "chunked_attention", "linear_attention"]
                new = [str(rng.choice(kinds)) for _ in range(int(config.get("num_hidden_layers") or 1))]
            if about_rope and isinstance(config.get("rope_parameters"), dict) and rng.random() < 0.5:
                new = {**config["rope_parameters"], **new}
            config[key] = new
            done.append(f"{key} = {new!r}")
        return "; ".join(done)

    return edit_json(folder / "config.json", change)


def edit_rope(folder: Path, rng: Random) -> str:
    return edit_config(folder, rng, ropes=True)


def edit_layout(folder: Path, rng: Random) -> str:
    """recall.json."""

    def change(value: dict[str, Any]) -> str:
        kind, roles = int(rng.integers(5)), value["channels"]
        a, b = rng.choice(np.array(sorted(roles), dtype=object), 2)
        if kind == 0:
            roles[a], roles[b] = roles[b], roles[a]
            return f"{a} and {b} exchanged"
        if kind == 1:
            i, j = (int(rng.integers(len(roles[x]))) for x in (a, b))
            roles[a][i], roles[b][j] = roles[b][j], roles[a][i]
            return f"{a}[{i}] and {b}[{j}] exchanged"
        if kind == 2:
            roles[a] = roles[a][::-1]
            return f"{a} reversed"
        if kind == 3:
            key = str(rng.choice(sorted(value["function"]["tokens"])))
            value["function"]["tokens"][key] = int(rng.integers(256))
            return f"{key} = {value['function']['tokens'][key]}"
        key = str(rng.choice(["key_length", "window", "vocabulary"]))
        value["function"][key] = pick(rng, VALUES)
        return f"{key} = {value['function'][key]!r}"

    return edit_json(folder / "recall.json", change)
