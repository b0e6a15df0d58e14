"""The recall fixture: its files, its oracle, its cases in Transformers, and the commands that use it."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from byheart.checkpoints.engines._base import find
from byheart.checkpoints.hosts.recall.architectures import RecallOptions, recall_checkpoint
from byheart.checkpoints.suite.cases import read_cases
from byheart.checkpoints.suite.features.recall import oracle_source, recall_files, recall_lexicon, write_recall
from byheart.checkpoints.suite.features.recall_prompts import absent, needle
from byheart.checkpoints.windows.recall import RecallFunction
from byheart.cli import commands
from byheart.errors import DataError, OptionError


@pytest.mark.parametrize(
    "function", [RecallFunction(), RecallFunction(1), RecallFunction(window=32), RecallFunction(1, 16)]
)
def test_the_oracle_is_the_function(function: RecallFunction, tmp_path: Path) -> None:
    (tmp_path / "oracle.py").write_text(oracle_source(function))
    answer = runpy.run_path(str(tmp_path / "oracle.py"))["answer"]
    rng = np.random.default_rng(0)
    for symbols in (3, 9, 200):
        ids = [1 if t % 8 == 0 else int(rng.integers(0, symbols)) for t in range(150)]
        assert [answer(ids[: t + 1]) for t in range(150)] == function.answers(ids)
    assert "import" not in oracle_source(function)


def test_files_describe_the_function_and_the_tokenizer_is_one_character_per_token() -> None:
    checkpoint = recall_checkpoint("llama", RecallOptions(context=512, key_length=1, head_dim=64))
    lexicon = recall_lexicon(checkpoint.function)
    files = recall_files(checkpoint, lexicon, "bfloat16")
    assert {"config.json", "oracle.py", "recall.json", "tokenizer.json", "model.safetensors"} <= set(files)
    described = json.loads(files["recall.json"])
    assert described["context"] == 512 and described["function"]["key_length"] == 1
    text = lexicon.decode(range(4, 256))
    assert len(text) == 252 and lexicon.encode(text) == list(range(4, 256))


def test_other_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no option flavour"):
        write_recall("llama", tmp_path / "x", flavour="plateau")
    assert not (tmp_path / "x").exists()


def test_a_fixture_is_proved_measured_and_verified(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    target = tmp_path / "recall"
    fixture = write_recall("llama", target, context=256, key_length=1, head_dim=64, heads=2, kv_heads=1)
    assert fixture.measured == ("float32", "bfloat16", "float16")
    for values in fixture.margins.values():
        assert values["proved"] is not None and values["measured"] is not None
        assert 20 < values["proved"] <= values["measured"]
    cases = read_cases(target)
    assert {case.verb for case in cases} == {"generate", "logits", "batch"} and (target / "test_recall.py").is_file()
    result = CliRunner().invoke(commands, ["verify", str(target), "--json"], standalone_mode=False)
    shown = json.loads(result.stdout)
    assert result.return_value == 0 and shown["verdict"] == "proved" and shown["margins"]["bfloat16"] > 20


def test_verify_without_data_needs_a_recall_folder(tmp_path: Path) -> None:
    error = CliRunner().invoke(commands, ["verify", str(tmp_path)], standalone_mode=False).exception
    assert isinstance(error, DataError) and "DATA" in str(error)


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["F16", "Q8_0"])
def test_llama_cpp_finds_needles(cache: str, tmp_path: Path) -> None:
    """GGUF with Llama 3.1's factors as `rope_freqs`, and an 8-bit cache."""
    pytest.importorskip("xllamacpp", reason="llama.cpp (xllamacpp) is not installed")
    checkpoint, function = recall_checkpoint("llama"), RecallFunction()
    for name, data in recall_files(checkpoint, recall_lexicon(function), "bfloat16").items():
        (tmp_path / name).write_bytes(data)
    prompts = [needle(function, 1000, depth, seed) for seed, depth in enumerate((1, 14, 126, 254, 980))]
    with find("llama.cpp").open(tmp_path, "F16", {"flash": "on", "cache": cache}) as session:
        for ids in [*prompts, absent(function, 1000, 9)]:
            said = session.generate([ids], 4)[0]
            assert list(said.ids) == function.continuation(ids, 4) and min(said.margins) > 20
