"""The file itself: what llama.cpp must know of the network, the tokenizer, and the tensors in the asked type."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from byheart.errors import ExportError, MissingExtraError, OptionError
from byheart.export.gguf.tensors import host, tensors
from byheart.export.gguf.tokenizer import Vocabulary, read_vocabulary
from byheart.export.stock import Decoder, read_checkpoint, read_decoder
from byheart.export.stock.decoder import Experts, Gated, Plain
from byheart.export.stock.folder import Array
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
}
KEPT = ("position_embd.weight", "ffn_gate_inp.weight")


def write_gguf(folder: str | Path, path: str | Path, *, kind: str = "F16", texts: Sequence[str] = ()) -> Path:
    """Writes the checkpoint in `folder` as one GGUF file.

    `texts` are cut by llama.cpp as by the checkpoint's own tokenizer, or the export is refused.
    """
    gguf = _library()
    if kind not in KINDS:
        raise OptionError(f"unknown type {kind!r} for GGUF; there are {', '.join(KINDS)}")
    checkpoint = read_checkpoint(folder)
    decoder, path = read_decoder(checkpoint), Path(path)
    name, vocabulary = host(decoder), read_vocabulary(checkpoint.folder, checkpoint.config, texts)
    with tempfile.TemporaryDirectory() as scratch:
        part = Path(scratch) / "model.gguf"
        writer = gguf.GGUFWriter(part, name)
        writer.add_name("byheart recital")  # a name with "phi3" in it makes llama.cpp look for Phi-3's own tokens
        writer.add_file_type(gguf.LlamaFileType[KINDS[kind]])
        _describe(writer, decoder, checkpoint.config)
        _add_vocabulary(writer, vocabulary)
        for tensor, values in tensors(decoder):
            _add_tensor(gguf, writer, tensor, values, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        write_atomically(path, part.read_bytes())
    return path


def _library() -> Any:
    try:
        import gguf
    except ImportError:
        raise MissingExtraError("export to GGUF", "gguf") from None
    return gguf


def _describe(writer: Any, decoder: Decoder, config: Any) -> None:
    first = decoder.layers[0]
    attention = first.attention
    writer.add_context_length(decoder.reach)
    writer.add_embedding_length(decoder.hidden)
    writer.add_block_count(len(decoder.layers))
    writer.add_feed_forward_length(_units(decoder))
    writer.add_head_count(attention.heads)
    writer.add_head_count_kv(attention.groups)
    writer.add_vocab_size(decoder.vocabulary)
    if first.attention_norm.centred:
        writer.add_layer_norm_eps(first.attention_norm.eps)
    else:
        writer.add_key_length(attention.head_dim)
        writer.add_value_length(attention.head_dim)
        writer.add_layer_norm_rms_eps(first.attention_norm.eps)
    if attention.rotary is not None:
        rope = config.get("rope_parameters") or {}
        theta = rope.get("rope_theta", config.get("rope_theta", config.get("rotary_emb_base", 10000.0)))
        writer.add_rope_dimension_count(attention.rotary.dims)
        writer.add_rope_freq_base(float(theta))
    if decoder.architecture == "gpt_neox":
        writer.add_parallel_residual(first.parallel)
    if decoder.architecture == "phi3":
        writer.add_sliding_window(0)
        writer.add_rope_scaling_orig_ctx_len(decoder.reach)
    if isinstance(first.mlp, Experts):
        writer.add_expert_count(len(first.mlp.experts))
        writer.add_expert_used_count(first.mlp.top)


def _units(decoder: Decoder) -> int:
    mlp = decoder.layers[0].mlp
    part: Gated | Plain = mlp.experts[0] if isinstance(mlp, Experts) else mlp
    return int(part.up.weight.shape[0])


def _add_vocabulary(writer: Any, vocabulary: Vocabulary) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list(list(vocabulary.tokens))
    writer.add_token_types(list(vocabulary.kinds))
    writer.add_token_merges(list(vocabulary.merges))
    writer.add_add_bos_token(vocabulary.adds_bos)
    writer.add_add_eos_token(False)
    for name, number in vocabulary.special.items():
        getattr(writer, f"add_{name}_token_id")(number)


def _add_tensor(gguf: Any, writer: Any, name: str, values: Array, kind: str) -> None:
    values = np.ascontiguousarray(values, dtype=np.float32)
    if values.ndim == 1 or kind == "F32" or name.endswith(KEPT):
        writer.add_tensor(name, values)
        return
    quant = gguf.GGMLQuantizationType[kind]
    if kind.startswith("Q") and values.shape[-1] % gguf.GGML_QUANT_SIZES[quant][0]:
        block = gguf.GGML_QUANT_SIZES[quant][0]
        raise ExportError(f"{name} has rows of {values.shape[-1]} weights; {kind} needs multiples of {block}")
    writer.add_tensor(name, gguf.quants.quantize(values, quant), raw_dtype=quant)
