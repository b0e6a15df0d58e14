"""Gemma 2: scores under a cap, and what its proof and its mutants see of caps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.engines.queries import read_queries
from byheart.checkpoints.formats.onnx_decoder import write_onnx_decoder
from byheart.checkpoints.formats.stock import read_decoder
from byheart.checkpoints.hosts.capped import LONGEST, capped_wave
from byheart.checkpoints.hosts.looking_back import used_frequencies
from byheart.checkpoints.hosts.rotary import frequencies
from byheart.checkpoints.proof import certify_checkpoint
from byheart.checkpoints.proof.caps import capped
from byheart.checkpoints.proof.storage import storage
from byheart.checkpoints.recital import memorize_recital
from byheart.checkpoints.suite.write import fixture_memory
from byheart.checkpoints.windows.far import CAPPED
from byheart.errors import ExportError, OptionError
from tests.checkpoints.recital_folders import SHORT, recital_folder

torch = pytest.importorskip("torch")
CAP = 50.0


@pytest.mark.parametrize("offset", range(LONGEST + 1))
def test_ladders_lead_after_the_cap(offset: int) -> None:
    wave = capped_wave(64, 1e4, offset, 512, CAP)
    scores = CAP * np.tanh(wave.scores(np.arange(512.0), frequencies(64, 1e4)) / wave.gap / CAP)
    for wanted in range(offset + 1):  # at the start of a sequence each distance leads the shorter ones
        others = np.r_[scores[:wanted], scores[offset + 1 :]] if wanted == offset else scores[:wanted]
        assert scores[wanted] - others.max(initial=-np.inf) > 19
    assert scores[0] > -11.1


def test_the_place_after_a_window_would_win() -> None:
    wave = capped_wave(64, 1e4, 1, 2048, CAP, window=128, trap=True)
    scores = wave.scores(np.arange(129.0), frequencies(64, 1e4))
    assert scores.argmax() == 128 and scores[:128].argmax() == 1


def test_far_places_do_not_fit() -> None:
    """As near places do, whose scores rise from the own place on."""
    with pytest.raises(ExportError, match="3 places back"):
        capped_wave(64, 1e4, 3, 128, CAP)
    with pytest.raises(ExportError, match="no scores of a head"):
        capped_wave(64, 1e4, 2, 128, 30.0)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_a_capped_interval_holds_every_way_of_storing(name: str) -> None:
    rng, store = np.random.default_rng(3), storage(name)
    x = rng.uniform(-200, 200, 2000)
    lo, hi = capped((x, x), CAP, store)
    for number in range(8):
        stored = [store.nearest if number >> bit & 1 else (lambda y: y) for bit in range(3)]
        found = stored[2](CAP * stored[1](np.tanh(stored[0](x / CAP)) * (1 - 2.0**-20)))
        assert ((lo <= found) & (found <= hi)).all()


def test_all_types_are_proved() -> None:
    folder = recital_folder("gemma2")
    found = {one.type: one for one in certify_checkpoint(folder, read_queries(folder).documents).types}
    assert all(one.verdict is Verdict.PROVED and one.margin > 20 for one in found.values())
    # Of every head, after errors of 16 units of the size of its scores.
    assert found["bfloat16"].gap > 10


@pytest.mark.parametrize("group", (0, 1))
@pytest.mark.parametrize("offset", (CAPPED.easy[0], 157, CAPPED.easy[-1]))
def test_far_places_fit_under_the_cap_with_room_for_the_errors_of_bfloat16(offset: int, group: int) -> None:
    used = used_frequencies(64, group)
    wave = capped_wave(64, CAPPED.base, offset, 2048, CAP, used=used, far=True)
    scores, error = wave.scores(np.arange(2048.0), frequencies(64, CAPPED.base)) / wave.gap, 8 / 256 / wave.gap
    high, low = CAP * np.tanh((scores + error) / CAP), CAP * np.tanh((scores - error) / CAP)
    assert low[offset] - np.delete(high, offset).max() > 8
    # Where there is nothing so far back, the own place leads, and stays far from overflowing in float16.
    assert low[0] - high[1:offset].max() > 8
    assert scores[0] > -15


def test_what_gemma2_does_not_have_is_refused(tmp_path: Path) -> None:
    memory = fixture_memory(SHORT, "characters", "gemma2")
    with pytest.raises(OptionError, match="gelu_pytorch_tanh"):
        memory.request("gemma2", activation="silu").checkpoint()
    with pytest.raises(OptionError, match="quantized"):
        memory.request("gemma2", flavour="plateau").checkpoint()
    with pytest.raises(ExportError, match="places back"):
        memorize_recital(SHORT, form="windows").request("gemma2").checkpoint()
    pytest.importorskip("onnx")
    with pytest.raises(ExportError, match="no caps"):
        write_onnx_decoder(recital_folder("gemma2"), tmp_path / "model.onnx")


def test_the_machine_caps_as_transformers_does() -> None:
    transformers = pytest.importorskip("transformers")
    from byheart.checkpoints.suite.machine import Machine

    folder = recital_folder("gemma2")
    ids, decoder = list(read_queries(folder).documents[0])[:140], read_decoder(folder)
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        wanted = model(torch.tensor([ids])).logits[0]
        assert (Machine(decoder).run(ids) - wanted).abs().max() < 0.002
        for field in ("score_cap", "logit_cap"):  # listeners score where the cap bends; logits are around 0
            other = replace(decoder, shape=replace(decoder.shape, **{field: None}))
            assert (Machine(other).run(ids) - wanted).abs().max() > 0.02
