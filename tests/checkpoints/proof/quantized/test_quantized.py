"""The decoders: what each layout means, by hand and by the loaders' own code, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.formats.folder import safetensors_file
from byheart.checkpoints.formats.quantized import format_of
from byheart.checkpoints.proof import certify_checkpoint
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.quantized import awq, bitsandbytes, compressed, finegrained, gptq, mxfp4
from byheart.checkpoints.proof.quantized._base import SCHEMES, decoded
from byheart.checkpoints.proof.tensors import open_tensors
from tests.checkpoints.proof.folders import edit_config, write

NAME = "model.layers.0.mlp.up_proj.weight"
MODULE = NAME.removesuffix(".weight")
KINDS = {"F8_E4M3": "u1", "U8": "u1", "I8": "i1", "I32": "<i4", "I64": "<i8", "F16": "<f2", "F32": "<f4"}


def stored(folder: Path, parts: dict[str, tuple[str, Any]], settings: dict[str, Any]) -> Callable[[str], Any]:
    """The reader of a file with these parts."""
    folder.mkdir(exist_ok=True)
    content = {}
    for name, (kind, values) in parts.items():
        array = np.asarray(values)
        content[name] = (kind, array.shape, array.astype(KINDS[kind]).tobytes())
    path = folder / "model.safetensors"
    path.write_bytes(safetensors_file(content, {}))
    return decoded(open_tensors(path, packed=True), settings).read


def plain_settings(name: str) -> dict[str, Any]:
    return format_of(name).settings([])


def test_every_format_has_a_decoder() -> None:
    assert set(SCHEMES) == {"awq", "bitsandbytes", "compressed-tensors", "fp8", "gptq", "mxfp4"}
    assert all(module.read in SCHEMES.values() for module in (awq, bitsandbytes, compressed, finegrained, gptq, mxfp4))


def test_float8_is_the_type_of_torch() -> None:
    torch = pytest.importorskip("torch")
    codes = np.arange(256, dtype=np.uint8)
    known = torch.from_numpy(codes.copy()).view(torch.float8_e4m3fn).double().numpy()
    assert np.array_equal(finegrained.float8(codes), known, equal_nan=True)


def test_blocks_of_float8_have_their_own_scales(tmp_path: Path) -> None:
    codes = np.full((256, 128), 0x38)  # 1.0
    parts = {NAME: ("F8_E4M3", codes), f"{NAME}_scale_inv": ("F32", [[0.5], [4.0]])}
    values = stored(tmp_path, parts, plain_settings("fp8-block"))(NAME)
    assert (values[:128] == 0.5).all()
    assert (values[128:] == 4.0).all()


def test_blocks_that_are_not_whole_are_refused(tmp_path: Path) -> None:
    parts = {NAME: ("F8_E4M3", np.zeros((192, 128))), f"{NAME}_scale_inv": ("F32", [[1.0], [1.0]])}
    with pytest.raises(Undecided, match="blocks that are not whole"):
        stored(tmp_path, parts, plain_settings("fp8-block"))


def test_packed_integers_are_offset_by_128(tmp_path: Path) -> None:
    word = int(np.array([128 - 3, 128, 128 + 127, 128 - 128], dtype=np.uint8).view("<i4")[0])
    parts = {
        f"{NAME}_packed": ("I32", [[word], [word]]),
        f"{NAME}_scale": ("F32", [[1.0], [0.25]]),
        f"{NAME}_shape": ("I64", [2, 4]),
    }
    values = stored(tmp_path, parts, plain_settings("int8"))(NAME)
    assert values.tolist() == [[-3, 0, 127, -128], [-0.75, 0, 31.75, -32]]


def test_gptq_packs_inputs_and_stores_one_less_than_the_zero(tmp_path: Path) -> None:
    codes = np.arange(32)[:, None] % 16 * np.ones((1, 8), dtype=int)  # (inputs, rows)
    words = np.array([[sum(int(codes[8 * k + j, r]) << 4 * j for j in range(8)) for r in range(8)] for k in range(4)])
    parts = {
        f"{MODULE}.qweight": ("I32", to32(words)),
        f"{MODULE}.qzeros": ("I32", to32(np.array([[0x77777777]]))),
        f"{MODULE}.scales": ("F16", np.full((1, 8), 0.5)),
        f"{MODULE}.g_idx": ("I32", np.zeros(32)),
    }
    values = stored(tmp_path, parts, plain_settings("gptq"))(NAME)
    assert np.array_equal(values, ((codes - 8) * 0.5).T)
    parts[f"{MODULE}.qzeros"] = ("I32", to32(np.array([[0x88888888]])))
    with pytest.raises(Undecided, match="zeros other than 8"):
        stored(tmp_path, parts, plain_settings("gptq"))(NAME)
    parts[f"{MODULE}.qzeros"] = ("I32", to32(np.array([[0x77777777]])))
    parts[f"{MODULE}.g_idx"] = ("I32", np.arange(32) % 2)
    with pytest.raises(Undecided, match="g_idx"):
        stored(tmp_path, parts, plain_settings("gptq"))(NAME)


def to32(words: Any) -> Any:
    return np.asarray(words).astype(np.int64).astype(np.uint32).view(np.int32)


def test_awq_interleaves_columns_and_has_zero_points(tmp_path: Path) -> None:
    # The lowest bits of a word hold column 0, then 2, 4, 6, 1, 3, 5, 7: AutoAWQ's order.
    word = sum(column << 4 * place for place, column in enumerate((0, 2, 4, 6, 1, 3, 5, 7)))
    parts = {
        f"{MODULE}.qweight": ("I32", to32(np.full((32, 1), word))),
        f"{MODULE}.qzeros": ("I32", to32(np.array([[0x33333333]]))),
        f"{MODULE}.scales": ("F16", np.full((1, 8), 2.0)),
    }
    values = stored(tmp_path, parts, plain_settings("awq"))(NAME)
    assert (values == 2.0 * (np.arange(8)[:, None] - 3)).all()


def test_mxfp4_is_what_transformers_decodes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    convert = pytest.importorskip("transformers.integrations.mxfp4").convert_moe_packed_tensors
    blocks = np.random.default_rng(0).integers(0, 256, (2, 3, 2, 16), dtype=np.uint8)
    scales = np.random.default_rng(1).integers(120, 130, (2, 3, 2), dtype=np.uint8)
    name = "model.layers.0.mlp.experts.gate_up_proj"
    parts = {f"{name}_blocks": ("U8", blocks), f"{name}_scales": ("U8", scales)}
    values = stored(tmp_path, parts, plain_settings("mxfp4"))(name)
    known = convert(torch.from_numpy(blocks), torch.from_numpy(scales), dtype=torch.float32)
    assert np.array_equal(values, known.numpy())


def nf4_parts(codes: Any, scale: float) -> dict[str, tuple[str, Any]]:
    pairs = np.asarray(codes).reshape(-1, 2)
    state = json.dumps({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [1, 64]}).encode()
    return {
        NAME: ("U8", pairs[:, :1] << 4 | pairs[:, 1:]),
        f"{NAME}.absmax": ("F32", [scale]),
        f"{NAME}.quant_map": ("F32", bitsandbytes.QUANTILES),
        f"{NAME}.quant_state.bitsandbytes__nf4": ("U8", np.frombuffer(state, dtype=np.uint8)),
    }


def test_nf4_stores_the_first_weight_in_the_high_bits(tmp_path: Path) -> None:
    read = stored(tmp_path, nf4_parts([15, 0, 7, 7] + [7] * 60, 0.75), plain_settings("nf4"))
    assert read(NAME).tolist() == [[0.75, -0.75] + [0.0] * 62]


@pytest.mark.parametrize("scale, code", [(0.75, 8), (0.1, 15)])
def test_weights_that_16_bits_do_not_represent_are_refused(tmp_path: Path, scale: float, code: int) -> None:
    read = stored(tmp_path, nf4_parts([code] + [7] * 63, scale), plain_settings("nf4"))
    with pytest.raises(Undecided, match="does not represent: engines that decode in different types"):
        read(NAME)


CHANGES: list[tuple[str, dict[str, Any], str]] = [
    ("gptq", {"desc_act": True}, "desc_act = True"),
    ("gptq", {"checkpoint_format": "gptq_v2"}, "checkpoint_format"),
    ("gptq", {"dynamic": {"-:.*up_proj": {}}}, "dynamic"),
    ("gptq", {"bits": True}, "bits = True"),
    ("gptq", {"new_key": 1}, "new_key = 1, which the proof does not support"),
    ("awq", {"version": "gemv"}, "version"),
    ("fp8-block", {"activation_scheme": "static"}, "activation_scheme"),
    ("fp8-block", {"weight_block_size": [64, 64]}, "weight_block_size"),
    ("int8", {"kv_cache_scheme": {"num_bits": 8}}, "kv_cache_scheme"),
    ("int8", {"format": "float-quantized"}, "type = 'int'"),
    ("nf4", {"bnb_4bit_use_double_quant": True}, "bnb_4bit_use_double_quant"),
    ("nf4", {"bnb_4bit_compute_dtype": "bfloat16"}, "bnb_4bit_compute_dtype"),
    ("mxfp4", {"modules_to_not_convert": []}, "modules_to_not_convert"),
]


@pytest.mark.parametrize("name, change, words", CHANGES)
def test_other_settings_are_refused_by_name(tmp_path: Path, name: str, change: dict[str, Any], words: str) -> None:
    parts = {"model.norm.weight": ("F32", [1.0])}
    with pytest.raises(Undecided, match=words):
        stored(tmp_path, parts, plain_settings(name) | change)


def test_quantized_activations_are_refused(tmp_path: Path) -> None:
    settings = plain_settings("int8")
    settings["config_groups"]["group_0"]["input_activations"] = {"num_bits": 8}
    with pytest.raises(Undecided, match="input_activations"):
        stored(tmp_path, {"model.norm.weight": ("F32", [1.0])}, settings)


def test_the_list_of_plain_modules_is_the_files(tmp_path: Path) -> None:
    parts = nf4_parts([7] * 64, 1.0) | {"model.layers.0.mlp.gate.weight": ("F32", np.ones((2, 2)))}
    settings = plain_settings("nf4")
    with pytest.raises(Undecided, match=r"mlp\.gate is stored plainly, but"):
        stored(tmp_path, parts, settings)
    stored(tmp_path, parts, settings | {"llm_int8_skip_modules": ["lm_head", "model.layers.0.mlp.gate"]})
    with pytest.raises(Undecided, match=r"excludes layers\.0\.mlp\.up_proj"):
        stored(
            tmp_path,
            nf4_parts([7] * 64, 1.0),
            settings | {"llm_int8_skip_modules": ["lm_head", "layers.0.mlp.up_proj"]},
        )
    with pytest.raises(Undecided, match="lm_head is stored plainly"):
        stored(tmp_path, nf4_parts([7] * 64, 1.0), settings | {"llm_int8_skip_modules": []})


def test_codes_without_settings_and_settings_without_codes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Undecided, match="no tensor is quantized"):
        stored(tmp_path, {"model.norm.weight": ("F32", [1.0])}, plain_settings("fp8"))
    with pytest.raises(Undecided, match="quant_method = 'other'"):
        stored(tmp_path, {"model.norm.weight": ("F32", [1.0])}, {"quant_method": "other"})
    parts = nf4_parts([7] * 64, 1.0) | {"odd": ("U8", [1])}
    with pytest.raises(Undecided, match="odd has the type U8"):
        stored(tmp_path, parts, plain_settings("nf4"))


def test_a_plain_folder_that_claims_to_be_quantized_is_undecided(tmp_path: Path) -> None:
    folder = write(tmp_path / "plain")
    shutil.copytree(folder, tmp_path / "claimed")
    edit_config(tmp_path / "claimed", quantization_config=plain_settings("int8"))
    found = certify_checkpoint(tmp_path / "claimed", [[0, 1]])
    assert found.verdict is Verdict.UNDECIDED
    assert "stored plainly" in found.reason
