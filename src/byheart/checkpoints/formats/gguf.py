"""GGUF, the format of llama.cpp: `write_gguf` turns a checkpoint folder into one file with its tokenizer inside.

*Tensors.* llama.cpp's `llama` architecture rotates neighbouring dimensions of a head, Hugging Face rotates halves: rows
of q and k change places. The other architectures here rotate halves in both. Gemma's norm weights already carry their
1, as llama.cpp wants them.

*Tokenizer.* llama.cpp's byte-level BPE needs tokens, merges, kinds, and which pre-tokenizer splits alike. Two kinds of
tokenizer.json fit: byte-level BPE as it is, and one token per character. The latter becomes a BPE whose merges join the
bytes of each character, left to right; UTF-8 marks where a character begins, so no merge crosses a border.

*Blocks.* Formats with 4 or 5 bits scale every 32 weights of a row by the largest: Q4_0 holds that one in eighths, but
the other sign only up to 7/8 of it, and Q4_1 holds no 0 between equal weights of both signs. A weight of twice the size
at an input that is always 0, an *anchor*, mends both. The flavour `quantized` has such inputs in the stream; for
matrices that read units, a silent unit is added to every 31 of the MLP. Embedding and head have none, so they are
stored in Q8_0 there (llama.cpp's own quantizer keeps its head finer than the rest, too).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.formats.stock import StockDecoder, read_decoder
from byheart.checkpoints.proof.config import Rotary, Shape
from byheart.checkpoints.proof.decoder import Expert, Layer, Linear, Mlp, Norm, StockAttention
from byheart.checkpoints.proof.storage import Array
from byheart.checkpoints.proof.tensors import read_json
from byheart.data.tokens.pieces import QWEN2
from byheart.errors import ExportError, FileFormatError, MissingExtraError, OptionError
from byheart.files import write_atomically

# Hugging Face's model_type -> llama.cpp's architecture
HOSTS = {
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "granite": "granite",
    "olmo2": "olmo2",
    "phi3": "phi3",
    "gemma": "gemma",
    "gpt2": "gpt2",
    "gpt_neox": "gptneox",
}
FUSED = ("phi3", "gpt2", "gptneox")  # q, k and v in one tensor
PAIRED = ("llama", "granite")  # dimension 2i turns with dimension 2i + 1
# Architectures that llama.cpp has, but not with layers as these checkpoints have them.
FIXED_LAYERS = {
    "smollm3": "every fourth layer is without positions",
    "gemma3_text": "every sixth layer sees everything, the others a window with the rotary base 10,000",
}


def host(shape: Shape) -> str:
    """The architecture in llama.cpp that computes this decoder; an ExportError says why there is none."""
    name = HOSTS.get(shape.family)
    if shape.family in FIXED_LAYERS:
        raise ExportError(
            f"llama.cpp's {shape.family} has a fixed order of layers ({FIXED_LAYERS[shape.family]}); this model has "
            "another. Export the architecture llama instead"
        )
    if name is None:
        raise ExportError(f"llama.cpp has no {shape.family} architecture; it has {', '.join(HOSTS)}")
    if shape.window is not None and shape.window < shape.positions:
        raise ExportError(
            f"this {shape.family} model has a sliding window of {shape.window} tokens, which llama.cpp ignores for it: "
            "it would answer wrongly there. Export the architecture llama instead"
        )
    if name == "gemma" and not shape.tied:
        raise ExportError("llama.cpp's gemma uses the embedding as its head; this model has a head of its own")
    return name


def tensors(decoder: StockDecoder) -> Iterator[tuple[str, Array]]:
    """Name and values of every tensor, in the order of the network."""
    name = host(decoder.shape)
    yield "token_embd.weight", decoder.embedding
    rotary = decoder.shape.rotary
    if rotary is not None and rotary.scaling is not None and rotary.scaling.kind == "llama3":
        yield "rope_freqs.weight", (replace(rotary, scaling=None).frequencies / rotary.frequencies)
    if decoder.positions is not None:
        yield "position_embd.weight", decoder.positions
    for i, layer in enumerate(decoder.layers):
        for part, values in _layer(decoder.shape, layer, name):
            yield f"blk.{i}.{part}", values
    yield from _norm("output_norm", decoder.final_norm)
    if not decoder.shape.tied:
        yield "output.weight", decoder.head.weight


def _norm(name: str, norm: Norm) -> Iterator[tuple[str, Array]]:
    yield f"{name}.weight", norm.weight
    if norm.bias is not None:
        yield f"{name}.bias", norm.bias


def _linear(name: str, linear: Linear) -> Iterator[tuple[str, Array]]:
    yield f"{name}.weight", linear.weight
    if linear.bias is not None:
        yield f"{name}.bias", linear.bias


def _layer(shape: Shape, layer: Layer, host: str) -> Iterator[tuple[str, Array]]:
    attention = layer.attention
    if layer.attention_norm is not None:
        yield from _norm("attn_norm", layer.attention_norm)
    if host in FUSED:
        yield from _linear("attn_qkv", _joined(attention.q, attention.k, attention.v))
    else:
        turn = host in PAIRED
        yield from _linear("attn_q", _paired(attention.q, shape.heads) if turn else attention.q)
        yield from _linear("attn_k", _paired(attention.k, shape.kv_heads) if turn else attention.k)
        yield from _linear("attn_v", attention.v)
    yield from _linear("attn_output", attention.o)
    yield from _head_norms(attention)
    for part, norm in (
        ("ffn_norm", layer.mlp_norm), ("post_attention_norm", layer.after_attention), ("post_ffw_norm", layer.after_mlp)
    ):  # fmt: skip
        if norm is not None:
            yield from _norm(part, norm)
    yield from _mlp(layer.mlp, host)


def _head_norms(attention: StockAttention) -> Iterator[tuple[str, Array]]:
    for part, norm in (("q", attention.q_norm), ("k", attention.k_norm)):
        if norm is not None:
            yield from _norm(f"attn_{part}_norm", norm)


def _mlp(mlp: Mlp, host: str) -> Iterator[tuple[str, Array]]:
    if mlp.router is not None:
        yield "ffn_gate_inp.weight", mlp.router.weight
        for part in ("gate", "up", "down"):
            yield f"ffn_{part}_exps.weight", np.stack([getattr(expert, part).weight for expert in mlp.experts])
        return
    (only,) = mlp.experts
    if only.up is None:  # nothing is multiplied: llama.cpp calls the one projection up
        yield from _linear("ffn_up", only.gate)
    elif host == "phi3":
        yield from _linear("ffn_up", _joined(only.gate, only.up))
    else:
        yield from _linear("ffn_gate", only.gate)
        yield from _linear("ffn_up", only.up)
    yield from _linear("ffn_down", only.down)


def _joined(*parts: Linear) -> Linear:
    biases = [part.bias for part in parts if part.bias is not None]
    name = ", ".join(part.name for part in parts)
    return Linear(name, np.concatenate([part.weight for part in parts]), np.concatenate(biases) if biases else None)


def _paired(linear: Linear, heads: int) -> Linear:
    """Rows i and i + d/2 of every head become neighbours."""

    def turn(values: Array) -> Array:
        return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)

    return Linear(linear.name, turn(linear.weight), None if linear.bias is None else turn(linear.bias))


NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5  # llama.cpp's kinds of tokens

# How Llama 3 cuts text into pieces before the merges; every reader of GGUF knows it under the name llama-bpe.
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Vocabulary:
    """The tokenizer as GGUF stores it."""

    tokens: tuple[str, ...]
    kinds: tuple[int, ...]
    merges: tuple[str, ...]
    pre: str  # llama.cpp's name for the way text is cut before the merges
    special: Mapping[str, int]  # "bos", "eos", "unk", "pad" -> id
    adds_bos: bool


def byte_letters() -> dict[int, str]:
    """The printable letter that byte-level BPE writes for each byte (GPT-2's table).

    >>> byte_letters()[ord("A")], byte_letters()[ord(" ")]
    ('A', 'Ġ')
    """
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = {b: chr(b) for b in plain}
    for extra, b in enumerate(sorted(set(range(256)) - set(plain))):
        letters[b] = chr(256 + extra)
    return letters


def read_vocabulary(folder: Path, config: Mapping[str, Any], texts: Sequence[str] = ()) -> Vocabulary:
    """The vocabulary of a checkpoint folder. `texts` decide whether `llama-bpe` cuts them like the tokenizer itself."""
    path = folder / "tokenizer.json"
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        model, added = described["model"], described.get("added_tokens") or []
        vocab = dict(model["vocab"]) if isinstance(model["vocab"], dict) else {}
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror}; GGUF needs a tokenizer inside") from error
    except (ValueError, KeyError, TypeError) as error:
        raise FileFormatError(f"{path} is not a tokenizer: {error}") from error
    special = {entry["id"]: entry["content"] for entry in added}
    control = {entry["id"] for entry in added if entry.get("special")}
    vocab |= {content: number for number, content in special.items()}
    size = int(config["vocab_size"])
    if len(set(vocab.values())) != len(vocab) or max(vocab.values()) >= size:
        raise FileFormatError(f"{path} numbers its tokens wrongly for a vocabulary of {size}")
    if model["type"] == "BPE" and _is_byte_level(described):
        merges = tuple(m if isinstance(m, str) else " ".join(m) for m in model["merges"])
        letters, pre = vocab, _pre_tokenizer(path, vocab, merges, texts)
    elif all(len(token) == 1 for token, number in vocab.items() if number not in special):
        letters, merges = _characters(vocab, special)
        pre = "llama-bpe"
    else:
        raise ExportError(
            f"{path} is a {model['type']} tokenizer; GGUF holds byte-level BPE or one token per character. "
            "Memorize the text with one of these"
        )
    names = {number: token for token, number in letters.items()}
    tokens = tuple(names.get(i, f"[PAD{i}]") for i in range(size))
    kinds = tuple(
        CONTROL if i in control else USER_DEFINED if i in special else NORMAL if i in names else UNUSED
        for i in range(size)
    )
    known = {"bos": config.get("bos_token_id"), "eos": config.get("eos_token_id"), "pad": config.get("pad_token_id")}
    known["unk"] = vocab.get(str(model.get("unk_token")))
    ids = {name: (number[0] if isinstance(number, list) else number) for name, number in known.items()}
    # llama.cpp refuses an empty list of merges: this one joins the bytes 0 and 1, which no text has side by side.
    return Vocabulary(tokens, kinds, merges or ("Ā ā",), pre, {n: i for n, i in ids.items() if i is not None},
                      _adds(described, special.get(ids["bos"])))  # fmt: skip


def _is_byte_level(described: Mapping[str, Any]) -> bool:
    return "ByteLevel" in json.dumps(described.get("pre_tokenizer"))


def _adds(described: Mapping[str, Any], bos: str | None) -> bool:
    """Whether the tokenizer itself puts the beginning-of-sequence token in front."""
    template = (described.get("post_processor") or {}).get("single") or []
    return bool(template) and template[0].get("SpecialToken", {}).get("id") == bos


def _characters(vocab: Mapping[str, int], special: Mapping[int, str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Characters as byte-level tokens, and the merges that put them together."""
    table = byte_letters()
    tokens: dict[str, int] = {}
    merges: dict[str, None] = {}
    for token, number in vocab.items():
        if number in special:
            tokens[token] = number
            continue
        letters = [table[b] for b in token.encode("utf-8")]
        tokens["".join(letters)] = number
        for k in range(1, len(letters)):
            merges["".join(letters[:k]) + " " + letters[k]] = None
    return tokens, tuple(merges)


def _pre_tokenizer(path: Path, vocab: Mapping[str, int], merges: Sequence[str], texts: Sequence[str]) -> str:
    """`llama-bpe` where it makes the same tokens of the texts as the tokenizer itself, else `gpt-2` or `qwen2`."""
    try:
        from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    except ImportError:
        raise MissingExtraError("a tokenizer inside GGUF", "data") from None
    own = Tokenizer.from_file(str(path))
    pairs = [(first, second) for first, _, second in (m.partition(" ") for m in merges)]

    def other(ignore_merges: bool, *steps: Any) -> Any:
        copy = Tokenizer(models.BPE(dict(vocab), pairs, ignore_merges=ignore_merges))
        copy.pre_tokenizer = pre_tokenizers.Sequence(list(steps))
        return copy

    level = pre_tokenizers.ByteLevel
    candidates = {
        "llama-bpe": other(True, pre_tokenizers.Split(Regex(LLAMA_3), "isolated"),
                           level(add_prefix_space=False, use_regex=False)),
        "gpt-2": other(False, level(add_prefix_space=False, use_regex=True)),
        "qwen2": other(False, pre_tokenizers.Split(Regex(QWEN2), "isolated"),
                       level(add_prefix_space=False, use_regex=False)),
    }  # fmt: skip
    for name, candidate in candidates.items():
        if texts and all(own.encode(t, add_special_tokens=False).ids == candidate.encode(t).ids for t in texts):
            return name
    if texts:
        raise ExportError(f"{path} cuts the memorized text in a way that llama.cpp does not (llama-bpe, gpt-2, qwen2)")
    return "gpt-2"


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
# How much larger than a block's other weights s an anchor is: s, 0 and -s are then multiples of a step, or nearly
ANCHORS = {"Q5_0": 2.0, "Q5_1": 31 / 17, "Q4_0": 2.0, "Q4_1": 1.5}
ENDS = ("token_embd.weight", "output.weight")
BLOCK = 32  # weights that share a scale


def write_gguf(folder: str | Path, path: str | Path, *, kind: str = "F16", texts: Sequence[str] = ()) -> Path:
    """Writes the checkpoint in `folder` as one GGUF file.

    `texts` are cut by llama.cpp as by the checkpoint's own tokenizer, or the export is refused.
    """
    gguf = _library()
    if kind not in KINDS:
        raise OptionError(f"unknown type {kind!r} for GGUF; there are {', '.join(KINDS)}")
    folder, path, decoder = Path(folder), Path(path), read_decoder(folder)
    config = read_json(folder / "config.json")
    name, vocabulary = host(decoder.shape), read_vocabulary(folder, config, texts)
    decoder = _with_anchors(decoder, ANCHORS[kind]) if kind in ANCHORS else decoder
    with tempfile.TemporaryDirectory() as scratch:
        part = Path(scratch) / "model.gguf"
        writer = gguf.GGUFWriter(part, name)
        writer.add_name("byheart recital")  # a name with "phi3" in it makes llama.cpp look for Phi-3's own tokens
        writer.add_file_type(gguf.LlamaFileType[KINDS[kind]])
        _describe(writer, decoder.shape, decoder.final_norm.centred)
        _add_vocabulary(writer, vocabulary)
        for tensor, values in tensors(decoder):
            _add_tensor(gguf, writer, tensor, values, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        write_atomically(path, part.read_bytes())
    return path


def _with_anchors(decoder: StockDecoder, anchor: float) -> StockDecoder:
    """The same function with a weight of `anchor` times the size of every block's largest, at an input that is always
    0: one that a norm takes to 0, or a silent unit that is added to every 31 others."""

    def steady(linear: Linear, norm: Norm | None) -> Linear:
        if norm is None:
            return linear
        idle = norm.weight == 0 if norm.bias is None else (norm.weight == 0) & (norm.bias == 0)
        weight = np.where(idle, np.float32(0), linear.weight)
        for at in np.unique(np.flatnonzero(idle) // BLOCK):
            block = weight[:, BLOCK * at : BLOCK * (at + 1)]
            block[:, np.flatnonzero(idle[BLOCK * at : BLOCK * (at + 1)])[-1]] = anchor * np.abs(block).max(1)
        return replace(linear, weight=weight)

    def layer(old: Layer) -> Layer:
        norm, heads = old.attention_norm, old.attention
        heads = replace(heads, q=steady(heads.q, norm), k=steady(heads.k, norm), v=steady(heads.v, norm))

        def units(expert: Expert) -> Expert:
            up = None if expert.up is None else steady(expert.up, old.mlp_norm)
            return _widened(replace(expert, gate=steady(expert.gate, old.mlp_norm), up=up), anchor)

        return replace(old, attention=heads, mlp=replace(old.mlp, experts=tuple(map(units, old.mlp.experts))))

    layers = tuple(map(layer, decoder.layers))
    shape = replace(decoder.shape, units=len(layers[0].mlp.experts[0].gate.weight))
    return replace(decoder, shape=shape, layers=layers)


def _widened(expert: Expert, anchor: float) -> Expert:
    """An MLP with a silent unit at the end of every block of units."""
    places = np.arange(len(expert.gate.weight))
    places += places // (BLOCK - 1)
    units = -(-(int(places[-1]) + 1) // BLOCK) * BLOCK

    def apart(values: Array) -> Array:
        found = np.zeros((units, *values.shape[1:]), dtype=np.float32)
        found[places] = values
        return found

    def reading(linear: Linear) -> Linear:
        bias = None if linear.bias is None else apart(linear.bias)
        return replace(linear, weight=apart(linear.weight), bias=bias)

    blocks = np.zeros((units, len(expert.down.weight)), dtype=np.float32)
    blocks[places] = expert.down.weight.T
    blocks[BLOCK - 1 :: BLOCK] = anchor * np.abs(blocks.reshape(-1, BLOCK, len(expert.down.weight))).max(1)
    down = replace(expert.down, weight=np.ascontiguousarray(blocks.T))
    up = None if expert.up is None else reading(expert.up)
    return replace(expert, gate=reading(expert.gate), up=up, down=down)


def _library() -> Any:
    try:
        import gguf
    except ImportError:
        raise MissingExtraError("export to GGUF", "gguf") from None
    return gguf


def _describe(writer: Any, shape: Shape, centred: bool) -> None:
    writer.add_context_length(shape.positions)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.units)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_vocab_size(shape.vocabulary)
    if centred:
        writer.add_layer_norm_eps(shape.eps)
    else:
        writer.add_key_length(shape.head_dim)
        writer.add_value_length(shape.head_dim)
        writer.add_layer_norm_rms_eps(shape.eps)
    if shape.rotary is not None:
        writer.add_rope_dimension_count(shape.rotary.dims)
        writer.add_rope_freq_base(shape.rotary.theta)
        _describe_scaling(writer, shape.rotary)
    if shape.family == "gpt_neox":
        writer.add_parallel_residual(shape.parallel)
    if shape.family == "phi3":
        writer.add_sliding_window(0)
        writer.add_rope_scaling_orig_ctx_len(shape.positions)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.experts_used)
    if shape.family == "qwen3_moe":
        writer.add_expert_feed_forward_length(shape.units)
    if shape.family == "granite":
        writer.add_embedding_scale(shape.embedding_scale)
        writer.add_residual_scale(shape.residual_scale)
        writer.add_attention_scale(shape.scale)
        writer.add_logit_scale(shape.logit_scale)


def _describe_scaling(writer: Any, rotary: Rotary) -> None:
    """Linear scaling and yarn are settings; Llama 3's is a tensor of factors."""
    if rotary.scaling is None or rotary.scaling.kind == "llama3":
        return
    writer.add_rope_scaling_type(_library().RopeScalingType(rotary.scaling.kind))
    writer.add_rope_scaling_factor(rotary.scaling.factor)
    if rotary.scaling.kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rotary.scaling.original)


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
    kind = "Q8_0" if kind in ANCHORS and name in ENDS else kind
    quant = gguf.GGMLQuantizationType[kind]
    if kind.startswith("Q") and values.shape[-1] % gguf.GGML_QUANT_SIZES[quant][0]:
        block = gguf.GGML_QUANT_SIZES[quant][0]
        raise ExportError(f"{name} has rows of {values.shape[-1]} weights; {kind} needs multiples of {block}")
    writer.add_tensor(name, gguf.quants.quantize(values, quant), raw_dtype=quant)
