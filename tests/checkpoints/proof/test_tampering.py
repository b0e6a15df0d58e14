"""Tampered folders of all architectures in stock Transformers: no proved margin is above a measured one.

`tampering` samples the edits; a local run may draw thousands (`python -m tests.checkpoints.proof.tampering 1000`).
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from byheart.checkpoints.proof import tokenize
from byheart.checkpoints.proof.check import _interpret
from byheart.checkpoints.proof.checkpoint import open_checkpoint
from tests.checkpoints.proof.folders import TEXT, copy, edit_config
from tests.checkpoints.proof.tampering import engines, streams
from tests.checkpoints.proof.tampering.draws import RECALLS, RECITALS, Bases, draw
from tests.checkpoints.proof.tampering.engines import recital_faults

DRAWS = int(os.environ.get("BYHEART_TAMPERED", "9"))
SEED = int(os.environ.get("BYHEART_TAMPERED_SEED", "7"))


@pytest.mark.filterwarnings("ignore")
def test_a_margin_that_is_proved_too_large_is_a_fault(
    llama: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The harness itself: every engine, row and place of an honest folder holds, and one nat more does not."""
    pytest.importorskip("transformers")
    folder, rng = copy(llama, tmp_path / "copy"), np.random.default_rng(0)
    assert recital_faults(folder, (TEXT,), rng, ("float32", "bfloat16")) == (2, [])
    honest = engines._margins
    monkeypatch.setattr(engines, "_margins", lambda *args: honest(*args) + 1.0)
    _, faults = recital_faults(folder, (TEXT,), rng, ("bfloat16",))
    assert {" ".join(fault.split()[:2]) for fault in faults} == {"bfloat16 eager", "bfloat16 sdpa"}
    edit_config(folder, pad_token_id=9)
    assert recital_faults(folder, (TEXT,), rng) == (0, [])


def test_unknown_tokens_are_asked_where_windows_are_known(llama: Path) -> None:
    """Rows of the harness: the document, the document after other tokens, other tokens alone."""
    documents = tokenize(llama, [TEXT])
    asked = engines.asked_of(llama, documents, "float32", frozenset({1}), np.random.default_rng(1))
    span = _interpret(open_checkpoint(llama), "float32", 160, "type", frozenset({1}), False).span
    counts = [int(np.isfinite(least).sum()) for least in asked.least]
    assert counts[:3] == [len(TEXT) + 1, len(TEXT) + 1 - span, len(TEXT) + 1 - span] and counts[3] > 50
    assert asked.rows[1][0] == 1 != asked.rows[2][0]


@pytest.mark.filterwarnings("ignore")
def test_the_stream_after_every_layer_is_compared(llama: Path, tmp_path: Path) -> None:
    """Every channel of an honest folder holds, and bounds that are a little narrower do not."""
    pytest.importorskip("transformers")
    rows = [tokenize(llama, [TEXT])[0][:-1], np.random.default_rng(3).integers(3, 20, 60).tolist()]
    pattern, model = "model.layers.{}", engines.load(llama, "bfloat16", "eager")
    programs = streams.streams_of(open_checkpoint(llama), "bfloat16", 160)
    assert len(programs) > 1 and not streams.stream_faults(programs, pattern, model, "bfloat16", rows)
    narrow = [replace(p, stream=p.stream.widen(-(2.0**-6) * p.stream.largest())) for p in programs]
    assert streams.stream_faults(narrow, pattern, model, "bfloat16", rows)
    folder = Bases(tmp_path).recall("llama", {"key_length": 1, "head_dim": 64})
    _, places = streams.recall_streams(folder, "bfloat16")
    model, rows = engines.load(folder, "bfloat16", "eager"), [[1, *range(60, 90), *range(60, 90)]]
    assert len(places) == 4 and not streams.place_faults(places, pattern, model, "bfloat16", rows)
    every = replace(places[0].every, lo=places[0].every.hi * 1.001, hi=places[0].every.hi * 1.001)
    assert streams.place_faults([replace(places[0], every=every)], pattern, model, "bfloat16", rows)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("architecture", [*RECITALS, *(f"recall {name}" for name in RECALLS)])
def test_no_tampered_folder_is_proved_beyond_what_it_does(architecture: str, tmp_path: Path) -> None:
    bases = Bases(tmp_path)
    found = [draw(number, SEED, bases, (architecture,)) for number in range(DRAWS)]
    assert not [one for one in found if one.faults]
