"""Probes of numerics: engines that compute otherwise, emulated in Transformers, return the other answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from byheart.checkpoints.suite.cases import read_cases
from byheart.checkpoints.suite.features.numerics import VOCABULARY, proved_margins, write_numerics
from byheart.checkpoints.suite.features.probes import HIDDEN, probe_model
from byheart.checkpoints.suite.runner import run_case, run_cases
from byheart.errors import OptionError

USUAL = {
    "sums of products in bfloat16": "float32 (indicative)", "mean square of norms in bfloat16": "float32",
    "key-value cache in bfloat16": "16 bits or more", "rotary positions in bfloat16": "cosines stored in bfloat16",
    "inputs of products in float32": "float32", "subnormal weights in float32": "kept",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("numerics") / "probes"
    fixture = write_numerics("llama", target)
    assert fixture.kind == "numerics" and (target / "test_numerics.py").is_file()
    assert all(fixture.margins[t]["proved"] > 10 for t in ("bfloat16", "float32"))  # type: ignore[operator]
    return target


class Emulated:
    """Transformers with one operation replaced."""

    def __init__(self, folder: Path, change: Callable[[Any], None] = lambda model: None) -> None:
        torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
        torch.set_num_threads(1)
        transformers.utils.logging.disable_progress_bar()
        self.dtype = folder.name
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, folder.name), attn_implementation="eager"
        ).eval()
        change(self.model)

    def generate(self, ids: list[int], n: int) -> list[int]:
        import torch

        with torch.inference_mode():
            return [int(self.model(torch.tensor([ids])).logits[0, -1].argmax())]


def notes(folder: Path, dtype: str, change: Callable[[Any], None] = lambda model: None) -> dict[str, str]:
    engine = Emulated(folder / dtype, change)
    results = [run_case(case, engine) for case in read_cases(folder / dtype)]
    assert all(result.status == "correct" for result in results), [r.message for r in results]
    return {result.case.name: result.reason for result in results}


def test_transformers_computes_as_is_known(folder: Path) -> None:
    found = notes(folder, "bfloat16") | notes(folder, "float32")
    assert {name: found[name] for name in USUAL} == USUAL


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, pytest.MonkeyPatch]]:
    module = pytest.importorskip("transformers.models.llama.modeling_llama")
    yield module, monkeypatch


def test_a_norm_in_bfloat16_is_identified(folder: Path, llama: Any) -> None:
    import torch

    def forward(self: Any, x: Any) -> Any:
        mean = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(mean + self.variance_epsilon))

    llama[1].setattr(llama[0].LlamaRMSNorm, "forward", forward)
    found = notes(folder, "bfloat16")
    assert found["mean square of norms in bfloat16"] == "bfloat16"
    assert found["rotary positions in bfloat16"] == "cosines stored in bfloat16"


def _float8(x: Any) -> Any:
    import torch

    return x.to(torch.float8_e4m3fn).to(x.dtype)


def _int8(x: Any) -> Any:
    import torch

    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-9) / 127
    return (torch.round(x / scale).clamp(-127, 127) * scale).to(x.dtype)


@pytest.mark.parametrize("change, name", [(_float8, "8-bit floats"), (_int8, "integers of 8 bits or fewer")])
def test_a_short_cache_is_identified(change: Any, name: str, folder: Path, llama: Any) -> None:
    usual = llama[0].eager_attention_forward

    def forward(module: Any, query: Any, key: Any, value: Any, *args: Any, **more: Any) -> Any:
        return usual(module, query, change(key), change(value), *args, **more)

    llama[1].setattr(llama[0], "eager_attention_forward", forward)
    found = notes(folder, "bfloat16")
    assert found["key-value cache in bfloat16"] == name and found["sums of products in bfloat16"].startswith("float32")


def test_a_rotation_in_float32_is_identified(folder: Path, llama: Any) -> None:
    import torch

    def cosines(self: Any, x: Any, position_ids: Any, *args: Any, **more: Any) -> Any:
        angle = position_ids[:, :, None].float() * self.inv_freq[None, None].float()
        both = torch.cat([angle, angle], -1)
        return both.cos(), both.sin()

    def turned(q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> Any:
        c, s = cos.float().unsqueeze(unsqueeze_dim), sin.float().unsqueeze(unsqueeze_dim)
        return tuple((x.float() * c + llama[0].rotate_half(x.float()) * s).to(x.dtype) for x in (q, k))

    llama[1].setattr(llama[0].LlamaRotaryEmbedding, "forward", cosines)
    llama[1].setattr(llama[0], "apply_rotary_pos_emb", turned)
    assert notes(folder, "bfloat16")["rotary positions in bfloat16"] == "cosines in float32"


def test_flushed_weights_are_identified(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush subnormal numbers")
    try:
        assert notes(folder, "float32")["subnormal weights in float32"] == "flushed to zero"
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("lanes", [1, 8, 64])
def test_narrow_sums_are_identified(lanes: int, folder: Path) -> None:
    import torch

    def narrow(model: Any) -> None:
        weight = model.lm_head.weight.detach()

        def forward(x: Any) -> Any:
            terms = (x[:, -1:, None, :] * weight).float()
            total = torch.zeros(*terms.shape[:-1], lanes)
            for i in range(0, HIDDEN, lanes):
                total = (total + terms[..., i : i + lanes]).to(torch.bfloat16).float()
            while total.shape[-1] > 1:
                total = (total[..., ::2] + total[..., 1::2]).to(torch.bfloat16).float()
            return total[..., 0]

        model.lm_head.forward = forward

    assert notes(folder, "bfloat16", narrow)["sums of products in bfloat16"] == "narrow (indicative)"


@pytest.mark.parametrize("half", [0x1000, 0])
def test_ten_bits_are_identified(half: int, folder: Path) -> None:
    """TF32, rounded or cut."""
    import torch

    def short(x: Any) -> Any:
        return ((x.contiguous().view(torch.int32) + half) & ~0x1FFF).view(torch.float32)

    def head(model: Any) -> None:
        weight = model.lm_head.weight.detach()
        model.lm_head.forward = lambda x: torch.nn.functional.linear(short(x), short(weight))

    assert notes(folder, "float32", head)["inputs of products in float32"] == "10 bits (TF32 and its kin)"


def test_other_tokens_types_and_architectures(folder: Path, tmp_path: Path) -> None:
    class Silent:
        def __init__(self, folder: Path) -> None:
            self.dtype = "bfloat16"

        def generate(self, ids: list[int], n: int) -> list[int]:
            return [2]

    results = list(run_cases(read_cases(folder), Silent))
    assert {r.status for r in results if r.case.content["dtype"] == "bfloat16"} == {"incorrect"}
    skipped = [r.reason for r in results if r.status == "skipped"]
    assert len(skipped) == 2 and all("the engine computes in bfloat16" in reason for reason in skipped)
    with pytest.raises(OptionError, match="numerics: llama without options"):
        write_numerics("qwen3", tmp_path / "x")


def test_streams_of_probes_have_the_mean_square_1() -> None:
    """So that norms leave them as they are, however an engine computes the mean square."""
    for dtype in ("bfloat16", "float32"):
        model = probe_model(dtype)
        embedding = model.tensors()["model.embed_tokens.weight"]
        assert len(embedding) <= VOCABULARY
        for probe in model.probes:
            squares = [(embedding[model.number(token)] ** 2).mean() for token in probe.tokens]
            if probe.name not in ("norm", "inputs"):
                assert squares == [1.0] * len(squares)
        assert np.abs(embedding).max() < 64 and callable(proved_margins)
