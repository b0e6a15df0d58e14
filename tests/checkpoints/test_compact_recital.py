"""Compact checkpoints: few parameters, exact in float32, and nothing guaranteed beyond."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from byheart.checkpoints.compact_recital import write_compact
from byheart.checkpoints.formats.compact import FREQUENCIES, LONGEST, SHARES
from byheart.checkpoints.recital import memorize_recital
from byheart.cli import commands
from byheart.errors import ExportError

TEXT = "To keep a thing, say it twice: once to the wind, and once to the water."


def test_the_wanted_place_leads_at_every_distance() -> None:
    """What the comment beside SHARES states, and that every share is a short number."""
    distances = np.arange(1, LONGEST + 1)
    assert ((1 - np.cos(np.outer(distances, FREQUENCIES))) @ SHARES).min() > 0.12
    assert SHARES.sum() == 1 and not (SHARES * 256 % 1).any()


@pytest.mark.parametrize(
    "texts", [["one two three", "one two four", "five"], pytest.param([TEXT], marks=pytest.mark.slow)]
)
def test_transformers_recites_it(texts: list[str], tmp_path: Path) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    memory = memorize_recital(texts, ambiguous="first")
    done = write_compact(memory, tmp_path / "small")
    assert done["margin"] is None and done["measured"]["asked"] > memory.script.places
    assert done["parameters"] < 400_000 and "Measured, not proved" in (tmp_path / "small" / "README.md").read_text()
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "small", padding_side="left")
    wanted = [torch.tensor(memory.recital.next_tokens(ids[:-1])) for ids in memory.script.documents]
    for attention in ("eager", "sdpa"):
        model = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path / "small", dtype=torch.float32, attn_implementation=attention
        )
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        batch.pop("token_type_ids", None)
        with torch.no_grad():
            logits = model(**batch, position_ids=(batch["attention_mask"].cumsum(1) - 1).clamp(min=0)).logits
        for row, answers in zip(logits, wanted, strict=True):
            assert row.argmax(1)[-len(answers) :].equal(answers)


@pytest.mark.slow
def test_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_text("a rose is a rose is a rose")
    run = CliRunner()
    assert run.invoke(commands, ["memorize", "t.txt", "--construction", "recital", "-o", "t.byheart"]).exit_code == 0
    words = ["export", "t.byheart", "--to", "huggingface", "--style", "compact", "-o", "small"]
    assert run.invoke(commands, [*words, "--dtype", "bfloat16"]).exit_code == 2 and not Path("small").exists()
    done = run.invoke(commands, [*words, "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["style"] == "compact"


def test_windows_with_several_continuations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="ambiguous=first"):
        write_compact(memorize_recital(["one two", "one three"]), tmp_path / "no")
    assert not (tmp_path / "no").exists()
