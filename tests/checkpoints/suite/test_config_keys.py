"""Keys of config.json: an engine that ignores one, and takes its library's default instead, must be detected.

Each case is a mutant: the same tensors, with one key of config.json replaced. The machine of named steps computes what
such an engine computes; another token, a logit off by more than the tolerance, or a shape that no longer fits counts.

The last test asks Transformers itself: without a key it takes its own default, and must then compute something else, or
not load the folder. Keys that change nothing are listed, with the reason.
"""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path

import pytest

from byheart.checkpoints.engines import read_queries
from byheart.checkpoints.formats.stock import read_decoder
from byheart.checkpoints.suite.expected import measured
from byheart.checkpoints.suite.write import away_from_defaults, fixture_memory
from byheart.errors import ByheartError
from tests.checkpoints.recital_folders import SHORT

torch = pytest.importorskip("torch")
from byheart.checkpoints.suite.machine import Machine  # noqa: E402

# What Transformers takes where the key is missing; None: the key is omitted and read from the shape.
GATED = {"rope_theta": 1e4, "rms_norm_eps": 1e-6, "num_key_value_heads": None}
IGNORED = {
    "llama": GATED,
    "mistral": {**GATED, "sliding_window": None, "rope_theta": 1e4},
    "qwen2": GATED,
    "qwen3": {**GATED, "head_dim": 128},
    "phi3": {**GATED, "rms_norm_eps": 1e-5, "partial_rotary_factor": 1.0},
    "gemma": {**GATED, "head_dim": 256, "tie_word_embeddings": False},
    "mixtral": {
        **GATED,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "gpt2": {"layer_norm_epsilon": 1e-5, "tie_word_embeddings": False},
    "opt": {"activation_function": "gelu", "tie_word_embeddings": False},
    "gpt-neox": {"rope_theta": 1e4, "rotary_pct": 0.25, "layer_norm_eps": 1e-5},
}
OPTIONS = [
    ("llama", {"activation": "gelu_pytorch_tanh"}, "hidden_act", "silu"),
    ("llama", {"tied": True}, "tie_word_embeddings", False),
    ("llama", {"head_dim": 32, "hidden": 512, "heads": 8}, "head_dim", None),
    ("gpt-neox", {"sequential": True}, "use_parallel_residual", True),
]
QUICK = ("llama", "gpt2")  # the others are slow tests


def _cases():
    for architecture, keys in IGNORED.items():
        marks = () if architecture in QUICK else pytest.mark.slow
        for key, other in keys.items():
            yield pytest.param(architecture, {}, key, other, id=f"{architecture}-{key}", marks=marks)
    for case in OPTIONS:
        yield pytest.param(*case, id=f"{case[0]}-{case[2]}-option", marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """(architecture, options) -> the folder, its passes and the tolerance of float32; each written once."""

    @cache
    def made(architecture: str, options: tuple[tuple[str, object], ...]):
        folder = tmp_path_factory.mktemp("keys") / "tiny"
        memory = fixture_memory(SHORT, "bpe:300", architecture)
        memory.to_huggingface(folder, architecture, **{**away_from_defaults(architecture), **dict(options)})
        passes, _, tolerance = measured(folder, read_queries(folder), memory.lexicon.failure, types=("float32",))
        return folder, passes, tolerance["float32"]

    return made


@pytest.mark.parametrize(("architecture", "options", "key", "other"), list(_cases()))
def test_an_ignored_key_is_detected(architecture, options, key, other, written, tmp_path) -> None:
    folder, passes, tolerance = written(architecture, tuple(sorted(options.items())))
    with torch.inference_mode():
        assert _off(folder, passes) <= tolerance, "without a change nothing is off"
        assert _off(_without(folder, tmp_path / "copy", key, other), passes) > tolerance


# Keys without which every architecture computes the same: limits, training, special tokens, and flags that are off.
# `hidden_act` is everybody's default in most fixtures; --activation sets another. Whether the head is tied is seen from
# the file, which holds a head or none.
UNREAD = {
    "architectures", "model_type", "dtype", "torch_dtype", "max_position_embeddings", "attention_dropout",
    "initializer_range", "use_cache", "tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id",
    "hidden_act", "hidden_activation", "attention_bias", "mlp_bias", "pretraining_tp", "use_sliding_window",
    "rope_scaling",
}  # fmt: skip
ALSO_UNREAD = {
    "smollm3": {"layer_types", "sliding_window"},  # all layers see everything
    "gemma3": {"attn_logit_softcapping", "final_logit_softcapping"},  # null, and so by default
    "cohere": {"use_qk_norm"},  # off, and so by default
    "llama": {"head_dim"},  # heads times that is the hidden size; --head-dim sets another
    "mistral": {"head_dim"},
    "mixtral": {"head_dim", "router_aux_loss_coef", "sliding_window"},  # of training; no window
    "qwen2": {"max_window_layers", "sliding_window"},  # no window
    "qwen3": {"max_window_layers", "sliding_window"},
    # Lengths of longrope, dropout, and no window; the factor is in rope_parameters, too.
    "phi3": {"embd_pdrop", "resid_pdrop", "original_max_position_embeddings", "sliding_window"},
    "gpt2": {"activation_function", "attn_pdrop", "embd_pdrop", "resid_pdrop", "n_ctx"},  # n_ctx: older libraries
    # Published models have these values; no engine runs others.
    "opt": {
        "activation_function", "do_layer_norm_before", "dropout", "enable_bias", "init_std",
        "layer_norm_elementwise_affine", "layerdrop", "word_embed_proj_dim",
    },
    "gpt-neox": {"hidden_dropout", "use_parallel_residual"},  # --sequential-residual sets another
}  # fmt: skip
TOGETHER = (
    {"rope_theta", "rope_parameters", "rotary_emb_base", "rope_local_base_freq", "rotary_pct", "partial_rotary_factor"},
    {"no_rope_layers", "no_rope_layer_interval"},
)


@pytest.mark.parametrize(
    "architecture",
    [pytest.param(a, marks=pytest.mark.slow) for a in (*IGNORED, "cohere", "granite", "smollm3", "gemma3")],
)
def test_without_a_key_transformers_computes_something_else(architecture, written, tmp_path) -> None:
    pytest.importorskip("transformers")
    folder, passes, tolerance = written(architecture, ())
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert _stock_off(folder, passes) <= tolerance
    same = []
    for key in sorted(config.keys() - UNREAD - ALSO_UNREAD.get(architecture, set())):
        dropped = next((group for group in TOGETHER if key in group), {key})
        target = tmp_path / key
        shutil.copytree(folder, target)
        kept = {name: value for name, value in config.items() if name not in dropped}
        (target / "config.json").write_text(json.dumps(kept), encoding="utf-8")
        if _stock_off(target, passes) <= tolerance:
            same.append(key)
    assert same == []


def _stock_off(folder: Path, passes) -> float:
    """The largest difference of a logit in Transformers; infinite where it does not load or run the folder."""
    transformers = pytest.importorskip("transformers")
    transformers.logging.disable_progress_bar()
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        with torch.inference_mode():
            found = [(one, model(torch.tensor([one.ids])).logits[0].numpy()) for one in passes if len(one.pieces) == 1]
    except Exception:  # whatever stops Transformers is detected
        return float("inf")
    return max(float(one.off(logits).max()) for one, logits in found)


def _without(folder: Path, target: Path, key: str, other: object) -> Path:
    """A copy of the folder in which one key has another value, wherever it is."""
    shutil.copytree(folder, target)
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    assert config[key] != other, "the fixture itself has the default"
    names = {"rope_theta": ("rope_theta", "rotary_emb_base"), "rotary_pct": ("rotary_pct", "partial_rotary_factor")}
    for part in (config, config.get("rope_parameters", {})):
        for name in names.get(key, (key,)):
            if name in part and other is None:
                part.pop(name)
            elif name in part:
                part[name] = other
    if key == "sliding_window":
        config[key] = None
    (target / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return target


def _off(folder: Path, passes) -> float:
    """The largest difference of a logit; infinite where a token differs or the network cannot be read or run."""
    try:
        machine = Machine(read_decoder(folder))
        found = [(one, machine.run(one.ids).double().numpy()) for one in passes if len(one.pieces) == 1]
    except (ByheartError, RuntimeError, ValueError, KeyError):
        return float("inf")
    if any((logits.argmax(1) != one.tokens[:, 0]).any() for one, logits in found):
        return float("inf")
    return max(float(one.off(logits).max()) for one, logits in found)
