"""Fixtures in every quantized format: what decodes exactly, what is proved, and what stock loaders return."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.engines import read_queries, recite
from byheart.checkpoints.formats.quantized import _base, awq, format_of, formats, fp8, gptq, int8, mxfp4, nf4, rewrite
from byheart.checkpoints.proof import certify_checkpoint
from byheart.checkpoints.proof.checkpoint import open_checkpoint
from byheart.checkpoints.suite.write import fixture_memory, write_fixture
from byheart.errors import OptionError

TEXT = "the cat sat on the mat. a dog ran to the cat, and the mat was gone by noon"
LOADERS = {
    "awq": "gptqmodel", "fp8": "compressed_tensors", "fp8-block": "accelerate", "gptq": "gptqmodel",
    "int8": "compressed_tensors", "mxfp4": "accelerate", "nf4": "bitsandbytes",
}  # fmt: skip
HOSTS = {name: "gpt-oss" if name == "mxfp4" else "llama" for name in LOADERS}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, rewrite.Quantized]]:
    """A folder of every format; hosts and flavours are written once."""
    root = tmp_path_factory.mktemp("quantized")
    memory, found = fixture_memory(TEXT, "characters"), {}
    for name, architecture in HOSTS.items():
        wanted = format_of(name)
        flavour = wanted.flavour_of(architecture)
        plain, size = root / f"{architecture}-{flavour}-{wanted.multiple == 128}", {"units": 256, "hidden": 384}
        if not plain.exists():
            memory.to_huggingface(plain, architecture, flavour=flavour, **(size if wanted.multiple == 128 else {}))
        shutil.copytree(plain, root / name)
        found[name] = root / name, rewrite.quantize_folder(root / name, wanted, flavour)
    return found


def test_every_format_is_registered() -> None:
    assert set(formats()) == set(LOADERS)
    assert all(module.__file__ for module in (awq, fp8, gptq, int8, mxfp4, nf4, rewrite, _base))


@pytest.mark.parametrize("name", LOADERS)
def test_decoded_weights_are_proved(folders: dict[str, tuple[Path, rewrite.Quantized]], name: str) -> None:
    folder, _ = folders[name]
    found = certify_checkpoint(folder, read_queries(folder).documents, ["float16"])
    assert found.verdict is Verdict.PROVED
    assert found.types[0].margin is not None
    assert found.types[0].margin > 20
    assert "weights are decoded (not covered: quantized activations" in found.reason


def test_a_fixture_is_proved_in_three_types_and_described(tmp_path: Path) -> None:
    fixture = write_fixture("llama", tmp_path / "int8", text=TEXT, tokens="characters", quantize="int8")
    assert min(margins["proved"] for margins in fixture.margins.values()) > 20
    assert "Quantized as int8: 1" in (tmp_path / "int8" / "README.md").read_text()
    assert fixture.to_json()["quantized"]["format"] == "int8"


@pytest.mark.parametrize("name", ["int8", "mxfp4", "nf4"])
def test_grids_that_hold_the_weights_are_exact(folders: dict[str, tuple[Path, rewrite.Quantized]], name: str) -> None:
    quantized = folders[name][1]
    assert len(quantized.exact) >= 4
    assert all(error < 1e-15 for error in quantized.changed.values())


def test_four_bits_hold_all_projections_of_attention(folders: dict[str, tuple[Path, rewrite.Quantized]]) -> None:
    for name in ("gptq", "awq"):
        exact = set(folders[name][1].exact)
        assert {f"model.layers.0.self_attn.{part}_proj.weight" for part in "qkv"} <= exact


def test_awq_and_gptq_decode_to_the_same_weights(folders: dict[str, tuple[Path, rewrite.Quantized]]) -> None:
    one, two = (open_checkpoint(folders[name][0]).files for name in ("gptq", "awq"))
    assert set(one.entries) == set(two.entries)
    assert all(np.array_equal(one.read(name), two.read(name)) for name in one.entries)


def test_one_changed_code_is_not_proved(folders: dict[str, tuple[Path, rewrite.Quantized]], tmp_path: Path) -> None:
    folder, _ = folders["gptq"]
    target = tmp_path / "changed"
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    files = open_checkpoint(folder).files
    _, _, start, stop = files.files.entries["model.layers.0.mlp.gate_proj.qweight"]  # type: ignore[attr-defined]
    data = bytearray((target / "model.safetensors").read_bytes())
    data[start:stop] = bytes(stop - start)
    (target / "model.safetensors").write_bytes(data)
    documents = read_queries(folder).documents
    assert certify_checkpoint(target, documents, ["float32"]).verdict is not Verdict.PROVED


# GPTQModel leaves temporary folders to the garbage collector.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LOADERS)
def test_stock_loaders_recite_them(folders: dict[str, tuple[Path, rewrite.Quantized]], name: str) -> None:
    pytest.importorskip("transformers")
    if find_spec(LOADERS[name]) is None:
        pytest.skip(f"Transformers loads {name} with {LOADERS[name]}, which is not installed")
    for dtype in ("float32", "bfloat16", "float16"):
        recitation = recite(folders[name][0], "transformers", dtype=dtype, limit=4, brief=True)
        assert recitation.passed, (dtype, [check for check in recitation.checks if not check.passed])


def test_wishes_that_a_format_cannot_fulfil_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="unknown quantized format 'q9'"):
        write_fixture("llama", tmp_path / "a", text=TEXT, tokens="characters", quantize="q9")
    with pytest.raises(OptionError, match="gpt2 is not supported"):
        write_fixture("gpt2", tmp_path / "b", text=TEXT, tokens="characters", quantize="gptq")
    with pytest.raises(OptionError, match="omit --shards"):
        write_fixture("llama", tmp_path / "c", text=TEXT, tokens="characters", quantize="int8", shards=2)
    assert not list(tmp_path.iterdir())


def test_sizes_are_rounded_up_to_whole_blocks() -> None:
    config = {"hidden_size": 100, "intermediate_size": 128}
    assert rewrite.shape_for(format_of("fp8-block"), config, {}) == {"hidden": 128}
    with pytest.raises(OptionError, match="multiples of 128; hidden is 100"):
        rewrite.shape_for(format_of("fp8-block"), config, {"hidden": 100})
