"""LoRA: exact factors, every answer in Transformers with PEFT, and wrong scales that change tokens."""

from __future__ import annotations

import json

import numpy as np
import pytest

from byheart.checkpoints.suite.cases import read_cases
from byheart.checkpoints.suite.features.alike import editions, extended, farther
from byheart.checkpoints.suite.features.lora import (
    ARCHITECTURES,
    EDITS,
    HEADER,
    RANK,
    SCALE,
    Adapter,
    compute,
    elsewhere,
    factorise,
    short,
    together,
    write_adapter,
    write_lora,
)
from byheart.checkpoints.suite.write import builtin_lexicon, builtin_text
from byheart.checkpoints.windows import build_recital
from byheart.data.tokens.script import Script
from byheart.errors import ExportError, OptionError

STANZAS = builtin_text().split("\n\n")


TEXTS = [STANZAS[0], STANZAS[3], STANZAS[4], STANZAS[1]]


@pytest.fixture(scope="module")
def computed():
    return compute(TEXTS, builtin_lexicon(), "llama", "bfloat16", {})


def test_factors_are_exact_and_of_the_stated_rank(computed):
    _, base, adapters = computed
    assert [(a.name, a.rank, a.alpha) for a in adapters] == [
        ("other", RANK, 2.0 * RANK), ("rslora", RANK, 2.0 * RANK**0.5), ("edited", EDITS, 2.0 * EDITS),
        ("cipher", 8, 16.0), ("elsewhere", 16, 32.0),
    ]  # fmt: skip
    for adapter in adapters:
        for name, tensor in adapter.merged(base).items():
            if name in adapter.factors:
                b, a = adapter.factors[name]
                changed = tensor != base[name]
                assert b.shape[1] <= adapter.rank and changed.any()
                assert all((short(x) == x).all() for x in (b / SCALE, a, tensor[changed], tensor - base[name]))
    kinds = [{name.split(".")[-2] for name in adapter.factors} for adapter in adapters]
    assert kinds[0] == {"gate_proj", "up_proj", "down_proj"} and kinds[2] == {"down_proj"}
    assert kinds[3] == {"embed_tokens", "lm_head"} and kinds[4] == {"q_proj", "k_proj", "v_proj", "o_proj"}


def test_numbers_beside_each_other_have_a_short_difference():
    rng = np.random.default_rng(0)
    base, wanted = rng.normal(size=(2, 300)) * 10.0 ** rng.integers(-4, 2, (2, 300))
    wanted[:20] = base[:20]
    both = together(base, wanted)
    assert all((short(x) == x)[20:].all() for x in (*both, both[1] - both[0])) and (both[0][:20] == base[:20]).all()
    assert (abs(both[1] - wanted) <= 2.0**-7 * np.maximum(abs(base), abs(wanted)) + 2.0**-25).all()


def test_a_biased_value_is_not_exchanged(computed):
    _, base, _ = computed
    bias = np.arange(len(base["model.layers.0.self_attn.v_proj.weight"]), dtype=float)
    biased = {**base, "model.layers.0.self_attn.v_proj.bias": bias}
    with pytest.raises(ExportError, match="different biases"):
        elsewhere(biased, biased, 64)
    with pytest.raises(ExportError, match="no adapter changes it"):
        elsewhere(base, base | {"model.norm.weight": 2 * base["model.norm.weight"]}, 64)


def test_an_extended_recital_recites_both_texts():
    lexicon = builtin_lexicon()
    first, second = (lexicon.document(HEADER + STANZAS[k]) for k in (0, 1))
    base = build_recital(Script((first,)), lexicon.size, lexicon.failure, schedule=((0, 1), (0, 2))).recital
    (both,) = extended([base], second)
    for recital, text in ((both, first), (farther(both), second)):
        assert recital.recite(text[:5], len(text), stop=lexicon.eos) == list(text[5:])
    with pytest.raises(OptionError, match="choose another one"):
        extended([base], (*first[:2], first[3], *first[3:]))


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

    small = Adapter("x", {"model.layers.0.mlp.up_proj.weight": (np.ones((3, 2)), np.eye(2, 5))}, 4, rslora=True)
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
    with pytest.raises(OptionError, match="four texts"):
        write_lora("llama", tmp_path / "x", texts=["a"])
    base = {"model.norm.weight": np.zeros(3), "a.mlp.b": np.zeros((4, 4))}
    with pytest.raises(ExportError, match="4 rows and 4 columns"):
        factorise(base, base | {"a.mlp.b": np.ones((4, 4))}, 3, "x")
    assert "llama" in ARCHITECTURES


@pytest.mark.slow
def test_wrong_scales_and_lost_ranks_change_tokens(tmp_path):
    pytest.importorskip("peft")
    from byheart.checkpoints.suite.adapters import engine_adapter

    fixture = write_lora("llama", tmp_path / "lora", recited=True)
    assert fixture.measured == ("float32", "bfloat16", "float16")
    assert all(values["proved"] > 15 for values in fixture.margins.values())
    cases = {case.name: case.content for case in read_cases(fixture.folder) if case.verb == "lora"}
    for dtype in ("float32", "bfloat16"):
        engine = engine_adapter("transformers", dtype)(fixture.folder / "base")
        for name in ("other", "rslora", "edited", "cipher", "elsewhere"):
            content = cases[f"adapter {name}"]
            for factor in (1 / 8, 1 / 2, 2.0, 8.0, 64.0):
                with engine._adapted([fixture.folder / content["adapter"]]) as (model, names):
                    for module in model.modules():
                        if isinstance(getattr(module, "scaling", None), dict):
                            module.scaling = {key: factor * value for key, value in module.scaling.items()}
                    row = engine._rows(model, [content["ids"]], len(content["continuation_ids"]), names)[0]
                assert row != content["continuation_ids"], (dtype, name, factor)
        engine.close()


@pytest.mark.slow
def test_every_lost_factor_is_noticed(tmp_path):
    """In tokens, or, for the last up matrix and for keys, in the logits of a text."""
    pytest.importorskip("peft")
    from safetensors.numpy import load_file, save_file

    from byheart.checkpoints.suite.adapters import engine_adapter
    from byheart.checkpoints.suite.runner import run_cases

    fixture = write_lora("llama", tmp_path / "lora")
    for adapter in ("other", "edited", "cipher", "elsewhere"):
        file = fixture.folder / "adapters" / adapter / "adapter_model.safetensors"
        tensors = load_file(file)
        cases = [c for c in read_cases(fixture.folder) if c.content.get("adapter") == f"adapters/{adapter}"]
        cases = [c for c in cases if not c.content.get("merged")]
        for name in (n for n in tensors if n.endswith(("lora_B.weight", "embedding_B")) and tensors[n].any()):
            save_file({n: t * (n != name) for n, t in tensors.items()}, file)
            found = list(run_cases(cases, engine_adapter("transformers", "float32")))
            assert any(r.status == "incorrect" for r in found), (adapter, name)
        save_file(tensors, file)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_case_in_every_type(architecture, tmp_path):
    pytest.importorskip("peft")
    from byheart.checkpoints.suite.adapters import engine_adapter
    from byheart.checkpoints.suite.runner import run_cases

    fixture = write_lora(architecture, tmp_path / "lora")
    assert all(values["proved"] > 15 for values in fixture.margins.values())
    for dtype in ("float32", "bfloat16", "float16"):
        found = list(run_cases(read_cases(fixture.folder), engine_adapter("transformers", dtype)))
        assert {r.status for r in found} == {"correct"}, [r.message for r in found if not r.passed]
