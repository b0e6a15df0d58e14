"""Folders that once were proved although stock Transformers computes NaN, other tokens, or nothing at all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.proof import MarginCertificate, certify_checkpoint, tokenize, verify_folder
from byheart.checkpoints.proof.attention import blended
from byheart.checkpoints.proof.bounds import TOKEN, Bounds, SymbolPart
from byheart.checkpoints.proof.checkpoint import read_shape
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.copying import Reach, one_hot
from byheart.checkpoints.proof.storage import storage
from byheart.checkpoints.proof.tensors import open_tensors
from tests.checkpoints.proof.folders import TEXT, copy, edit_config, edit_tensor, write

LAYER = "model.layers.0."


def certificate(folder: Path, *types: str) -> MarginCertificate:
    return verify_folder(folder, [TEXT], types, reach=128)


def only_the_first(values: np.ndarray, number: float) -> np.ndarray:
    values[:64] *= number
    return values


def test_scores_that_leave_float16_are_not_proved(llama: Path, tmp_path: Path) -> None:
    folder = copy(llama, tmp_path / "copy")
    edit_tensor(folder, LAYER + "self_attn.q_proj.weight", lambda w: only_the_first(w, 256))
    assert certificate(folder, "float16").verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("type_, size", [("float16", 6e4), ("float32", 3e38), ("bfloat16", 3e38)])
@pytest.mark.parametrize("read, write_", [("mlp.up_proj.weight", "mlp.down_proj.weight")])
def test_idle_units_must_stay_finite(
    type_: str, size: float, read: str, write_: str, llama: Path, tmp_path: Path
) -> None:
    """A unit that nothing reads still makes inf * 0 = NaN."""

    def huge(values: np.ndarray) -> np.ndarray:
        values[0] = size
        return values

    def silent(values: np.ndarray) -> np.ndarray:
        values[:, 0] = 0.0
        return values

    folder = edit_tensor(copy(llama, tmp_path / "copy"), LAYER + read, huge)
    edit_tensor(folder, LAYER + write_, silent)
    found = certificate(folder, type_)
    assert found.verdict is Verdict.UNDECIDED and "beyond the range" in found.reason, found.reason


def test_idle_heads_must_stay_finite(llama: Path, tmp_path: Path) -> None:
    """Every head that reads the first group of values writes nothing; its values overflow all the same."""
    heads = json.loads((llama / "config.json").read_text())["num_attention_heads"]
    groups = json.loads((llama / "config.json").read_text())["num_key_value_heads"]
    width = 64 * heads // groups

    def huge(values: np.ndarray) -> np.ndarray:
        values[:64] = 6e4
        return values

    def silent(values: np.ndarray) -> np.ndarray:
        values[:, :width] = 0.0
        return values

    folder = edit_tensor(copy(llama, tmp_path / "copy"), LAYER + "self_attn.v_proj.weight", huge)
    edit_tensor(folder, LAYER + "self_attn.o_proj.weight", silent)
    found = certificate(folder, "float16")
    assert found.verdict is Verdict.UNDECIDED and "beyond the range" in found.reason, found.reason


@pytest.mark.filterwarnings("ignore")
def test_idle_values_must_stay_finite_before_the_softmax_divides(llama: Path, tmp_path: Path) -> None:
    """Kernels add exp(score - largest) times value first: the sum overflows where each value is finite."""
    heads = json.loads((llama / "config.json").read_text())["num_attention_heads"]
    groups = json.loads((llama / "config.json").read_text())["num_key_value_heads"]
    values = open_tensors(llama / "model.safetensors").read("model.embed_tokens.weight")
    steady = int(np.argmax(np.abs(values.mean(0)) - values.std(0)))  # a channel that is alike for all tokens

    def huge(weight: np.ndarray) -> np.ndarray:
        weight[:64] = 0.0
        weight[:64, steady] = 2e38 / np.sqrt(weight.shape[1])
        return weight

    def silent(weight: np.ndarray) -> np.ndarray:
        weight[:, : 64 * heads // groups] = 0.0
        return weight

    folder = edit_tensor(copy(llama, tmp_path / "copy"), LAYER + "self_attn.v_proj.weight", huge)
    edit_tensor(folder, LAYER + "self_attn.o_proj.weight", silent)
    found = certificate(folder, "bfloat16")
    assert found.verdict is Verdict.UNDECIDED and "before the softmax divides" in found.reason, found.reason


def test_squares_inside_a_norm_must_stay_finite(llama: Path, tmp_path: Path) -> None:
    folder = copy(llama, tmp_path / "copy")
    layers = json.loads((folder / "config.json").read_text())["num_hidden_layers"]
    names = ["model.embed_tokens.weight"]
    names += [f"model.layers.{i}.{n}.weight" for i in range(layers) for n in ("self_attn.o_proj", "mlp.down_proj")]
    for name in names:
        edit_tensor(folder, name, lambda w: w * np.float32(2.0**66))
    found = certificate(folder, "float32")
    assert found.verdict is Verdict.UNDECIDED and "squares inside a norm" in found.reason, found.reason


def test_a_norm_that_may_divide_by_zero_is_undecided(llama: Path, tmp_path: Path) -> None:
    folder = edit_config(copy(llama, tmp_path / "copy"), rms_norm_eps=1e-300)
    edit_tensor(folder, "model.embed_tokens.weight", lambda w: w * 0)
    found = certificate(folder, "float32")
    assert found.verdict is Verdict.UNDECIDED and "divide by zero" in found.reason, found.reason


def config_of(family: str, **changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "model_type": family, "vocab_size": 338, "hidden_size": 256, "num_hidden_layers": 1, "num_attention_heads": 4,
        "num_key_value_heads": 4, "intermediate_size": 64, "max_position_embeddings": 64,
        "pad_token_id": 3,
    }  # fmt: skip
    if family == "gpt_neox":
        del base["num_key_value_heads"]
    elif family not in ("phi3", "qwen2", "deepseek_v3"):
        base["head_dim"] = 64
    return {key: value for key, value in (base | changes).items() if value is not ...}


LLAMAS = ("llama", "mistral", "mixtral", "gemma", "qwen2", "qwen3")
REFUSED = [
    *((family, {"partial_rotary_factor": 0.25}) for family in LLAMAS),
    *((family, {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.25}}) for family in LLAMAS),
    *((family, {"rotary_emb_base": 1e4}) for family in (*LLAMAS, "phi3")),
    *((family, {"rotary_pct": 1.0}) for family in (*LLAMAS, "phi3")),
    ("gpt_neox", {"partial_rotary_factor": 0.5}),
    ("gpt_neox", {"rope_theta": 5e5}),
    ("llama", {"rope_theta": None}),
    ("llama", {"rope_theta": True}),
    ("llama", {"return_dict": False}),
    ("llama", {"dtype": "garbage"}),
    ("llama", {"torch_dtype": "float8_e4m3fn"}),
    ("llama", {"head_dim": 64.0}),
    ("llama", {"vocab_size": 338.0}),
    ("llama", {"num_key_value_heads": None}),
    ("llama", {"rms_norm_eps": None}),
    ("llama", {"rms_norm_eps": 1}),
    ("llama", {"attention_dropout": "none"}),
    ("llama", {"attention_dropout": 2.0}),
    ("llama", {"output_attentions": True}),
    ("llama", {"use_cache": "yes"}),
    ("llama", {"pad_token_id": 400}),
    ("llama", {"pretraining_tp": 1.0}),
    ("llama", {"hidden_act": "gelu_fast"}),
    ("llama", {"hidden_act": "gelu_new"}),
    ("gpt_neox", {"hidden_act": "gelu_fast"}),
    # A chain of stored tensors; Gemma reads either key, DeepSeek-V3 has its own reader.
    ("deepseek_v3", {"hidden_act": "gelu_new"}),
    ("gemma", {"hidden_act": "gelu_new"}),
    ("gemma", {"hidden_activation": "gelu_new"}),
    ("gemma", {"hidden_act": [1]}),
    # Found by sampled edits: Transformers does not load these.
    ("llama", {"initializer_range": 2.0}),
    ("gpt_neox", {"hidden_act": [1, 2]}),
    ("qwen3", {"sliding_window": ""}),
    ("llama", {"hidden_size": 255}),
    # Found by a sweep over all keys: AutoConfig reads any mistral with this key as ministral, with another window.
    ("mistral", {"layer_types": None}),
    ("mistral", {"layer_types": ["full_attention"]}),
    # Transformers pads with a token that the vocabulary lacks, and does not load.
    ("phi3", {"pad_token_id": ...}),
    # Found by a sweep over all keys and 70 values of each: another default, and a value that is not loaded.
    ("deepseek_v3", {"num_key_value_heads": ...}),
    ("gpt_neox", {"classifier_dropout": None}),
    # Tensors of such a size, a type that is a list, and an infinite share stopped the checker.
    ("llama", {"rope_parameters": {"rope_type": [1, 2]}}),
    ("phi3", {"partial_rotary_factor": float("inf")}),
    ("llama", {"head_dim": 2**63}),
    ("llama", {"vocab_size": 2**63}),
]


@pytest.mark.parametrize("family, changes", REFUSED)
def test_keys_are_read_as_the_family_reads_them(family: str, changes: dict[str, Any]) -> None:
    read_shape(config_of(family))
    with pytest.raises(Undecided, match=next(iter(changes)).split("_")[0]):
        read_shape(config_of(family, **changes))


@pytest.mark.parametrize(
    "name, key, value",
    [
        ("generation_config.json", "max_new_tokens", -256),
        ("generation_config.json", "max_new_tokens", [256]),
        ("tokenizer_config.json", "model_max_length", "gelu_pytorch_tanh"),
    ],
)
def test_files_beside_the_tensors_that_do_not_load(
    name: str, key: str, value: Any, llama: Path, tmp_path: Path
) -> None:
    folder = copy(llama, tmp_path / "copy")
    path = folder / name
    about = json.loads(path.read_text()) if path.exists() else {"eos_token_id": 1}
    path.write_text(json.dumps(about | {key: value}))
    found = certificate(folder, "float32")
    assert found.verdict is Verdict.UNDECIDED and key in found.reason, found.reason


def test_rotary_positions_are_those_of_the_reference() -> None:
    """Accepted spellings give the theta and the dimensions that Transformers computes with."""
    transformers = pytest.importorskip("transformers")
    for family, changes in (
        ("llama", {"rope_theta": 5e5}),
        ("qwen3", {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
        ("phi3", {"partial_rotary_factor": 0.5}),
        ("gpt_neox", {"rotary_pct": 0.5, "rotary_emb_base": 5e5}),
        ("gpt_neox", {"rope_parameters": {"rope_theta": 7e4, "partial_rotary_factor": 0.5}}),
        ("gpt_neox", {}),
    ):
        config = config_of(family, **changes)
        ours = read_shape(json.loads(json.dumps(config))).rotary
        theirs = transformers.AutoConfig.for_model(**config).rope_parameters
        assert ours is not None and ours.theta == theirs["rope_theta"], family
        assert ours.dims == int(64 * theirs.get("partial_rotary_factor", 1.0)), family


@pytest.mark.parametrize("window", [None, 13, 40])
def test_a_start_out_of_the_window_has_no_weight(window: int | None) -> None:
    """A head that mixes all places it sees: from the window's end on it no longer sees BOS."""
    shape = replace(read_shape(config_of("mistral")), window=window)
    query, value = Bounds(np.ones(64), np.ones(64)), np.array([[-1.0], [3.0], [-1.0]])
    seen = Bounds(np.zeros(1), np.zeros(1), (SymbolPart((TOKEN, 0), np.arange(1), value, value),))
    found = blended(query, query, seen, np.ones((1, 1)), shape, Reach(64, frozenset({1})), storage("float32"))
    (part,) = found.parts
    score = np.array([np.cos(np.outer(np.arange(64), shape.rotary.frequencies)).sum(1)])[0] * 2 * shape.scale
    for t in range(64):
        weight = np.exp(score[: t + 1])
        share = 0.0 if window is not None and t >= window else weight[t] / weight.sum()
        assert part.lo[t, 0] <= 4 * share - 1 <= part.hi[t, 0], t


def constant_head(size: float, shared: float) -> Bounds:
    """A query or key with `size` in the 16 dimensions that GPT-NeoX rotates here, and `shared` in one other."""
    values = np.zeros(64)
    values[:16], values[-1] = size, shared
    return Bounds(values, values)


def test_a_stored_score_is_rounded_with_what_all_places_share() -> None:
    """7812 of every score come from a dimension that is not rotated: bfloat16 rounds the sum to multiples of 32."""
    shape = read_shape(config_of("gpt_neox"))
    small, large = (
        one_hot(constant_head(12.0, x), constant_head(12.0, x), shape, Reach(16), storage("bfloat16"))
        for x in (0.0, 250.0)
    )
    assert small is not None and small.gap > 4 and large is None
    exact = one_hot(constant_head(12.0, 250.0), constant_head(12.0, 250.0), shape, Reach(16), storage("float32"))
    assert exact is not None and small.gap < exact.gap


def test_large_scores_of_a_head_that_mixes_are_refused() -> None:
    """Their exponentials leave float64; a share between two clipped ones would be wrong."""
    shape, value = read_shape(config_of("gpt_neox")), np.array([[-1.0], [3.0], [-1.0]])
    seen = Bounds(np.zeros(1), np.zeros(1), (SymbolPart((TOKEN, 0), np.arange(1), value, value),))
    key, reach, one = constant_head(1.0, 100.0), Reach(64, frozenset({1})), np.ones((1, 1))
    with pytest.raises(Undecided, match="scores up to 12"):
        blended(key, key, seen, one, shape, reach, storage("float32"))
    assert blended(key, constant_head(1.0, 1.0), seen, one, shape, reach, storage("float32")).parts


def test_a_chain_of_stored_tensors_is_modelled_where_it_is_not_gated() -> None:
    assert read_shape(config_of("gpt_neox", hidden_act="gelu_new")).stepwise
    assert not read_shape(config_of("gpt_neox", hidden_act="gelu")).stepwise


@pytest.mark.parametrize("missing", ["tokenizer_config.json", "tokenizer_class", "padding_side", "bos_token"])
def test_what_a_loader_would_fill_in_is_not_overlooked(missing: str, llama: Path, tmp_path: Path) -> None:
    folder = copy(llama, tmp_path / "copy")
    path = folder / "tokenizer_config.json"
    if missing == path.name:
        path.unlink()
    else:
        path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != missing}))
    found = certificate(folder, "float32")
    assert found.verdict is Verdict.UNDECIDED and missing in found.reason


def test_long_reaches_need_little_memory(llama: Path, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    folder = edit_config(copy(llama, tmp_path / "copy"), max_position_embeddings=131072)
    documents = tokenize(folder, [TEXT])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = certify_checkpoint(folder, documents, ("float32",))
    assert found.reach == 131072 and found.verdict in (Verdict.PROVED, Verdict.UNDECIDED)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2 * 2**20


def test_masked_rows_of_float16_must_not_overflow(tmp_path: Path) -> None:
    """Padding adds -65504 to a score: below -16 at distance 0 the sum is infinite, and the row becomes NaN."""
    folder = write(tmp_path / "folder", "qwen2")

    def attracted(values: np.ndarray) -> np.ndarray:
        values[:64] = 0.0
        values[0] = -64.0
        return values

    def one(values: np.ndarray) -> np.ndarray:
        values[:64] = 0.0
        values[0] = 64.0
        return values

    edit_tensor(folder, LAYER + "self_attn.q_proj.bias", attracted)
    edit_tensor(folder, LAYER + "self_attn.k_proj.bias", one)
    found = certificate(folder, "float16")
    assert found.verdict is Verdict.UNDECIDED and "fully masked row" in found.reason, found.reason
