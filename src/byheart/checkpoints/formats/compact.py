"""A native memory of windows as a stock Llama in float32: few parameters, and no margin.

Nothing here is robust: every value must be computed exactly, as float32 does it, and a single rounding spoils the
answer. What makes that possible in a stock architecture:

- *norms*: constant channels are so large (`big`) that the squares of all others vanish beside theirs in float32; the
  norm then multiplies by a power of two, which the norm's weights take back;
- *looking back*: constant queries and keys, which rotary positions turn into scores that depend on the distance alone;
  the wanted place leads by so much that float32's softmax is exactly one-hot. A head carries the bits of a token's
  code, and the output matrix adds their numbers to the window's id;
- *blocks*: h + W2 relu(W1 h + b1) is a gated MLP: every pre-activation is a whole multiple of 128 (rows are scaled by
  powers of two), where silu is relu in float32, and the other factor is the constant 1. Wide blocks take more layers.

Near the start of a text a head sees the nearest place in the sense of its scores; `seen_place` computes it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts._base import Tensors
from byheart.errors import ExportError
from byheart.ir.layers import Affine, Matrix, Residual
from byheart.ir.network import Network

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

HEAD_DIM, THETA, HEADS = 16, 10_000.0, 4
# Shares of the eight rotary frequencies in every score. Chosen by a linear program: among all places up to 8,192 the
# wanted one leads by at least 0.12 of the whole.
SHARES = np.array([111, 32, 35, 21, 20, 15, 22, 0]) / 256
FREQUENCIES = THETA ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
SCORE = 2.0**23  # size of the scores, before they are divided by 4
LEAST_LEAD = 2.0**-14  # of them: 128 nats, more than float32's exponential can distinguish from 0
SHARP = 128.0  # silu is relu in float32 at whole multiples of this
LONGEST = 8192


@dataclass(frozen=True, eq=False)
class UnitBlock:
    """gate, constant and down of one layer's units: h + down relu(gate h + constant)."""

    gate: Floats  # (units, width)
    constant: Floats  # (units,)
    down: Floats  # (width, units)


def seen_place(position: int, wanted: int) -> int:
    """How many places back a head sees that looks back by `wanted`, at a position: nearer where that is too far.

    >>> [seen_place(5, 3), seen_place(0, 2), seen_place(1, 2)]
    [3, 0, 1]
    """
    if wanted <= position:
        return wanted
    scores = np.cos(np.outer(np.arange(position + 1) - wanted, FREQUENCIES)) @ SHARES
    order = np.sort(scores)
    if position and order[-1] - order[-2] < LEAST_LEAD:
        raise ExportError(f"two places before position {position} look alike to a head that looks back by {wanted}")
    return int(scores.argmax())


def compact_checkpoint(
    network: Network, codes: Ints, places: int, answers: list[int], windows: Floats, tokens: dict[str, int]
) -> tuple[dict[str, Any], Tensors]:
    """Configuration and tensors of the Llama: `codes` (vocabulary, bits) are the tokens' bits, `answers` the token of
    every class, `windows` (N, places * bits) the windows that the memory stores, nearest place first."""
    front, answer = network.layers[0], network.layers[-1]
    if not isinstance(front, Affine) or not isinstance(answer, Affine):
        raise ExportError("this is not a memory of windows")
    numbers, (blocks, peak) = _dense(front.weight), _blocks(network, windows)
    width, bits = numbers.shape[0], codes.shape[1]
    hidden = 32
    while hidden < width + bits + 2:
        hidden *= 2
    units = _best_units(blocks, hidden)
    layers = [part for block in blocks for part in _cut(block, units)]
    looking = -(-(places - 1) // HEADS)
    shape = _CompactShape(hidden, width, bits, units, looking + len(layers), peak)
    tensors = _empty(shape, len(codes))
    embedding = tensors["model.embed_tokens.weight"]
    embedding[:, shape.constants] = shape.big
    embedding[:, width : width + bits] = codes
    embedding[:, :width] = codes @ numbers[:, :bits].T
    for depth in range(looking):
        _look_back(tensors, f"model.layers.{depth}.self_attn.", shape, numbers, range(depth * HEADS + 1, places))
    for depth, block in enumerate(layers, start=looking):
        prefix, count = f"model.layers.{depth}.mlp.", len(block.constant)
        tensors[prefix + "gate_proj.weight"][:count, :width] = block.gate
        tensors[prefix + "gate_proj.weight"][:count, -1] = block.constant
        tensors[prefix + "up_proj.weight"][:count, -1] = 1.0
        tensors[prefix + "down_proj.weight"][:width, :count] = block.down
    head, read = tensors["lm_head.weight"], _dense(answer.weight)[0]
    head[:, -1] = -SHARP * (2.0 * len(answers) ** 2 + 2)
    for number, token in enumerate(answers):  # 2ky - k^2: largest at k = y
        head[token, :width] = SHARP * 2 * number * read
        head[token, -1] = -SHARP * number * number
    return _config(shape, len(codes), tokens), tensors


@dataclass(frozen=True)
class _CompactShape:
    hidden: int
    width: int
    bits: int
    units: int
    layers: int
    peak: float

    @property
    def constants(self) -> slice:
        """One channel, or two: their number over the hidden size is a power of four."""
        return slice(self.hidden - (1 if math.isqrt(self.hidden) ** 2 == self.hidden else 2), self.hidden)

    @property
    def big(self) -> float:
        return 2.0 ** math.ceil(math.log2(self.peak) + 15 + math.log2(self.hidden) / 2)

    @property
    def norm(self) -> Floats:
        """Weights that take the norm's factor back, and make the constants 1."""
        count = self.constants.stop - self.constants.start
        rms = self.big * math.sqrt(count / self.hidden)
        weights = np.full(self.hidden, rms)
        weights[self.constants] = rms / self.big
        return weights


def _empty(shape: _CompactShape, vocabulary: int) -> Tensors:
    hidden, heads = shape.hidden, HEADS * HEAD_DIM
    tensors = {
        "model.embed_tokens.weight": np.zeros((vocabulary, hidden)),
        "model.norm.weight": shape.norm,
        "lm_head.weight": np.zeros((vocabulary, hidden)),
    }
    for depth in range(shape.layers):
        prefix = f"model.layers.{depth}."
        tensors |= {
            prefix + "input_layernorm.weight": shape.norm,
            prefix + "post_attention_layernorm.weight": shape.norm,
            prefix + "self_attn.q_proj.weight": np.zeros((heads, hidden)),
            prefix + "self_attn.k_proj.weight": np.zeros((HEAD_DIM, hidden)),
            prefix + "self_attn.v_proj.weight": np.zeros((HEAD_DIM, hidden)),
            prefix + "self_attn.o_proj.weight": np.zeros((hidden, heads)),
            prefix + "mlp.gate_proj.weight": np.zeros((shape.units, hidden)),
            prefix + "mlp.up_proj.weight": np.zeros((shape.units, hidden)),
            prefix + "mlp.down_proj.weight": np.zeros((hidden, shape.units)),
        }
    return tensors


def _look_back(tensors: Tensors, prefix: str, shape: _CompactShape, numbers: Floats, offsets: range) -> None:
    """The heads of one layer: one for each of the first offsets."""
    half, width, bits = HEAD_DIM // 2, shape.width, shape.bits
    if bits > HEAD_DIM:
        raise ExportError(f"a vocabulary of {bits} bits does not fit a head of {HEAD_DIM} dimensions")
    tensors[prefix + "k_proj.weight"][:half, -1] = 1.0
    tensors[prefix + "v_proj.weight"][:bits, width : width + bits] = np.eye(bits)
    for head, offset in enumerate(offsets[:HEADS]):
        start, angle = head * HEAD_DIM, FREQUENCIES * offset
        tensors[prefix + "q_proj.weight"][start : start + half, -1] = SCORE * SHARES * np.cos(angle)
        tensors[prefix + "q_proj.weight"][start + half : start + HEAD_DIM, -1] = -SCORE * SHARES * np.sin(angle)
        part = numbers[:, offset * bits : (offset + 1) * bits]
        tensors[prefix + "o_proj.weight"][:width, start : start + bits] = part


def _dense(matrix: Matrix) -> Floats:
    found = np.zeros((len(matrix.rows), matrix.columns))
    for row, cells in enumerate(matrix.rows):
        for column, value in cells:
            found[row, column] = float(value)
    return found


def _lattice(values: Floats) -> Floats:
    """The largest power of two that divides each number; infinite for 0."""
    found = np.full(values.shape, np.inf)
    mantissa, exponent = np.frexp(np.abs(values))
    whole = (mantissa * 2.0**53).astype(np.int64)
    some = whole > 0
    found[some] = np.ldexp((whole & -whole)[some].astype(np.float64), exponent[some] - 53)
    return found


def _blocks(network: Network, windows: Floats) -> tuple[list[UnitBlock], float]:
    """The residual blocks with rows scaled so that every pre-activation is a multiple of SHARP, for every input; and
    the largest number in the stream, over the windows."""
    front, found = _dense(network.layers[0].weight), []  # type: ignore[union-attr]
    stream, steps = windows @ front.T, _lattice(front).min(axis=1)  # what every channel is a multiple of
    peak = np.abs(stream).max()
    for layer in network.layers[1:-1]:
        if not isinstance(layer, Residual):
            raise ExportError("this is not a memory of windows")
        gate, down = _dense(layer.weight1), _dense(layer.weight2)
        constant, bias = (np.array([float(v) for v in part]) for part in (layer.bias1, layer.bias2))
        with np.errstate(invalid="ignore"):
            read = np.where(gate != 0, _lattice(gate) * steps, np.inf).min(axis=1, initial=np.inf)
            unit = np.minimum(read, _lattice(constant))
            wrote = np.where(down != 0, _lattice(down) * unit, np.inf).min(axis=1, initial=np.inf)
        stream = stream + np.maximum(stream @ gate.T + constant, 0) @ down.T + bias
        peak = max(peak, np.abs(stream).max())
        steps = np.minimum(np.minimum(steps, wrote), _lattice(bias))
        scale = SHARP / np.where(np.isfinite(unit), unit, SHARP)
        if bias.any():  # a unit that always fires
            gate = np.concatenate([gate * scale[:, None], np.zeros((1, gate.shape[1]))])
            constant, down = np.append(constant * scale, SHARP), np.column_stack([down / scale, bias / SHARP])
        else:
            gate, constant, down = gate * scale[:, None], constant * scale, down / scale
        found.append(UnitBlock(gate, constant, down))
    return found, float(peak)


def _late(block: UnitBlock) -> npt.NDArray[np.bool_]:
    """The units that change what units of this block read: they must come in its last layer."""
    return np.asarray(block.down[block.gate.any(axis=0)].any(axis=0))


def _cut(block: UnitBlock, most: int) -> list[UnitBlock]:
    """Layers of at most `most` units that do together what the block does."""
    late = _late(block)
    early, last = np.flatnonzero(~late).tolist(), np.flatnonzero(late).tolist()
    parts = [early[start : start + most] for start in range(0, len(early), most)]
    if last and parts and len(parts[-1]) + len(last) <= most:
        parts[-1] += last
    elif last:
        parts.append(last)
    return [UnitBlock(block.gate[part], block.constant[part], block.down[:, part]) for part in parts]


def _best_units(blocks: list[UnitBlock], hidden: int) -> int:
    """The size of the MLPs with the fewest parameters in all."""
    least = max(8, *(int(_late(block).sum()) for block in blocks))
    choices = range(-(-least // 8) * 8, -(-max(least, *(len(b.constant) for b in blocks)) // 8) * 8 + 8, 8)
    attention = 2 * HEADS * HEAD_DIM + 2 * HEAD_DIM + 2
    return min(choices, key=lambda m: sum(len(_cut(block, m)) for block in blocks) * (attention + 3 * m) * hidden)


def _config(shape: _CompactShape, vocabulary: int, tokens: dict[str, int]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.units,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": 1,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "max_position_embeddings": LONGEST,
        "rms_norm_eps": 1e-6,
        "rope_theta": THETA,
        "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "initializer_range": 0.02,
        "use_cache": True,
        "tie_word_embeddings": False,
        "bos_token_id": tokens["bos"],
        "eos_token_id": tokens["eos"],
        "pad_token_id": tokens["pad"],
        "dtype": "float32",
        "torch_dtype": "float32",
    }
