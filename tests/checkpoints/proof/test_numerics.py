"""Proofs of probes: every answer leads under its choice, and only there; measured margins are larger."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from byheart.checkpoints.formats.folder import safetensors_bytes
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.numerics import Choices, _integers, _short_floats, _softmax, prove_probe
from byheart.checkpoints.suite.features.probes import Probe, ProbeModel, probe_model

PROVED = [(t, p.name) for t in ("bfloat16", "float32") for p in probe_model(t).probes if p.field is not None]


def written(model: ProbeModel, folder: Path, **changed: np.ndarray) -> Path:
    tensors = model.tensors() | {f"model.layers.0.{name.replace('__', '.')}.weight": v for name, v in changed.items()}
    (folder / "config.json").write_text(json.dumps(model.config(len(tensors["lm_head.weight"]))))
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors, model.dtype, {"format": "pt"}))
    return folder


def leads(folder: Path, model: ProbeModel, probe: Probe) -> list[list[float]]:
    """(choice, answer): what is proved for every answer under every choice."""
    ids = [1, *map(model.number, probe.tokens)]

    def proved(token: str, way: str) -> float:
        choices = replace(Choices(), **{str(probe.field): (way,)})
        return prove_probe(folder, ids, model.number(token), choices, model.dtype)

    return [[min(proved(token, way) for way in ways) for token in probe.answers] for ways in probe.choices]


@pytest.mark.parametrize("dtype, name", PROVED)
def test_each_choice_has_its_answer(dtype: str, name: str, tmp_path: Path) -> None:
    model = probe_model(dtype)
    probe = next(p for p in model.probes if p.name == name)
    found = leads(written(model, tmp_path), model, probe)
    assert all(row[k] > 10 for k, row in enumerate(found))
    assert all(lead < 0 for k, row in enumerate(found) for j, lead in enumerate(row) if j != k)


def test_an_open_choice_proves_no_answer(tmp_path: Path) -> None:
    model = probe_model("bfloat16")
    folder, probe = written(model, tmp_path), next(p for p in model.probes if p.name == "rotation")
    ids = [1, *map(model.number, probe.tokens)]
    assert all(prove_probe(folder, ids, model.number(token), Choices(), "bfloat16") < 0 for token in probe.answers)


def test_changed_weights_are_not_proved(tmp_path: Path) -> None:
    """A value, a query and an output that another probe does not read."""
    model = probe_model("bfloat16")
    probe = next(p for p in model.probes if p.name == "cache")
    for name, factor in (("self_attn__v_proj", 0.1), ("self_attn__q_proj", 0.0), ("self_attn__o_proj", 0.0)):
        tensor = model.tensors()[f"model.layers.0.{name.replace('__', '.')}.weight"] * factor
        found = leads(written(model, tmp_path, **{name: tensor}), model, probe)
        assert min(row[k] for k, row in enumerate(found)) < 10


def test_other_folders_are_undecided(tmp_path: Path) -> None:
    model = probe_model("float32")
    folder = written(model, tmp_path)
    with pytest.raises(Undecided, match="too long"):
        prove_probe(folder, [1] * 65, 5, Choices(), "float32")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-3}))
    assert prove_probe(folder, [1, model.number("inputs")], model.number("inputs: full"), Choices(), "float32") > 0
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    with pytest.raises(Undecided, match=r"a Llama of one layer|something else"):
        prove_probe(folder, [1, 4], 5, Choices(), "float32")


@pytest.mark.parametrize("seed", range(3))
def test_caches_and_weights_enclose_what_engines_store(seed: int) -> None:
    torch, rng = pytest.importorskip("torch"), np.random.default_rng(seed)
    values = rng.normal(size=(5, 2, 16)) * 10.0 ** rng.integers(-3, 3, (5, 2, 16))
    for bits, least, kind in ((3, -6, torch.float8_e4m3fn), (2, -14, torch.float8_e5m2)):
        found = torch.tensor(values).to(kind).double().numpy()
        low, high = _short_floats((values, values), bits, least)
        assert (low == found).all() and (high == found).all()
    scale = np.abs(values).max(-1, keepdims=True) / 127
    low, high = _integers((values, values), 127)
    stored = np.rint(values / scale) * scale
    assert (low <= stored + 1e-12).all() and (stored <= high + 1e-12).all()
    scores = rng.normal(size=9) * 5
    off = rng.uniform(0, 1, 9)
    down, up = _softmax(scores - off, scores + off)
    for _ in range(50):
        moved = np.exp(scores + rng.uniform(-off, off))
        assert (down <= moved / moved.sum()).all() and (moved / moved.sum() <= up).all()
