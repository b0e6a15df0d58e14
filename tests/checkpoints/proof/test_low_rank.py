"""Adapters beside their base: every way of storing stays inside the bounds, and unknown settings are refused."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.formats.folder import safetensors_bytes
from byheart.checkpoints.proof import certify_checkpoint
from byheart.checkpoints.proof.bounds import Bounds, SymbolPart
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.decoder import Linear
from byheart.checkpoints.proof.low_rank import Lattice, LowRank, adapted, open_adapter, step_of, tensor_names
from byheart.checkpoints.proof.storage import storage
from byheart.checkpoints.proof.tensors import open_tensors
from byheart.checkpoints.suite.features.lora import compute, write_adapter
from byheart.checkpoints.suite.write import builtin_lexicon, builtin_text
from byheart.files import write_atomically

Array = Any
TYPES = ("bfloat16", "float16")


def float32_sum(weight: Array, x: Array, rng: np.random.Generator) -> Array:
    """weight x in float32, the products in a random order."""
    order = rng.permutation(len(x))
    total = np.zeros(len(weight), np.float32)
    for k in order:
        total = total + weight[:, k].astype(np.float32) * np.float32(x[k])
    return total.astype(np.float64)


def ways(parts: LowRank, x: Array, rng: np.random.Generator) -> list[Array]:
    """y in every engine: each part stored or not, the scale before or after B."""
    found = []
    for stored in itertools.product((False, True), repeat=4):
        w, z, d, s = (parts.store.nearest if one else lambda v: v for one in stored)
        first, inner = w(float32_sum(parts.base, x, rng)), z(float32_sum(parts.a, x, rng))
        for before in (False, True):
            if before:
                added = d(float32_sum(parts.b, s(scaled(inner, parts.scale)), rng))
            else:
                added = s(scaled(d(float32_sum(parts.b, inner, rng)), parts.scale))
            found.append((first.astype(np.float32) + added.astype(np.float32)).astype(np.float64))
    return found


def scaled(x: Array, scale: float) -> Array:
    return (np.float32(scale) * x.astype(np.float32)).astype(np.float64)


def sample(rng: np.random.Generator, name: str, *, patterns: bool) -> LowRank:
    """Whole patterns and selections, as an adapter of byheart has them; or any numbers of the type."""
    store = storage(name)
    if patterns:
        base = 2.0 ** rng.integers(-2, 3) * rng.choice([-1, 1], (5, 24))
        a, b = np.eye(24)[rng.permutation(24)[:4]], 2.0 ** rng.integers(-2, 3) * rng.choice([-1, 0, 1], (5, 4))
        scale = float(2.0 ** rng.integers(-2, 3))
    else:
        base, a, b = (store.nearest(rng.normal(size=shape)) for shape in ((5, 24), (4, 24), (5, 4)))
        scale = float(rng.choice([0.3, 1.5, 2.0]))
    return LowRank("m", base, b, a, scale, store)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("patterns", [True, False])
def test_every_engine_stays_inside(name: str, patterns: bool) -> None:
    rng, exact_rows, worst = np.random.default_rng(3), 0, 0.0
    for _ in range(40):
        parts = sample(rng, name, patterns=patterns)
        x = rng.choice([-0.5, 0.5], 24) if patterns else parts.store.nearest(rng.normal(size=24))
        true = parts.base @ x + parts.scale * (parts.b @ (parts.a @ x))
        lattice = Lattice(step_of(x), x, np.full(24, np.inf))
        bound, exact = parts.error(np.abs(x), np.abs(parts.base @ x), lattice)
        lo, hi = parts.enclose(x[None], x[None])
        exact_rows += int(exact.sum())
        for y in ways(parts, x, rng):
            assert (np.abs(y - true) <= bound).all() and (np.abs(y - true)[exact] == 0).all()
            worst = max(worst, float((np.abs(y - true)[~exact] / bound[~exact].clip(2.0**-20)).max(initial=0.0)))
            assert (lo[0] <= y).all() and (y <= hi[0]).all()
    assert (exact_rows > 100) is patterns
    assert patterns or worst > 0.1, "the bound is not far beyond what engines do"


def test_a_field_goes_through_the_parts() -> None:
    """Every symbol's value of every engine lies in the field after the map, merged or not."""
    rng = np.random.default_rng(5)
    for name in TYPES:
        for patterns in (True, False):
            parts = sample(rng, name, patterns=patterns)
            rows = rng.choice([-0.5, 0.5], (6, 24)) if patterns else parts.store.nearest(rng.normal(size=(6, 24)))
            field = Bounds(np.zeros(24), np.zeros(24), (SymbolPart((0, 0), np.arange(24), rows, rows),))
            out = field.matmul(Linear("m", parts.merged, None, parts), parts.store, share=0.0)
            (part,) = out.parts
            for symbol, x in enumerate(rows):
                low, high = (end + np.zeros(5) for end in (out.lo, out.hi))
                low[part.channels] += part.lo[symbol]
                high[part.channels] += part.hi[symbol]
                for y in (*ways(parts, x, rng), float32_sum(parts.merged, x, rng)):
                    for shown in (y, parts.store.nearest(y)):
                        assert (low <= shown).all() and (shown <= high).all()


def test_a_part_that_nothing_reads_is_finite_where_it_is_kept() -> None:
    """A x overflows in float32, and B is 0: infinity times 0 is NaN."""
    x, zero = np.full(6, 4.0), np.zeros((3, 2))
    for size, fits in ((1e36, True), (3e38, False)):
        parts = LowRank("m", np.ones((3, 6)), zero, np.full((2, 6), size), 2.0, storage("float32"))
        if fits:
            parts.error(x, stored=False)
            continue
        with pytest.raises(Undecided, match="a part of an adapter"):
            parts.error(x, stored=False)


MODULES = {"model.layers.0.mlp.up_proj": False, "model.embed_tokens": True, "lm_head": False}
GOOD = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["up_proj"], "task_type": "CAUSAL_LM"}


def write(folder: Path, config: dict[str, Any], **shapes: tuple[int, int]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    names = dict(zip("AB", tensor_names("model.layers.0.mlp.up_proj"), strict=True))
    sizes = {"A": (2, 6), "B": (3, 2)} | shapes
    tensors = {names.get(key, key): np.full(shape, 0.5) for key, shape in sizes.items()}
    write_atomically(folder / "adapter_model.safetensors", safetensors_bytes(tensors, "float32", {}))
    return folder


def test_an_adapter_is_read(tmp_path: Path) -> None:
    found = open_adapter(write(tmp_path / "a", GOOD), MODULES)
    assert found.scale == 2.0 and found.rank == 2
    parts = found.parts("model.layers.0.mlp.up_proj", np.ones((3, 6)), storage("bfloat16"))
    assert (
        parts is not None
        and (parts.merged == 2.0).all()
        and found.parts("lm_head", np.ones((3, 6)), storage("float16")) is None
    )
    stable = open_adapter(write(tmp_path / "b", {**GOOD, "use_rslora": True}), MODULES)
    assert stable.scale == 4 / 2**0.5
    with pytest.raises(Undecided, match="rounds the merged matrix"):
        stable.parts("model.layers.0.mlp.up_proj", np.ones((3, 6)), storage("bfloat16"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"use_dora": True}, "use_dora"), ({"bias": "all"}, "bias"), ({"rank_pattern": {"up_proj": 1}}, "rank_pattern"),
        ({"alpha_pattern": {"up_proj": 1}}, "alpha_pattern"), ({"alpha_pattern": None}, "alpha_pattern"),
        ({"rank_pattern": None}, "rank_pattern"), ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out"), ({"peft_type": "IA3"}, "peft_type"), ({"r": 0}, "r = 0"),
        ({"r": True}, "r = True"), ({"r": 2.0}, "r = 2.0"), ({"lora_alpha": 0}, "lora_alpha"),
        ({"lora_alpha": "4"}, "lora_alpha"), ({"lora_alpha": float("nan")}, "lora_alpha"),
        ({"lora_alpha": True}, "lora_alpha"), ({"use_rslora": 1}, "use_rslora"),
        ({"target_modules": "up_proj"}, "target"),
        ({"target_modules": ["up_proj", "down_proj"]}, "down_proj"), ({"target_modules": []}, "target"),
        ({"layers_to_transform": [0]}, "layers_to_transform"), ({"secret": 1}, "secret"),
        ({"lora_dropout": 1.5}, "lora_dropout"), ({"layer_replication": [[0, 1]]}, "layer_replication"),
        ({"target_modules": ["up_proj", "lm_head"]}, "lm_head"),
    ],
)  # fmt: skip
def test_settings_that_change_the_mathematics_are_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(Undecided, match=said):
        found = open_adapter(write(tmp_path / "a", GOOD | change), MODULES)
        for module in MODULES:
            found.parts(module, np.ones((3, 6)), storage("float32"))


def test_tensors_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    for shapes in ({"A": (3, 6)}, {"B": (3, 1)}, {"other": (1, 1)}):
        with pytest.raises(Undecided, match=r"shape|belongs to no"):
            found = open_adapter(write(tmp_path / "a", GOOD, **shapes), MODULES)  # type: ignore[arg-type]
            found.parts("model.layers.0.mlp.up_proj", np.ones((3, 6)), storage("float32"))
    folder = write(tmp_path / "a", GOOD)
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(Undecided, match="has no adapter_model"):
        open_adapter(folder, MODULES)
    parts = LowRank("m", np.ones((3, 6)), np.full((3, 2), 0.3), np.ones((2, 6)), 2.0, storage("bfloat16"))
    assert [x.name for x in adapted((Linear("m", parts.merged, None, parts),))] == ["m"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """A base and its adapters."""
    from dataclasses import replace

    from byheart.checkpoints.formats.folder import folder_files, write_files

    stanzas = builtin_text().split("\n\n")
    texts = [stanzas[0], stanzas[3], stanzas[4], stanzas[1]]
    request, base, adapters = compute(texts, builtin_lexicon(), "llama", "bfloat16", {})
    folder = tmp_path_factory.mktemp("lora")
    write_files(folder / "base", folder_files(request, replace(request.checkpoint(), tensors=base), None))
    for adapter in adapters:
        write_adapter(folder / adapter.name, adapter)
    write_adapter(folder / "zero", adapters[0], zero=True)
    return folder, [request.script.documents[0], *adapters]


def test_adapters_are_proved_merged_or_not(made: tuple[Path, list[Any]]) -> None:
    folder, (document, *adapters) = made
    for adapter in adapters:
        types = ("float32", "bfloat16") if adapter.name in ("other", "elsewhere") else ("bfloat16",)
        found = certify_checkpoint(folder / "base", [adapter.document], types, adapter=folder / adapter.name)
        assert found.verdict is Verdict.PROVED and "merged or not" in found.reason, (adapter.name, found.reason)
        assert found.margin is not None and 15 < found.margin < 24
    zero = certify_checkpoint(folder / "base", [document], ("bfloat16",), adapter=folder / "zero")
    assert zero.verdict is Verdict.PROVED


@pytest.mark.parametrize("fault", ["alpha", "rslora", "lost", "exchanged", "zero", "missing", "refitted"])
def test_a_wrong_adapter_is_not_proved(fault: str, made: tuple[Path, list[Any]], tmp_path: Path) -> None:
    folder, (_, adapter, *_) = made
    shutil.copytree(folder / "other", tmp_path / "a")
    config = json.loads((tmp_path / "a" / "adapter_config.json").read_text())
    file = open_tensors(tmp_path / "a" / "adapter_model.safetensors")
    tensors = {name: file.read(name).astype(float) for name in file.entries}
    first = "base_model.model.model.layers.0.mlp.{}_proj.lora_{}.weight"
    if fault == "alpha":
        config["lora_alpha"] /= 2
    elif fault == "rslora":
        config["use_rslora"] = True
    elif fault == "lost":
        tensors[first.format("gate", "B")][:, -9] = 0
    elif fault == "exchanged":
        for letter in "AB":
            a, b = (first.format(name, letter) for name in ("gate", "up"))
            tensors[a], tensors[b] = tensors[b], tensors[a]
    elif fault == "zero":
        tensors = {name: t * (not name.endswith("lora_B.weight")) for name, t in tensors.items()}
    elif fault == "missing":
        del tensors[first.format("down", "B")]
    else:  # numbers that bfloat16 rounds
        tensors[first.format("gate", "B")] *= 1 + 2.0**-12
    (tmp_path / "a" / "adapter_config.json").write_text(json.dumps(config))
    write_atomically(tmp_path / "a" / "adapter_model.safetensors", safetensors_bytes(tensors, "float32", {}))
    found = certify_checkpoint(folder / "base", [adapter.document], ("bfloat16",), adapter=tmp_path / "a")
    assert found.verdict is not Verdict.PROVED
