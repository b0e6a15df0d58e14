"""LoRA: exact factors, every answer in Transformers with PEFT, and wrong scales that change tokens."""

from __future__ import annotations

import json

import numpy as np
import pytest

from byheart.checkpoints.suite.cases import read_cases
from byheart.checkpoints.suite.features.lora import (
    ARCHITECTURES,
    EDITS,
    RANK,
    SCALE,
    Adapter,
    _compute,
    editions,
    factorise,
    write_adapter,
    write_lora,
)
from byheart.checkpoints.suite.write import builtin_lexicon, builtin_text
from byheart.checkpoints.windows import build_recital
from byheart.data.tokens.script import Script
from byheart.errors import ExportError, OptionError

STANZAS = builtin_text().split("\n\n")


@pytest.fixture(scope="module")
def computed():
    return _compute([STANZAS[0], STANZAS[3], STANZAS[4]], builtin_lexicon(), "llama", "bfloat16", {})


def test_factors_are_exact_and_of_the_stated_rank(computed):
    base, adapters, requests = computed
    assert [(a.name, a.rank, a.alpha) for a in adapters] == [
        ("other", RANK, 2.0 * RANK), ("rslora", RANK, 2.0 * RANK**0.5), ("edited", EDITS, 2.0 * EDITS),
    ]  # fmt: skip
    for adapter, request in zip(adapters, requests[1:], strict=True):
        merged = request.checkpoint().tensors
        for name, tensor in base.items():
            b, a = adapter.factors.get(name, (np.zeros((1, 1)), np.zeros((1, 1))))
            assert (tensor + (b @ a if name in adapter.factors else 0) == merged[name]).all()
            assert (np.float16(b / SCALE) == b / SCALE).all() and (np.float16(a) == a).all()
    kinds = {name.split(".")[-2] for name in adapters[0].factors}
    assert kinds == {"gate_proj", "up_proj", "down_proj"}
    assert {name.split(".")[-2] for name in adapters[2].factors} == {"down_proj"}


def test_editions_differ_in_eight_tokens_and_eight_outputs():
    lexicon = builtin_lexicon()
    document = lexicon.document("Ask; " + STANZAS[0])
    recital = build_recital(Script((document,)), lexicon.size, lexicon.failure, schedule=((0, 1), (0, 2))).recital
    base, edited, text = editions(recital, document, EDITS)
    assert sum(a != b for a, b in zip(document, text, strict=True)) == EDITS
    for one, wanted in ((base, document), (edited, text)):
        assert one.recite(wanted[:3], len(wanted), stop=lexicon.eos) == list(wanted[3:])
    assert (base.tables[0].outputs != edited.tables[0].outputs).sum() == EDITS
    assert (base.tables[1].windows == edited.tables[1].windows).all()


def test_zero_ranks_come_first_and_zero_b_is_zero(computed, tmp_path):
    from safetensors.numpy import load_file

    small = Adapter("x", {"model.layers.0.mlp.up_proj.weight": (np.ones((3, 2)), np.eye(2, 5))}, 4, True)
    write_adapter(tmp_path / "a", small)
    write_adapter(tmp_path / "z", small, zero=True)
    config = json.loads((tmp_path / "a" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["use_rslora"]) == (4, 4.0, True)
    b = load_file(tmp_path / "a" / "adapter_model.safetensors")[
        "base_model.model.model.layers.0.mlp.up_proj.lora_B.weight"
    ]
    assert b.tolist() == [[0, 0, 0.5, 0.5]] * 3
    zero = load_file(tmp_path / "z" / "adapter_model.safetensors")
    assert not zero["base_model.model.model.layers.0.mlp.up_proj.lora_B.weight"].any()


def test_what_cannot_be_adapted_is_refused(tmp_path):
    with pytest.raises(OptionError, match="no adapters for gpt2"):
        write_lora("gpt2", tmp_path / "x")
    with pytest.raises(OptionError, match="three texts"):
        write_lora("llama", tmp_path / "x", texts=["a"])
    base = {"model.norm.weight": np.zeros(3), "a.mlp.b": np.zeros((4, 4))}
    with pytest.raises(ExportError, match="differs"):
        factorise(base, base | {"model.norm.weight": np.ones(3)[None]}, 4, "x")
    with pytest.raises(ExportError, match="4 rows and 4 columns"):
        factorise(base, base | {"a.mlp.b": np.ones((4, 4))}, 3, "x")
    assert "llama" in ARCHITECTURES


@pytest.mark.slow
def test_wrong_scales_and_lost_ranks_change_tokens(tmp_path):
    pytest.importorskip("peft")
    from byheart.checkpoints.suite.adapters import engine_adapter

    fixture = write_lora("llama", tmp_path / "lora")
    assert fixture.measured == ("float32", "bfloat16", "float16")
    assert all(values["proved"] > 20 for values in fixture.margins.values())
    cases = {case.name: case.content for case in read_cases(fixture.folder)}
    for dtype in ("float32", "bfloat16"):
        engine = engine_adapter("transformers", dtype)(fixture.folder / "base")
        for name in ("other", "rslora", "edited"):
            content = cases[f"adapter {name}"]
            for factor in (1 / 8, 1 / 2, 2.0, 8.0, 64.0):
                with engine._adapted([fixture.folder / content["adapter"]]) as (model, names):
                    for module in model.modules():
                        if isinstance(getattr(module, "scaling", None), dict):
                            module.scaling = {key: factor * value for key, value in module.scaling.items()}
                    row = engine._rows(model, [content["ids"]], len(content["continuation_ids"]), names)[0]
                assert row != content["continuation_ids"], (dtype, name, factor)
        engine.close()
