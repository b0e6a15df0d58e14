"""The multi-token prediction layer: exact numbers of accepted tokens, and hidden states that are stale or missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from byheart.checkpoints.proof.tensors import open_tensors
from byheart.checkpoints.suite.cases import read_cases
from byheart.checkpoints.suite.features import mtp
from byheart.checkpoints.suite.features.mtp import add_layer, simulate, write_mtp
from byheart.checkpoints.suite.runner import run_case
from byheart.checkpoints.suite.write import fixture_memory
from byheart.errors import ExportError, MissingExtraError, OptionError


def test_steps_are_simulated_token_by_token() -> None:
    assert simulate([], 4, 5) == [0, 0, 0, 0]
    assert simulate(range(100), 4, 6) == [1, 1, 0]  # nothing is accepted beyond the last token
    assert simulate([3, 5], 4, 7) == [1, 1, 0, 0]


def test_other_architectures_texts_and_machines_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="deepseek-v3 has"):
        write_mtp("llama", tmp_path / "x")
    with pytest.raises(OptionError, match="at least 72"):
        write_mtp("deepseek-v3", tmp_path / "x", text="Too short a text.", tokens="characters")
    monkeypatch.setattr(mtp, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="huggingface"):
        write_mtp("deepseek-v3", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_the_layer_recognizes_each_place_by_both_inputs(tmp_path: Path) -> None:
    """In float64 from the weights: one unit at every known place, none elsewhere or for another token or state."""
    pytest.importorskip("torch")
    memory = fixture_memory(None, "bpe:400", "deepseek-v3")
    document = memory.script.documents[0]
    memory.to_huggingface(tmp_path / "m", "deepseek-v3", dtype="float32")
    stream = mtp._hidden(tmp_path / "m", document)
    hidden = mtp._normed(stream)
    places = add_layer(tmp_path / "m", document, "float32")
    config, file = (
        json.loads((tmp_path / "m" / "config.json").read_text()),
        open_tensors(tmp_path / "m/model.safetensors"),
    )
    layer = f"model.layers.{config['num_hidden_layers']}."
    said = mtp._normed(file.read("model.embed_tokens.weight").astype(float))[np.array(document)]
    read = {n: file.read(f"{layer}{n}.weight").astype(float) for n in ("eh_proj", "mlp.shared_experts.gate_proj")}

    def fired(t: int, word: int, state: int) -> list[int]:
        y = mtp._normed(read["eh_proj"] @ np.concatenate([said[word], hidden[state]]))
        gates = read["mlp.shared_experts.gate_proj"] @ y
        assert (np.abs(gates[: len(places)]) > 4).all()
        return [places[j] for j in np.flatnonzero(gates > 0)]

    assert config["num_nextn_predict_layers"] == 1 and len(places) == config["moe_intermediate_size"]
    for t in range(mtp.PROMPT, mtp.PROMPT + 70):
        assert fired(t, t + 1, t) == ([t] if t in places else [])
        assert fired(t, t + 1, t - 1) == [] == fired(t, t + 2, t)
    broken = [mtp.PROMPT] * 2
    with pytest.raises(ExportError, match="differ in 0 of"):
        tensors = {name: file.read(name).astype(float) for name in file.entries if layer not in name}
        mtp._layer(tensors, config, stream, document, broken)


@pytest.mark.slow
def test_accepted_tokens_in_transformers_and_stale_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modeling = pytest.importorskip("transformers.modeling_layers")
    from byheart.checkpoints.suite.adapters import engine_adapter

    fixture = write_mtp("deepseek-v3", tmp_path / "mtp")
    assert fixture.measured == ("float32", "bfloat16", "float16") and fixture.margins["bfloat16"]["proved"] > 20  # type: ignore[operator]
    (case,) = read_cases(fixture.folder)
    assert set(case.content["accepted"]) == {0, 1}
    usual = modeling.MtpModel.forward

    def stale(self: Any, input_ids: Any, last_hidden_states: Any, *args: Any, **more: Any) -> Any:
        return usual(self, input_ids, last_hidden_states.roll(1, 1) * 0.5, *args, **more)

    assert run_case(case, engine_adapter("transformers", "bfloat16")(case.model)).status == "correct"
    monkeypatch.setattr(
        modeling.MtpModel, "forward", lambda self, *a, **k: stale(self, **k) if not a else stale(self, *a, **k)
    )
    found = run_case(case, engine_adapter("transformers", "bfloat16")(case.model))
    assert found.status == "incorrect" and found.first is not None and "accepted" in found.first.where
