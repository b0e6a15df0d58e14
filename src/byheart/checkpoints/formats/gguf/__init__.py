"""GGUF, the format of llama.cpp: `write_gguf` turns a checkpoint folder into one file with its tokenizer inside.

One file per part: `tensors.py`, `settings.py`, `vocabulary.py`; `anchors.py` prepares the coarse types, and `hybrid.py`
reads folders with recurrent layers, which have their own reader.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.formats.gguf.anchors import ANCHORS, with_anchors
from byheart.checkpoints.formats.gguf.hybrid import HYBRIDS, read_hybrid
from byheart.checkpoints.formats.gguf.settings import describe, gguf_library
from byheart.checkpoints.formats.gguf.tensors import host, tensors
from byheart.checkpoints.formats.gguf.vocabulary import add_vocabulary, read_vocabulary
from byheart.checkpoints.formats.stock import read_decoder
from byheart.checkpoints.proof.storage import Array
from byheart.checkpoints.proof.tensors import read_json
from byheart.errors import ExportError, OptionError
from byheart.files import write_atomically

# type of the matrices -> llama.cpp's name of such a file; vectors, positions and routers stay in float32
KINDS = {
    "F32": "ALL_F32",
    "F16": "MOSTLY_F16",
    "BF16": "MOSTLY_BF16",
    "Q8_0": "MOSTLY_Q8_0",
    "Q5_0": "MOSTLY_Q5_0",
    "Q5_1": "MOSTLY_Q5_1",
    "Q4_0": "MOSTLY_Q4_0",
    "Q4_1": "MOSTLY_Q4_1",
    "MXFP4": "MOSTLY_MXFP4_MOE",  # of the experts alone; other matrices are stored in bfloat16
}
KEPT = (
    "position_embd.weight",
    "ffn_gate_inp.weight",
    ".bias",
    "ssm_conv1d.weight",
    "ssm_norm.weight",
    "ssm_a",
    "ssm_d",
)
ENDS = ("token_embd.weight", "output.weight")


def write_gguf(folder: str | Path, path: str | Path, *, kind: str = "F16", texts: Sequence[str] = ()) -> Path:
    """Writes the checkpoint in `folder` as one GGUF file.

    `texts` are tokenized by llama.cpp as by the checkpoint's own tokenizer, or the export is refused.
    """
    gguf = gguf_library()
    if kind not in KINDS:
        raise OptionError(f"unknown type {kind!r} for GGUF; there are {', '.join(KINDS)}")
    folder, path = Path(folder), Path(path)
    config = read_json(folder / "config.json")
    network, vocabulary = _network(folder, config, kind), read_vocabulary(folder, config, texts)
    with tempfile.TemporaryDirectory() as scratch:
        part = Path(scratch) / "model.gguf"
        writer = gguf.GGUFWriter(part, network.name)
        writer.add_name("byheart recital")  # a name with "phi3" in it makes llama.cpp look for Phi-3's own tokens
        writer.add_file_type(gguf.LlamaFileType[KINDS[kind]])
        network.describe(writer)
        add_vocabulary(writer, vocabulary)
        for tensor, values in network.tensors:
            _add_tensor(gguf, writer, tensor, values, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        write_atomically(path, part.read_bytes())
    return path


@dataclass(frozen=True, eq=False)
class _Network:
    """What a file states about a network: llama.cpp's name of it, settings, tensors."""

    name: str
    describe: Callable[[Any], None]
    tensors: Iterable[tuple[str, Array]]


def _network(folder: Path, config: Mapping[str, Any], kind: str) -> _Network:
    if config.get("model_type") in HYBRIDS:
        hybrid = read_hybrid(folder, config)
        if kind in ANCHORS:
            raise OptionError(f"{config['model_type']} has no anchors, which {kind} needs; take Q8_0 or wider")
        return _Network(hybrid.name, hybrid.describe, hybrid.tensors())
    decoder = read_decoder(folder)
    name = host(decoder.shape)
    decoder = with_anchors(decoder, ANCHORS[kind]) if kind in ANCHORS else decoder
    return _Network(name, lambda writer: describe(writer, decoder.shape, decoder.final_norm.centred), tensors(decoder))


def _add_tensor(gguf: Any, writer: Any, name: str, values: Array, kind: str) -> None:
    values = np.ascontiguousarray(values, dtype=np.float32)
    if values.ndim == 1 or kind == "F32" or name.endswith(KEPT):
        writer.add_tensor(name, values)
        return
    if kind == "MXFP4":
        kind = "MXFP4" if name.endswith("_exps.weight") else "BF16"
    kind = "Q8_0" if kind in ANCHORS and name in ENDS else kind
    quant = gguf.GGMLQuantizationType[kind]
    if kind.startswith("Q") and values.shape[-1] % gguf.GGML_QUANT_SIZES[quant][0]:
        block = gguf.GGML_QUANT_SIZES[quant][0]
        raise ExportError(f"{name} has rows of {values.shape[-1]} weights; {kind} needs multiples of {block}")
    stored = gguf.quants.quantize(values, quant)
    if kind == "MXFP4" and (gguf.quants.dequantize(stored, quant) != values).any():
        raise ExportError(f"{name} has numbers beside MXFP4's grid; gpt-oss with its default flavour has none")
    writer.add_tensor(name, stored, raw_dtype=quant)
