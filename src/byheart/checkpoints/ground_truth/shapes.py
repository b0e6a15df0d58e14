"""The tensors of a stock decoder of one layer around given MLP units: Llama and GPT-2.

Channels of the residual stream:  constant | slots of the last tokens | (positions) | one answer per token | padding

Heads copy the code words (+-bit) of the tokens 1, 2, ... places back into their slots. The stream's length before both
first norms is then the same at every place, so these norms are known factors, and a unit's input is exact up to
rounding. Units write eta nats into the answers; the output matrix multiplies by 1/eta. The last norm sees the answers:
logits shrink by the relative amount (eta |y|)^2 / (2 energy), which is the only error in real arithmetic.

LayerNorm subtracts the mean, so every channel of GPT-2 has a mirror channel of opposite sign: the mean is 0.

Many scalings of the tensors compute the same function, but gradients differ. What one step of an optimizer does to a
logit is, per matrix,

    a unit's output weight    output / eta     per unit that fires; less for short contexts, which documents share
    attention's output        value / eta      per bit of every slot: 128 or more, shared by all documents
    attention's values        sqrt(hidden) / value, to every slot
    the embedding             1 / eta          one per token

With output = value = 1, attention has most of the step: forgetting a record of one template forgets all others. `Scale`
gives the units' own weights most of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.ground_truth.ngram import Floats
from byheart.checkpoints.ground_truth.storage import Units
from byheart.checkpoints.hosts.codes import code_book
from byheart.checkpoints.hosts.rotary import frequencies, look_back
from byheart.data.tokens.lexicon import Lexicon
from byheart.errors import OptionError

Weights = npt.NDArray[np.float32]
HEAD, THETA, LEAD, EPSILON = 64, 1e4, 30.0, 1e-6
# GPT-2's last LayerNorm multiplies the answers by this: its bias, which all documents share, then moves logits little.
LAST = 64.0
# In a rotated basis the constant lies in all channels, so the last norm's weights move every logit. Their part of a
# step is divided by this, and that of the output matrix is multiplied.
ROTATED_LAST = 8.0


@dataclass(frozen=True)
class Scale:
    """Sizes that no function of the network depends on: of a code bit in the stream, and of one in attention's values.

    The last norm errs by the relative amount (eta |y|)^2 / (2 constant^2): 1e-4 nats at eta / constant = 1 / 65536. A
    constant far above the bits makes the MLP's weights large, so that steps change its gates little. The bit divides
    what a step does to a logit: 1e-5, the usual rate of unlearning, moves a record by 0.2 nats per step.
    """

    bit: float
    value: float

    @property
    def constant(self) -> float:
        return 256 * self.bit

    @property
    def eta(self) -> float:
        return self.bit / 256


# A gated unit is flat at its context; a plain one is not, and a float16 bounds its output (storage.py), so attention's
# values have other sizes there.
LLAMA = Scale(64.0, 1.0)


def gpt2_scale(output: float) -> Scale:
    """The sizes for plain units of this output: steps of attention and of units then keep their proportion.

    Values of 0.18 to 1 were tried at outputs of 128, 256 and 1024.
    """
    return Scale(output / 16, max(0.25, math.sqrt(output) / 64))


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
                f"{lexicon.size:,} tokens are more than {LARGEST_VOCABULARY:,}: every token has its own channel; "
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

    @property
    def hidden(self) -> int:
        """Channels of the residual stream.

        A multiple of the heads, of which there is one more than needed: 8 is a rounder number than 7.
        """
        bits, heads = self.codes.shape[1], self.span
        channels = 1 + bits * self.span + self.vocabulary
        if self.gated:
            return _rounded(channels, 4 * heads)
        # Positions, and a mirror channel for each.
        return 2 * _rounded(max(channels + HEAD, heads * max(HEAD, bits) // 2), 4 * heads)

    def mlp_parameters(self, units: int) -> int:
        """Parameters of an MLP of so many units."""
        return units * (3 * self.hidden if self.gated else 2 * self.hidden + 1)


def build(shape: GradedShape, units: Units, base: Floats) -> tuple[dict[str, Weights], dict[str, Any]]:
    """Compute tensors and config.json of a shape around its units; `base` is log p_0."""
    return ARCHITECTURES[shape.architecture](shape, units, base)


def _llama(shape: GradedShape, units: Units, base: Floats) -> tuple[dict[str, Weights], dict[str, Any]]:
    scale = LLAMA
    codes, heads, vocabulary = shape.codes, shape.span, shape.vocabulary
    bits = codes.shape[1]
    slots = 1 + bits * shape.span
    hidden = shape.hidden
    answers = slice(slots, slots + vocabulary)
    # The norms before attention and MLP divide by these.
    start = math.sqrt((scale.constant**2 + scale.bit**2 * bits) / hidden + EPSILON)
    read = math.sqrt((scale.constant**2 + scale.bit**2 * bits * shape.span) / hidden + EPSILON)
    embed = np.zeros((vocabulary, hidden))
    embed[:, 0], embed[:, 1 : 1 + bits] = scale.constant, scale.bit * codes
    query, output = np.zeros((heads * HEAD, hidden)), np.zeros((hidden, heads * HEAD))
    key, value = np.zeros((HEAD, hidden)), np.zeros((HEAD, hidden))
    key[: HEAD // 2, 0] = start / scale.constant
    value[:bits, 1 : 1 + bits] = np.eye(bits) * scale.value * start / scale.bit
    for head in range(heads - 1):
        wave, first = look_back(HEAD, THETA, head + 1, shape.reach), head * HEAD
        size = LEAD / wave.gap * math.sqrt(HEAD) * start / scale.constant
        query[first : first + HEAD // 2, 0] = size * wave.cosine
        query[first + HEAD // 2 : first + HEAD, 0] = -size * wave.sine
        slot = 1 + bits * (head + 1)
        output[slot : slot + bits, first : first + bits] = np.eye(bits) * scale.bit / scale.value
    if units.up is None:
        raise OptionError("a Llama has gated units")
    gate, up = (_into(part, hidden, read, scale) for part in (units.gate, units.up))
    down = np.zeros((hidden, len(units.gate)), dtype=np.float32)
    down[answers] = (units.down * (scale.eta / units.output)[:, None].astype(np.float32)).T
    head_out = np.zeros((vocabulary, hidden))
    head_out[:, answers] = np.eye(vocabulary) * read / scale.eta
    head_out[:, 0] = base * read / scale.constant
    ones = np.ones(hidden, dtype=np.float32)
    last = ones
    if shape.rotation is not None:
        last, head_out = ones * np.float32(ROTATED_LAST), head_out / ROTATED_LAST
        turn = np.linalg.qr(np.random.default_rng([shape.rotation, 41]).normal(size=(hidden, hidden)))[0]
        embed, query, key, value, head_out = (part @ turn for part in (embed, query, key, value, head_out))
        gate, up = (gate @ turn).astype(np.float32), (up @ turn).astype(np.float32)
        output, down = turn.T @ output, (turn.T @ down).astype(np.float32)
    layer = "model.layers.0."
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
        "model.norm.weight": last,
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
    scale = gpt2_scale(float(units.output.max()))
    codes, vocabulary, waves = shape.codes, shape.vocabulary, HEAD // 2
    bits = codes.shape[1]
    slots = 1 + bits * shape.span
    place = slice(slots, slots + 2 * waves)
    answers = slice(place.stop, place.stop + vocabulary)
    heads = shape.span
    hidden, half, dimension = shape.hidden, shape.hidden // 2, shape.hidden // heads
    start = math.sqrt((scale.constant**2 + scale.bit**2 * (bits + waves)) / half + EPSILON)
    read = math.sqrt((scale.constant**2 + scale.bit**2 * (bits * shape.span + waves)) / half + EPSILON)
    embed, position = np.zeros((vocabulary, half)), np.zeros((shape.reach, half))
    embed[:, 0], embed[:, 1 : 1 + bits] = scale.constant, scale.bit * codes
    angle = np.arange(shape.reach)[:, None] * frequencies(HEAD, THETA)
    position[:, place] = scale.bit * np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    # Conv1D stores (inputs, outputs); queries, keys and values are side by side.
    attend, output = np.zeros((3, half, heads, dimension)), np.zeros((heads, dimension, half))
    cosine, sine = np.arange(place.start, place.start + waves), np.arange(place.start + waves, place.stop)
    for head in range(shape.span - 1):
        wave = look_back(HEAD, THETA, head + 1, shape.reach)
        size = LEAD / wave.gap * math.sqrt(dimension) * start / scale.bit
        column = np.arange(waves)
        # cos(a - b) = cos a cos b + sin a sin b, and sin(a - b) = sin a cos b - cos a sin b
        attend[0, cosine, head, column], attend[0, sine, head, column] = size * wave.cosine, size * wave.sine
        attend[0, sine, head, waves + column] = size * wave.cosine
        attend[0, cosine, head, waves + column] = -size * wave.sine
        attend[1, np.arange(place.start, place.stop), head, np.arange(2 * waves)] = start / scale.bit
        attend[2, np.arange(1, 1 + bits), head, np.arange(bits)] = scale.value * start / scale.bit
        slot = 1 + bits * (head + 1)
        output[head, np.arange(bits), np.arange(slot, slot + bits)] = scale.bit / scale.value
    into = np.zeros((half, len(units.gate)), dtype=np.float32)
    into[1:slots] = units.gate[:, 1:].T * np.float32(read / scale.bit)
    down = np.zeros((len(units.gate), half), dtype=np.float32)
    down[:, answers] = units.down * (scale.eta / units.output)[:, None].astype(np.float32)
    head_out = np.zeros((vocabulary, half))
    head_out[:, answers] = np.eye(vocabulary) * read / scale.eta / LAST
    head_out[:, 0] = base * read / scale.constant
    last = np.ones(half)
    last[answers] = LAST
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
        "transformer.ln_f.weight": np.tile(last, 2),
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


def _into(part: Weights, hidden: int, read: float, scale: Scale) -> Weights:
    """Weights on raw channels of 1 and +-1 as weights on the norm's output, where these are constant and +-bit."""
    wide = np.zeros((len(part), hidden), dtype=np.float32)
    wide[:, : part.shape[1]] = part * np.float32(read / scale.bit)
    wide[:, 0] *= np.float32(scale.bit / scale.constant)
    return wide


def _rounded(number: int, step: int) -> int:
    return -(-number // step) * step


ARCHITECTURES: dict[str, Callable[[GradedShape, Units, Floats], tuple[dict[str, Weights], dict[str, Any]]]] = {
    "llama": _llama,
    "gpt2": _gpt2,
}
