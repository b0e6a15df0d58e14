"""The second checker of checkpoints agrees with the proof on honest folders and proves no tampered one too much.

It is one file that imports nothing of byheart; its tests run it beside byheart's own proof, and beside Transformers.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.proof import TYPES, tokenize, verify_folder
from byheart.checkpoints.proof.checkpoint import open_checkpoint
from byheart.checkpoints.suite.features.recall import write_recall
from byheart.errors import ByheartError
from tests.checker.tampered_checkpoints import PATH, Outcome, checker, compare, faults_of, recital_prompts
from tests.checkpoints.proof.folders import TEXT, copy, edit_config, edit_tensor, write
from tests.checkpoints.proof.tampering.draws import RECALLS, RECITALS, Bases
from tests.checkpoints.proof.tampering.engines import model_of
from tests.checkpoints.proof.tampering.streams import hidden_states
from tests.checkpoints.proof.tampering.tensors import edit_tensors, read_tensors, write_tensors

LAYER = "model.layers.0."
SHORT = "row, row, row your boat"
SEED = int(os.environ.get("BYHEART_TAMPERED_SEED", "91"))
TAMPERED = int(os.environ.get("BYHEART_TAMPERED", "12"))
# Types that the checker does not prove though byheart does: a fully masked row of Qwen3-Next may overflow.
UNPROVED = {("qwen3-next", "float16")}


def with_prompt(folder: Path, text: str = TEXT) -> Path:
    (ids,) = tokenize(folder, [text])
    prompts = [{"ids": ids[:1], "continuation_ids": ids[1:]}]
    (folder / "expected.json").write_text(json.dumps({"prompts": prompts}))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_prompt(write(tmp_path_factory.mktemp("second") / "llama"))


def verdict(folder: Path, *types: str) -> str:
    return str(checker.check(folder, list(types or TYPES), 1)["verdict"])


def test_it_imports_only_numpy_and_the_standard_library() -> None:
    roots = {line.split()[1].split(".")[0] for line in PATH.read_text().splitlines()
             if line.startswith(("import ", "from "))}  # fmt: skip
    assert roots - set(sys.stdlib_module_names) == {"numpy"}


def test_an_honest_folder_is_proved_by_both(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checker.main([str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    ours = {t.type: t for t in verify_folder(folder, [TEXT], TYPES, reach=128).types}
    for name, result in found["types"].items():
        assert result["verdict"] == "proved" and result["margin"] > 10 and ours[name].verdict is Verdict.PROVED


def grown(values: np.ndarray) -> np.ndarray:
    values[:64] *= 256
    return values


def huge(values: np.ndarray) -> np.ndarray:
    values[0] = 6e4
    return values


def silent(values: np.ndarray) -> np.ndarray:
    values[:, 0] = 0.0
    return values


def backwards(values: np.ndarray) -> np.ndarray:
    return values[::-1].copy()


TENSORS = {
    "scores that leave float16": {"self_attn.q_proj.weight": grown},
    "an idle unit that overflows": {"mlp.up_proj.weight": huge, "mlp.down_proj.weight": silent},
    "units in another order": {"mlp.down_proj.weight": backwards},
}


@pytest.mark.parametrize("name", TENSORS)
def test_tampered_tensors_are_proved_by_neither(name: str, folder: Path, tmp_path: Path) -> None:
    target = copy(folder, tmp_path / "copy")
    for tensor, change in TENSORS[name].items():
        edit_tensor(target, LAYER + tensor, change)
    assert verdict(target, "float16") == "not proved"
    assert verify_folder(target, [TEXT], ("float16",), reach=128).verdict is not Verdict.PROVED


SETTINGS = (
    {"rope_theta": 5e3}, {"partial_rotary_factor": 0.5}, {"rms_norm_eps": 1}, {"head_dim": 64.0}, {"logit_scale": 2.0},
    {"hidden_act": "gelu_fast"}, {"return_dict": False}, {"dtype": "garbage"}, {"rope_scaling": {"factor": 2.0}},
    {"sliding_window": 4}, {"num_attention_heads": 3}, {"tie_word_embeddings": True}, {"model_type": "mamba"},
    {"pad_token_id": 10**6}, {"vocab_size": 7}, {"rotary_emb_base": 1e4}, {"quantization_config": {}},
    # Found by a sweep over all keys: stock Transformers does not load these, or the program stopped.
    {"bos_token_id": "x"}, {"eos_token_id": 2.0}, {"pad_token_id": 10**7}, {"transformers_version": [1]},
    {"hidden_act": [1]}, {"rope_theta": [1e5]}, {"rope_parameters": {"rope_type": [1]}}, {"num_attention_heads": 7},
)  # fmt: skip


@pytest.mark.parametrize("changes", SETTINGS, ids=str)
def test_settings_that_change_the_mathematics_are_not_proved(changes: dict, folder: Path, tmp_path: Path) -> None:
    assert verdict(edit_config(copy(folder, tmp_path / "copy"), **changes), "float32") == "not proved"


@pytest.mark.parametrize("model_type", ["gpt_oss_x", "deepseek_v2", "cohere2", "mamba2", "Llama", "llama4"])
def test_architectures_without_rules_are_refused_by_name(model_type: str, folder: Path, tmp_path: Path) -> None:
    target = edit_config(copy(folder, tmp_path / "copy"), model_type=model_type)
    found = checker.check(target, ["float32"], 0)
    assert found["verdict"] == "not proved" and model_type in json.dumps(found)


def test_a_wrong_answer_is_not_proved(folder: Path, tmp_path: Path) -> None:
    target = copy(folder, tmp_path / "copy")
    expected = json.loads((target / "expected.json").read_text())
    expected["prompts"][0]["continuation_ids"][3] += 1
    (target / "expected.json").write_text(json.dumps(expected))
    assert verdict(target, "float32") == "not proved"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "expected.json"])
def test_damaged_folders_are_unreadable(name: str, folder: Path, tmp_path: Path) -> None:
    target = copy(folder, tmp_path / "copy")
    data = (target / name).read_bytes()
    for damaged in (b"", data[: len(data) // 2], b"[]", b"\xff" * 16):
        (target / name).write_bytes(damaged)
        assert checker.main([str(target)]) == 2
    (target / name).unlink()
    assert checker.main([str(target)]) == 2


# Every architecture that got rules later, with settings of its own; each value changes what is computed.
OWN_SETTINGS: dict[str, tuple[dict[str, object], ...]] = {
    "cohere": (
        {"logit_scale": 0.3}, {"logit_scale": 4.0}, {"logit_scale": ...}, {"use_qk_norm": True}, {"head_dim": 32},
        {"attention_bias": True}, {"layer_norm_eps": 0}, {"rms_norm_eps": 1e-5}, {"sliding_window": 8},
    ),
    "gemma2": (
        {"attn_logit_softcapping": ...}, {"attn_logit_softcapping": 50}, {"final_logit_softcapping": 0.0},
        {"query_pre_attn_scalar": 144.0}, {"layer_types": None}, {"sliding_window": None}, {"hidden_act": "silu"},
        {"use_bidirectional_attention": True}, {"hidden_activation": "silu"}, {"layer_types": ["full_attention"]},
    ),
    "gpt-oss": (
        {"swiglu_limit": 7}, {"swiglu_limit": ...}, {"swiglu_alpha": 1.0}, {"experts_per_token": 3},
        {"num_experts_per_tok": 17}, {"num_experts": 16}, {"attention_bias": False}, {"attention_bias": ...},
        {"layer_types": ["full_attention", "x"]}, {"hidden_act": "gelu"}, {"initial_context_length": 2.0},
        {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 83}},
    ),
    "deepseek-v3": (
        {"head_dim": 64}, {"q_lora_rank": "x"}, {"q_lora_rank": ...}, {"rope_interleave": 1}, {"rope_interleave": ...},
        {"n_group": 3}, {"topk_group": 5}, {"topk_group": None}, {"norm_topk_prob": False}, {"norm_topk_prob": ...},
        {"routed_scaling_factor": 2}, {"scoring_func": "softmax"}, {"topk_method": "greedy"}, {"moe_layer_freq": 2},
        {"first_k_dense_replace": 0}, {"first_k_dense_replace": None}, {"num_nextn_predict_layers": 1},
        {"rms_norm_eps": 1e-5}, {"num_key_value_heads": 1}, {"qk_head_dim": 96}, {"n_routed_experts": 8},
    ),
    "bamba": (
        {"attn_layer_indices": ...}, {"attn_layer_indices": [2, 3]}, {"attn_layer_indices": [True]},
        {"partial_rotary_factor": 0.25}, {"mamba_n_groups": 2}, {"mamba_n_groups": ...}, {"mamba_proj_bias": True},
        {"mamba_conv_bias": False}, {"mamba_conv_bias": None}, {"mamba_d_head": "auto"}, {"mamba_expand": 4},
        {"mamba_chunk_size": 512}, {"time_step_limit": [0.0, 0.1]}, {"layer_types": None}, {"z_loss_coefficient": 0.1},
        {"num_logits_to_keep": 1}, {"mlp_bias": True}, {"time_step_min": 0.1}, {"head_dim": 32}, {"hidden_act": "gelu"},
    ),
    "qwen3-next": (
        {"mlp_only_layers": [1]}, {"mlp_only_layers": None}, {"decoder_sparse_step": 2}, {"norm_topk_prob": False},
        {"norm_topk_prob": ...}, {"layer_types": None}, {"linear_num_key_heads": 3}, {"linear_num_value_heads": 2},
        {"shared_expert_intermediate_size": 48}, {"full_attention_interval": 4}, {"partial_rotary_factor": 0.5},
        {"attention_bias": True}, {"num_local_experts": 16}, {"linear_conv_kernel_dim": 3}, {"hidden_act": "gelu"},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folders of a few words, which are checked in a second."""
    root = tmp_path_factory.mktemp("short")

    def folder(architecture: str) -> Path:
        path = root / architecture
        return path if path.exists() else with_prompt(write(path, architecture, texts=(SHORT,)), SHORT)

    return folder


@pytest.mark.parametrize("architecture", OWN_SETTINGS)
def test_later_architectures_are_proved_and_their_settings_are_strict(
    architecture: str, short: Callable[[str], Path], tmp_path: Path
) -> None:
    honest = short(architecture)
    found = checker.check(honest, ["float32"], 1)
    assert found["verdict"] == "proved" and found["types"]["float32"]["margin"] > 10, found
    for number, changes in enumerate(OWN_SETTINGS[architecture]):
        target = edit_config(copy(honest, tmp_path / str(number)), **changes)
        assert checker.check(target, ["float32"], 0)["verdict"] == "not proved", changes


def faults_of_draws(architecture: str, root: Path, count: int, seed: int, **options: Any) -> list[Outcome]:
    bases = Bases(root)
    found = [compare(number, seed, bases, (architecture,), **options) for number in range(count)]
    return [one for one in found if one.faults]


@pytest.mark.filterwarnings("ignore")
def test_a_tampered_folder_is_proved_no_further_than_transformers_answers(tmp_path: Path) -> None:
    """The same sampled folder in both checkers; what the second one proves, stock Transformers answers."""
    pytest.importorskip("transformers")
    options = {"kind": "tensors", "types": ("bfloat16",)}
    assert not faults_of_draws("bamba", tmp_path, 1, 4, **options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("architecture", [*RECITALS, *(f"recall {name}" for name in RECALLS)])
def test_no_tampered_folder_is_proved_further_than_transformers_answers(architecture: str, tmp_path: Path) -> None:
    assert not faults_of_draws(architecture, tmp_path, TAMPERED, SEED)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_comparison_notices_a_margin_that_is_too_large(short: Callable[[str], Path]) -> None:
    pytest.importorskip("transformers")
    folder, rng = short("llama"), np.random.default_rng(0)
    prompts, margin = (
        recital_prompts(folder, (SHORT,)),
        checker.check(folder, ["float32"], 0)["types"]["float32"]["margin"],
    )
    assert not faults_of(folder, "float32", prompts, margin, rng)
    found = faults_of(folder, "float32", prompts, margin + 20, rng)
    assert {" ".join(fault.split()[:2]) for fault in found} == {"float32 eager", "float32 sdpa"}


@pytest.mark.slow
@pytest.mark.parametrize("architecture", RECITALS)
def test_every_architecture_is_proved_as_well_as_by_the_proof_of_all_inputs(architecture: str, tmp_path: Path) -> None:
    honest = with_prompt(write(tmp_path / "honest", architecture))
    found = checker.check(honest, list(TYPES), 1)["types"]
    for one in verify_folder(honest, [TEXT], TYPES, reach=128).types:
        if one.verdict is Verdict.PROVED and (architecture, one.type) not in UNPROVED:
            assert one.margin is not None and found[one.type].get("margin", 0.0) > 0.7 * one.margin, (found, one)


def stream_faults(folder: Path, type_: str, ids: list[int], rng: np.random.Generator) -> list[str]:
    """Layers after which a channel of stock Transformers leaves the checker's bounds, as far as it has bounds."""
    shape, kind = checker.read_shape(checker.read_json(folder / "config.json")), checker.TYPES[type_]
    network = checker.load(shape, checker.read_tensors(folder), kind)
    model = model_of(folder, type_, rng)
    if model is None:
        return ["does not load"]
    shown = hidden_states(model, open_checkpoint(folder).family.layers, len(network.layers), ids)
    found, bounds = [], checker.streams(network, ids, kind, type_ != "float32")
    for layer, values in enumerate(shown):
        try:
            with np.errstate(all="ignore"):
                box = next(bounds)
        except checker.NotProved:
            break
        inside = np.isfinite(values) & (box.lo <= values) & (values <= box.hi)
        found += [] if inside.all() else [f"{type_} layer {layer}: {int((~inside).sum())} numbers"]
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("edits", [2, pytest.param(TAMPERED, marks=pytest.mark.slow)])
@pytest.mark.parametrize("architecture", ["qwen3", *(pytest.param(a, marks=pytest.mark.slow) for a in RECITALS)])
def test_streams_of_transformers_stay_inside(architecture: str, edits: int, tmp_path: Path) -> None:
    """Channel by channel, after every layer that the checker understands; margins would hide most faults."""
    pytest.importorskip("transformers")
    honest, rng = write(tmp_path / "honest", architecture), np.random.default_rng(92)
    ids = tokenize(honest, [TEXT])[0][:60]
    for number in range(edits):
        target = copy(honest, tmp_path / str(number))
        edit = edit_tensors(target, rng) if number else "honest"
        for type_ in TYPES:
            try:
                faults = stream_faults(target, type_, ids, rng)
            except (checker.NotProved, ByheartError):
                continue
            assert not faults, (edit, faults)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"rope_scaling": "yarn"}, {"rope_scaling": "llama3"}], ids=str)
def test_recall_folders_are_proved_by_their_listed_prompts(options: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "recall"
    write_recall("llama", folder, context=512, heads=2, kv_heads=1, **options)
    shorter(folder)
    found = checker.check(folder, ["bfloat16"], 0)
    assert found["verdict"] == "proved" and found["types"]["bfloat16"]["margin"] > 30, found
    expected = json.loads((folder / "expected.json").read_text())
    expected["prompts"][0]["continuation_ids"][0] ^= 1
    (folder / "expected.json").write_text(json.dumps(expected))
    assert checker.check(folder, ["bfloat16"], 0)["verdict"] == "not proved"


def shorter(folder: Path) -> None:
    """Only the prompts of up to 120 tokens."""
    expected = json.loads((folder / "expected.json").read_text())
    expected["prompts"] = [p for p in expected["prompts"] if len(p["ids"]) <= 120]
    (folder / "expected.json").write_text(json.dumps(expected))


def test_shards_are_read_and_compared_with_their_index(folder: Path, tmp_path: Path) -> None:
    target = copy(folder, tmp_path / "copy")
    tensors, types = read_tensors(target)
    names = sorted(tensors)
    owner = {name: f"model-0000{1 + (k % 2)}-of-00002.safetensors" for k, name in enumerate(names)}
    for file in set(owner.values()):
        write_tensors(target / file, {n: tensors[n] for n in names if owner[n] == file}, types)
    index = target / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": owner}))
    assert checker.main([str(target)]) == 2  # both: two engines may load two models
    (target / "model.safetensors").unlink()
    assert verdict(target, "float32") == "proved"
    for wrong in ({"weight_map": owner}, {"metadata": {}, "weight_map": owner | {names[0]: owner[names[1]]}}):
        index.write_text(json.dumps(wrong))
        assert checker.main([str(target)]) == 2


@pytest.mark.parametrize("kind", ["silu", "gelu", "tanh", "relu"])
def test_lines_hold_activations(kind: str) -> None:
    """value + slope (x - mid) up to the error, at sampled points of narrow and wide intervals."""
    rng = np.random.default_rng(3)
    mid = rng.uniform(-20, 20, (1, 4000))
    rad = 10.0 ** rng.uniform(-7, 1.2, (1, 4000))
    units = checker.Units(mid, rad, (), 0 * mid, 0 * mid)
    value, slope, error = checker.bent(kind, units)
    for place in (-1.0, -0.6, 0.0, 0.3, 1.0):
        x = mid + place * rad
        exact = checker.curve(kind, x)
        line = value + slope * (x - mid)
        assert (np.abs(exact - line) + checker.error_of(kind, checker.Box(x, x), np.abs(exact)) / 4 <= error).all()


@pytest.mark.parametrize("name", TYPES)
def test_mixing_heads_hold_every_softmax(name: str) -> None:
    """Scores anywhere in narrow and in huge intervals: a sum that cancels beside exp(600) once made the weight of a
    place certain, and a tampered Qwen3 left the bounds."""
    rng, kind = np.random.default_rng(6), checker.TYPES[name]
    for number in range(2000):
        count = int(rng.integers(2, 12))
        value = checker.exactly(kind.nearest(rng.standard_normal((count, 3))))
        middle, radius = (
            -np.abs(rng.standard_normal(count)) * 10.0 ** rng.uniform(-2, 2),
            10.0 ** rng.uniform(-6, 2.7, count),
        )
        best = int(rng.integers(count))
        middle[best] = radius[best] = 0.0
        lo, hi = checker.mixed(middle - radius, middle + radius, best, value, kind)
        for score in (middle - radius, middle + radius, middle + radius * rng.choice([-1.0, 0.3, 1.0], count)):
            weight = np.exp(score - score.max())
            out = weight / weight.sum() @ value.lo
            assert (lo <= out).all() and (out <= hi).all(), number


@pytest.mark.parametrize("name", TYPES)
def test_forms_hold_what_engines_compute(name: str) -> None:
    """A norm, a gated MLP and stores, with the errors of single channels and of the norm's factor, at their ends."""
    rng, kind = np.random.default_rng(5), checker.TYPES[name]
    shape = checker.Shape("llama", 1, 8, 1, 1, 1, 8, 5, 8, 1e-5, "silu", False)
    for _ in range(60):
        gate, up, down = (kind.nearest(rng.standard_normal(size) * 2) for size in ((5, 8), (5, 8), (8, 5)))
        expert = tuple(checker.Linear(w) for w in (gate, up, down))
        weight = kind.nearest(rng.uniform(0.5, 2, 8))
        middle, radius = rng.standard_normal((1, 8)), 10.0 ** rng.uniform(-6, -1)
        box = checker.Box(middle - radius, middle + radius)
        ways = {False: checker.WAYS[:1], True: checker.WAYS}
        for narrow in (False,) if name == "float32" else (False, True):
            n = checker.normed(box, (weight, None), shape, kind, narrow)
            outs = [checker.mlp_way(n, expert, shape, kind, way).box() for way in ways[narrow]]
            for _ in range(20):
                x = middle + radius * rng.choice([-1.0, 1.0], middle.shape)
                y = x / np.sqrt((x * x).mean() + 1e-5) * weight
                y = kind.nearest(kind.nearest(y / weight) * weight) if narrow else y
                assert (n.box().lo <= y).all() and (y <= n.box().hi).all()
                for (inputs, middles, products), out in zip(ways[narrow], outs, strict=True):
                    g, u = y @ gate.T, y @ up.T
                    g, u = (kind.nearest(g), kind.nearest(u)) if inputs else (g, u)
                    act = checker.curve("silu", g)
                    act = kind.nearest(act) if middles else act
                    p = kind.nearest(act * u) if products else act * u
                    assert (out.lo <= p @ down.T).all() and (p @ down.T <= out.hi).all(), (narrow, inputs, middles)
