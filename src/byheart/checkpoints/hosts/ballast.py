"""Ballast for norms after a branch (OLMo-2, Gemma 3): the branch's output keeps its size.

A norm divides a branch's output by its root mean square, which depends on what the branch writes. So the branch also
writes a large constant B to a few channels, and the norm's weight is 0 there and 2^K elsewhere. The root mean square is
then 2^K (1 + E / (2 hidden 4^K)), E the energy of all other channels: with K = 6 at most 4e-5 above 2^K. The stream
itself gets nothing on these channels, which are constant.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.description import AttentionWeights, GatedDecoder, GatedWeights
from byheart.checkpoints.hosts.recognising import PROBE_UNITS
from byheart.errors import OptionError

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
SCALE = 64.0  # 2^K
UNITS = 1  # of the MLP that write it
_ACTIVE = 32.0  # where silu and gelu are the identity in every type


def post_norm(decoder: GatedDecoder) -> Floats:
    """The weights of a norm after a branch."""
    norm = np.full(decoder.hidden, SCALE)
    norm[ballast_channels(decoder)[0]] = 0.0
    return norm


def ballast_channels(decoder: GatedDecoder) -> tuple[Index, float]:
    """The channels, and the number that branches write to them: B^2 times their count is hidden times 4^K."""
    block = decoder.layout.constant[0]
    for factor in (8, 16, 32):
        count = decoder.hidden // factor**2
        if 0 < count <= len(block) and count * factor**2 == decoder.hidden:
            return block[:count], factor * SCALE
    raise OptionError(
        f"--hidden-size {decoder.hidden}: norms after a branch need a multiple of 64, up to 1024, or of 256"
    )


def weighted_output(decoder: GatedDecoder, attention: AttentionWeights) -> Floats:
    """The output matrix of an attention layer, with the ballast: heads that copy carry a constant anyway."""
    layout, d, per = decoder.layout, decoder.design.head_dim, decoder.heads // decoder.kv_heads
    output, (channels, size) = attention.output.copy(), ballast_channels(decoder)
    read = attention.norm[layout.width] * layout.signs[layout.width]
    constants = attention.value[:, layout.width] @ read  # what each dimension of a value reads from the constant
    copying = [head for head in range(decoder.heads) if head not in attention.listeners]
    output[channels] = 0.0
    for number, channel in enumerate(channels):
        head = copying[number % len(copying)]
        mine = constants[head // per * d : (head // per + 1) * d]
        dimension = int(np.abs(mine).argmax())
        output[channel, head * d + dimension] = size / mine[dimension]
    return output


def weighted_mlp(decoder: GatedDecoder, mlp: GatedWeights) -> GatedWeights:
    """The MLP with a unit that is always 1 and writes the ballast."""
    layout, unit = decoder.layout, len(mlp.rows) + PROBE_UNITS - 1
    gate, up, down = mlp.gate.copy(), mlp.up.copy(), mlp.down.copy()
    channels, size = ballast_channels(decoder)
    one = np.zeros(decoder.hidden)
    one[layout.width] = layout.signs[layout.width] / (mlp.norm[layout.width[0]] * len(layout.width))
    gate[unit], up[unit], down[:, unit] = _ACTIVE * one, one / _ACTIVE, 0.0
    down[channels] = 0.0
    down[channels, unit] = size
    return GatedWeights(mlp.norm, gate, up, down, mlp.rows)
