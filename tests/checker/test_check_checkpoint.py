"""The second checker of checkpoints agrees with the proof on honest folders and proves no tampered one too much.

It is one file that imports nothing of byheart; its tests run it beside byheart's own proof, and beside Transformers.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.proof import TYPES, tokenize, verify_folder
from byheart.checkpoints.proof.checkpoint import open_checkpoint
from byheart.checkpoints.suite.features.recall import write_recall
from byheart.errors import ByheartError
from tests.checkpoints.proof.folders import TEXT, copy, edit_config, edit_tensor, write
from tests.checkpoints.proof.tampering.draws import RECITALS, SHARES, edit_folder
from tests.checkpoints.proof.tampering.engines import Asked, faults_of_type, model_of
from tests.checkpoints.proof.tampering.streams import hidden_states
from tests.checkpoints.proof.tampering.tensors import edit_tensors, read_tensors, write_tensors

PATH = Path(__file__).parents[2] / "checker" / "check_checkpoint.py"
LAYER = "model.layers.0."
KNOWN = tuple(
    name
    for name in RECITALS
    if name not in ("qwen3", "gpt-oss", "deepseek-v3", "cohere", "qwen3-next", "bamba", "gemma2")
)
TAMPERED = int(os.environ.get("BYHEART_TAMPERED", "12"))


def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_checkpoint", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


checker = program()


def with_prompt(folder: Path) -> Path:
    (ids,) = tokenize(folder, [TEXT])
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


@pytest.mark.parametrize("model_type", ["gpt_oss", "deepseek_v3", "cohere", "qwen3_next", "bamba"])
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("architecture", ["qwen3", *KNOWN])
def test_every_architecture_and_its_tampered_copies(architecture: str, tmp_path: Path) -> None:
    """Honest: proved in all types, about as well as by the proof of all inputs. Tampered: never beyond Transformers."""
    honest = with_prompt(write(tmp_path / "honest", architecture))
    found = checker.check(honest, list(TYPES), 1)["types"]
    (ids,) = tokenize(honest, [TEXT])
    rng = np.random.default_rng([91, RECITALS.index(architecture)])
    ours = {t.type: t.margin for t in verify_folder(honest, [TEXT], TYPES, reach=128).types}
    assert all(found[name]["margin"] > 0.9 * (ours[name] or 0.0) for name in TYPES), (found, ours)
    for number in range(TAMPERED):
        target = copy(honest, tmp_path / str(number))
        edit = edit_folder(target, rng, SHARES)
        try:
            found = checker.check(target, list(TYPES), 0)["types"]
        except checker.Unreadable:
            continue
        for name, result in found.items():
            if result["verdict"] == "proved":
                least = np.full(len(ids) - 1, result["margin"])
                asked = Asked([ids[:-1]], [np.array(ids[1:])], [least])
                assert not faults_of_type(target, name, asked, rng), (number, edit)


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
@pytest.mark.parametrize("architecture", ["qwen3", *(pytest.param(a, marks=pytest.mark.slow) for a in KNOWN)])
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
