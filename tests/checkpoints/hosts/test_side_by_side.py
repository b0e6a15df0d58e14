"""Cohere's blocks: what an engine confuses changes tokens, in stock Transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from byheart.checkpoints.hosts.description import Design, SpecialTokens
from byheart.checkpoints.hosts.gated import Demands, build_gated
from byheart.checkpoints.hosts.side_by_side import SHIFT, UNITS, parallel_layers, shifted
from byheart.checkpoints.recital import RecitalMemory, memorize_recital
from byheart.errors import OptionError

TEXT = "She sells sea shells by the sea shore; the shells she sells are sea shells, so sure."


@pytest.fixture(scope="module")
def memory() -> RecitalMemory:
    return memorize_recital(TEXT, form="windows")


@pytest.fixture(scope="module")
def folder(memory: RecitalMemory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cohere") / "folder"
    memory.to_huggingface(path, "cohere", reach=256)
    return path


def wrong(folder: Path, memory: RecitalMemory) -> int:
    """How many tokens of the text stock Transformers gets wrong."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    document = torch.tensor([memory.script.documents[0]])
    with torch.no_grad():
        return int((model(document[:, :-1]).logits.argmax(-1) != document[:, 1:]).sum())


def without_mean(self: Any, x: Any) -> Any:
    wide = x.float()
    root = (wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon).rsqrt()
    return (self.weight.float() * (wide * root)).to(x.dtype)


def attention_first(self: Any, hidden_states: Any, **options: Any) -> Any:
    after = hidden_states + self.self_attn(hidden_states=self.input_layernorm(hidden_states), **options)[0]
    return after + self.mlp(self.input_layernorm(after))


def mlp_first(self: Any, hidden_states: Any, **options: Any) -> Any:
    after = hidden_states + self.mlp(self.input_layernorm(hidden_states))
    return after + self.self_attn(hidden_states=self.input_layernorm(after), **options)[0]


@pytest.mark.parametrize(
    ("part", "method", "change"),
    [
        ("CohereLayerNorm", "forward", without_mean),
        ("CohereDecoderLayer", "forward", attention_first),
    ],
)
def test_confused_blocks_spoil_tokens(
    part: str, method: str, change: Callable[..., Any], folder: Path, memory: RecitalMemory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    module = pytest.importorskip("transformers.models.cohere.modeling_cohere")
    assert wrong(folder, memory) == 0
    monkeypatch.setattr(getattr(module, part), method, change)
    assert wrong(folder, memory) > 20


def test_attention_after_the_mlp_reads_the_same_tokens(
    folder: Path, memory: RecitalMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attention after the MLP reads nothing that an MLP of its layer writes."""
    module = pytest.importorskip("transformers.models.cohere.modeling_cohere")
    monkeypatch.setattr(module.CohereDecoderLayer, "forward", mlp_first)
    assert wrong(folder, memory) == 0


def test_layers_come_in_pairs_and_channels_have_a_mean(memory: RecitalMemory, tmp_path: Path) -> None:
    lexicon = memory.lexicon
    tokens = SpecialTokens(lexicon.bos, lexicon.eos, lexicon.pad, lexicon.failure)
    demands = Demands(parallel=True, balanced=True, units=UNITS)
    decoder = build_gated(memory.recital, tokens, Design(reach=256, tied=True), demands)
    layers = parallel_layers(decoder)
    assert len(layers) == 2 * len(decoder.stages)
    assert np.allclose(shifted(decoder).mean(1), SHIFT * decoder.design.kappa, atol=1e-12)
    assert [bool(len(layer.mlp.rows)) for layer in layers] == [False, True] * len(decoder.stages)
    with pytest.raises(OptionError, match="--layers 3: a table takes two layers"):
        memory.to_huggingface(tmp_path / "odd", "cohere", layers=3)
