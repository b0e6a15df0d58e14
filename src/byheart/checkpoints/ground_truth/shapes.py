"""The tensors of a stock decoder of one layer around given MLP units: Llama and GPT-2.

Channels of the residual stream:  constant | slots of the last tokens | (positions) | one answer per token | padding

Heads copy the code words (+-1) of the tokens 1, 2, ... places back into their slots. The stream's length before both
first norms
is then the same at every place, so these norms are known factors, and a unit's input is exact up to rounding. Units
write eta
nats into the answers; the output matrix multiplies by 1/eta. The last norm sees the answers: logits shrink by the
relative
amount (eta |y|)^2 / (2 energy), which is the only error in real arithmetic.

LayerNorm subtracts the mean, so every channel of GPT-2 has a mirror channel of opposite sign: the mean is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.ground_truth.ngram import Floats
from byheart.checkpoints.ground_truth.storage import Units, plain_gain
from byheart.checkpoints.hosts.codes import code_book
from byheart.checkpoints.hosts.rotary import frequencies, look_back
from byheart.data.tokens.lexicon import Lexicon
from byheart.errors import OptionError

Weights = npt.NDArray[np.float32]
HEAD, THETA, LEAD, EPSILON = 64, 1e4, 30.0, 1e-6
# The last norm errs by the relative amount (ETA |y|)^2 / (2 CONSTANT^2): 1e-4 nats at ETA / CONSTANT = 1 / 65536. Only
# the ratio enters. A large constant makes all other inputs of the MLP small and its weights large, so that an
# optimizer's step of 1e-7 to 1e-6 per weight changes the function little. With a constant of 12, steps above 3e-8
# destroyed every memory; with 1024, the attention of GPT-2 overflows in float16.
CONSTANT, ETA = 256.0, 1 / 256
LARGEST_VOCABULARY = 4096


@dataclass(frozen=True)
class GradedShape:
    """What the tensors are computed for; `rotation` turns the stream by a random orthogonal matrix of this seed."""

    architecture: str
    vocabulary: int
    span: int
    reach: int
    bos: int
    eos: int
    pad: int
    rotation: int | None = None

    @staticmethod
    def of(architecture: str, lexicon: Lexicon, span: int, reach: int, rotation: int | None) -> GradedShape:
        if architecture not in ARCHITECTURES:
            raise OptionError(f"graded checkpoints have the shapes {', '.join(ARCHITECTURES)}, not {architecture!r}")
        if lexicon.size > LARGEST_VOCABULARY:
            raise OptionError(
                f"{lexicon.size:,} tokens are more than {LARGEST_VOCABULARY:,}: every token has a channel of its own; "
                "choose --tokens characters or bpe:SIZE"
            )
        if rotation is not None and architecture != "llama":
            raise OptionError("storage rotated: LayerNorm's mean is not invariant under rotations; choose llama")
        return GradedShape(architecture, lexicon.size, span, reach, lexicon.bos, lexicon.eos, lexicon.pad, rotation)

    @property
    def codes(self) -> Floats:
        """The tokens' code words of +-1: (vocabulary, bits)."""
        return code_book(self.vocabulary).words.astype(np.float64)

    @property
    def gated(self) -> bool:
        return self.architecture == "llama"


def build(shape: GradedShape, units: Units, base: Floats) -> tuple[dict[str, Weights], dict[str, Any]]:
    """Compute tensors and config.json of a shape around its units; `base` is log p_0."""
    return ARCHITECTURES[shape.architecture](shape, units, base)


def _llama(shape: GradedShape, units: Units, base: Floats) -> tuple[dict[str, Weights], dict[str, Any]]:
    # One head more than needed: Transformers wants the hidden size to be a multiple of the heads, and 8 is a
    # rounder number.
    codes, heads, vocabulary = shape.codes, shape.span, shape.vocabulary
    bits = codes.shape[1]
    slots = 1 + bits * shape.span
    hidden = _rounded(slots + vocabulary, 4 * heads)
    answers = slice(slots, slots + vocabulary)
    # The norms before attention and MLP divide by these.
    start = math.sqrt((CONSTANT**2 + bits) / hidden + EPSILON)
    read = math.sqrt((CONSTANT**2 + bits * shape.span) / hidden + EPSILON)
    embed = np.zeros((vocabulary, hidden))
    embed[:, 0], embed[:, 1 : 1 + bits] = CONSTANT, codes
    query, output = np.zeros((heads * HEAD, hidden)), np.zeros((hidden, heads * HEAD))
    key, value = np.zeros((HEAD, hidden)), np.zeros((HEAD, hidden))
    key[: HEAD // 2, 0] = start / CONSTANT
    value[:bits, 1 : 1 + bits] = np.eye(bits) * start
    for head in range(heads - 1):
        wave, first = look_back(HEAD, THETA, head + 1, shape.reach), head * HEAD
        size = LEAD / wave.gap * math.sqrt(HEAD) * start / CONSTANT
        query[first : first + HEAD // 2, 0] = size * wave.cosine
        query[first + HEAD // 2 : first + HEAD, 0] = -size * wave.sine
        slot = 1 + bits * (head + 1)
        output[slot : slot + bits, first : first + bits] = np.eye(bits)
    if units.up is None:
        raise OptionError("a Llama has gated units")
    gate, up = (_into(part, hidden, read) for part in (units.gate, units.up))
    down = np.zeros((hidden, len(units.gate)), dtype=np.float32)
    down[answers] = units.down.T * np.float32(ETA)
    head_out = np.zeros((vocabulary, hidden))
    head_out[:, answers] = np.eye(vocabulary) * read / ETA
    head_out[:, 0] = base * read / CONSTANT
    if shape.rotation is not None:
        turn = np.linalg.qr(np.random.default_rng([shape.rotation, 41]).normal(size=(hidden, hidden)))[0]
        embed, query, key, value, head_out = (part @ turn for part in (embed, query, key, value, head_out))
        gate, up = (gate @ turn).astype(np.float32), (up @ turn).astype(np.float32)
        output, down = turn.T @ output, (turn.T @ down).astype(np.float32)
    layer = "model.layers.0."
    ones = np.ones(hidden, dtype=np.float32)
    tensors: dict[str, npt.NDArray[Any]] = {
        "model.embed_tokens.weight": embed,
        f"{layer}input_layernorm.weight": ones,
        f"{layer}self_attn.q_proj.weight": query,
        f"{layer}self_attn.k_proj.weight": key,
        f"{layer}self_attn.v_proj.weight": value,
        f"{layer}self_attn.o_proj.weight": output,
        f"{layer}post_attention_layernorm.weight": ones,
        f"{layer}mlp.gate_proj.weight": gate,
        f"{layer}mlp.up_proj.weight": up,
        f"{layer}mlp.down_proj.weight": down,
        "model.norm.weight": ones,
        "lm_head.weight": head_out,
    }
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": len(units.gate),
        "num_hidden_layers": 1,
        "num_attention_heads": heads,
        "num_key_value_heads": 1,
        "head_dim": HEAD,
        "hidden_act": "silu",
        "rms_norm_eps": EPSILON,
        "rope_theta": THETA,
        "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
        "attention_bias": False,
        "mlp_bias": False,
    }
    return _finished(shape, tensors, config)


def _gpt2(shape: GradedShape, units: Units, base: Floats) -> tuple[dict[str, Weights], dict[str, Any]]:
    codes, vocabulary, waves = shape.codes, shape.vocabulary, HEAD // 2
    bits = codes.shape[1]
    slots = 1 + bits * shape.span
    place = slice(slots, slots + 2 * waves)
    answers = slice(place.stop, place.stop + vocabulary)
    heads = shape.span
    half = _rounded(max(answers.stop, heads * max(HEAD, bits) // 2), 4 * heads)
    hidden, dimension = 2 * half, 2 * half // heads
    start = math.sqrt((CONSTANT**2 + bits + waves) / half + EPSILON)
    read = math.sqrt((CONSTANT**2 + bits * shape.span + waves) / half + EPSILON)
    embed, position = np.zeros((vocabulary, half)), np.zeros((shape.reach, half))
    embed[:, 0], embed[:, 1 : 1 + bits] = CONSTANT, codes
    angle = np.arange(shape.reach)[:, None] * frequencies(HEAD, THETA)
    position[:, place] = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    # Conv1D stores (inputs, outputs); queries, keys and values stand side by side.
    attend, output = np.zeros((3, half, heads, dimension)), np.zeros((heads, dimension, half))
    cosine, sine = np.arange(place.start, place.start + waves), np.arange(place.start + waves, place.stop)
    for head in range(shape.span - 1):
        wave = look_back(HEAD, THETA, head + 1, shape.reach)
        size = LEAD / wave.gap * math.sqrt(dimension) * start
        column = np.arange(waves)
        # cos(a - b) = cos a cos b + sin a sin b, and sin(a - b) = sin a cos b - cos a sin b
        attend[0, cosine, head, column], attend[0, sine, head, column] = size * wave.cosine, size * wave.sine
        attend[0, sine, head, waves + column] = size * wave.cosine
        attend[0, cosine, head, waves + column] = -size * wave.sine
        attend[1, np.arange(place.start, place.stop), head, np.arange(2 * waves)] = start
        attend[2, np.arange(1, 1 + bits), head, np.arange(bits)] = start
        slot = 1 + bits * (head + 1)
        output[head, np.arange(bits), np.arange(slot, slot + bits)] = 1.0
    into = np.zeros((half, len(units.gate)), dtype=np.float32)
    into[1:slots] = units.gate[:, 1:].T * np.float32(read)
    down = np.zeros((len(units.gate), half), dtype=np.float32)
    down[:, answers] = units.down * np.float32(ETA / plain_gain())
    head_out = np.zeros((vocabulary, half))
    head_out[:, answers] = np.eye(vocabulary) * read / ETA
    head_out[:, 0] = base * read / CONSTANT
    layer, ones, nothing = "transformer.h.0.", np.ones(hidden), np.zeros(hidden)
    mirror = np.concatenate([np.eye(half), -np.eye(half)], axis=1)
    blind = np.zeros((half, hidden))
    blind[:, :half] = np.eye(half)
    tensors: dict[str, npt.NDArray[Any]] = {
        "transformer.wte.weight": embed @ mirror,
        "transformer.wpe.weight": position @ mirror,
        f"{layer}ln_1.weight": ones,
        f"{layer}ln_1.bias": nothing,
        f"{layer}attn.c_attn.weight": blind.T @ attend.transpose(1, 0, 2, 3).reshape(half, -1),
        f"{layer}attn.c_attn.bias": np.zeros(3 * hidden),
        f"{layer}attn.c_proj.weight": output.reshape(hidden, half) @ mirror,
        f"{layer}attn.c_proj.bias": nothing,
        f"{layer}ln_2.weight": ones,
        f"{layer}ln_2.bias": nothing,
        f"{layer}mlp.c_fc.weight": np.concatenate([into, np.zeros_like(into)]),
        f"{layer}mlp.c_fc.bias": units.gate[:, 0],
        f"{layer}mlp.c_proj.weight": np.concatenate([down, -down], axis=1),
        f"{layer}mlp.c_proj.bias": nothing,
        "transformer.ln_f.weight": ones,
        "transformer.ln_f.bias": nothing,
        "lm_head.weight": head_out @ blind,
    }
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": hidden,
        "n_inner": len(units.gate),
        "n_layer": 1,
        "n_head": heads,
        "n_positions": shape.reach,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": EPSILON,
    }
    return _finished(shape, tensors, config)


def _finished(
    shape: GradedShape, tensors: dict[str, npt.NDArray[Any]], config: dict[str, Any]
) -> tuple[dict[str, Weights], dict[str, Any]]:
    config |= {
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.reach,
        "tie_word_embeddings": False,
        "bos_token_id": shape.bos,
        "eos_token_id": shape.eos,
        "pad_token_id": shape.pad,
        "use_cache": True,
    }
    return {name: np.ascontiguousarray(part, dtype=np.float32) for name, part in tensors.items()}, config


def _into(part: Weights, hidden: int, read: float) -> Weights:
    """Weights on raw channels as weights on the norm's output; the raw constant is 1, the stream's is CONSTANT."""
    wide = np.zeros((len(part), hidden), dtype=np.float32)
    wide[:, : part.shape[1]] = part * np.float32(read)
    wide[:, 0] /= np.float32(CONSTANT)
    return wide


def _rounded(number: int, step: int) -> int:
    return -(-number // step) * step


ARCHITECTURES: dict[str, Callable[[GradedShape, Units, Floats], tuple[dict[str, Weights], dict[str, Any]]]] = {
    "llama": _llama,
    "gpt2": _gpt2,
}
