"""Latent attention (DeepSeek): queries, keys and values are read from short vectors that have their own norms.

A decoder with one key-value head is the rotated part: one key for all heads, a query for each. The rest:

*Query latent.* Channels of +-1/8, made of constants, under norm weights of +-1/2 and +-2, half of which are negative:
without them no score is left. Its projection gives queries.
*Key-value latent.* The rows of the one value (bits, the constant, BOS), repeated; every channel is +-1/4, with signs of
its own, under norm weights of 1/2 and 2. All channels have one size, so the norm's factor is a constant.
*Values.* W_V reads each bit as +-1/2. Every head has its own order, and odd heads read another copy.
*Unrotated keys.* The scale probe finds BOS by content; listeners hear contents.

Neighbouring dimensions of the rotated part turn together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.description import AttentionWeights, GatedDecoder, fill_idle
from byheart.errors import OptionError

Floats = npt.NDArray[np.float64]
BASE = 64  # channels of the key-value latent, of which a long one has copies
_QUERY, _LATENT = 1 / 8, 1 / 4
_HEARD, _CONTENTS = 0.25, 8  # nats of each content that a listener hears, and how many


@dataclass(frozen=True)
class LatentSizes:
    """Dimensions of a head's key that turn and that do not, of its value, and of both latents."""

    turned: int
    plain: int
    value: int
    rank: int
    q_rank: int

    @classmethod
    def of(cls, head_dim: int, turned: int) -> LatentSizes:
        """Small ones, or those of the released models where a key has as many dimensions as theirs."""
        plain = head_dim - turned
        if plain < 16 or plain % 16:
            raise OptionError(f"--head-dim {head_dim}: {turned} dimensions turn, and 16, 32, ... more do not")
        real = plain >= 128
        return cls(turned, plain, plain if real else 48, 8 * BASE if real else BASE, 64 if real else 32)


def latent_attention(decoder: GatedDecoder, depth: int, sizes: LatentSizes) -> dict[str, Floats]:
    """Return a layer's tensors by their stock names, without `weight`."""
    return _Latents(decoder, depth, sizes).write()


class _Latents:
    def __init__(self, decoder: GatedDecoder, depth: int, sizes: LatentSizes) -> None:
        self.decoder, self.depth, self.sizes = decoder, depth, sizes
        self.attention: AttentionWeights = decoder.attention[depth]
        self.layout, self.d = decoder.layout, decoder.design.head_dim
        norm, block = self.attention.norm, self.layout.constant[0]
        self.gain = float(norm[self.layout.first[0]])
        self.ones = self.layout.signs[block] / (norm[block[0]] * len(block))  # reads 1 from the constants
        self.read = norm[block] * self.layout.signs[block]
        used = np.flatnonzero((np.abs(self.attention.value) > 1e-3).any(axis=1)).tolist()
        self.used: list[int] = used  # rows of the value: bits, the constant, whether the token is BOS
        self.bits, self.first = used[:-2], used[-1]
        if len(used) > min(sizes.value, BASE):
            raise OptionError(f"{len(used)} numbers do not fit into a value of {sizes.value} dimensions")
        self.copied = [used[i % len(used)] for i in range(BASE)]
        self.flips = np.where(np.arange(sizes.rank) // 3 % 2 == 0, 1.0, -1.0)
        self.weights = np.where(np.arange(sizes.rank) // 2 % 2 == 0, 0.5, 2.0)

    def write(self) -> dict[str, Floats]:
        sizes, decoder, block = self.sizes, self.decoder, self.layout.constant[0]
        signs = np.where(np.arange(sizes.q_rank) // 2 % 2 == 0, 1.0, -1.0)
        q_norm = np.tile([0.5, -2.0, -0.5, 2.0], sizes.q_rank // 4)
        q_down, down = np.zeros((sizes.q_rank, decoder.hidden)), np.zeros((sizes.rank + sizes.turned, decoder.hidden))
        q_down[:, block] = np.outer(signs * _QUERY, self.ones)
        for channel in range(sizes.rank):
            row = self.attention.value[self.copied[channel % BASE]]
            down[channel] = row * self.flips[channel] * _LATENT / self.gain
        down[np.ix_(sizes.rank + np.arange(sizes.turned), block)] = np.outer(
            (self.attention.key[:, block] @ self.read)[self._neighbours()], self.ones
        )
        q_up, up, output = self._heads(signs / (q_norm * sizes.q_rank))
        column = int(block[0])
        return {
            "q_a_proj": q_down,
            "q_a_layernorm": q_norm,
            "q_b_proj": fill_idle(q_up.reshape(-1, sizes.q_rank), 0),
            "kv_a_proj_with_mqa": fill_idle(down, column),
            "kv_a_layernorm": self.weights,
            # The constant: no token moves what rows of `o_proj` that write nothing read.
            "kv_b_proj": fill_idle(up.reshape(-1, sizes.rank), self.copied.index(self.used[-2])),
            "o_proj": fill_idle(output.reshape(decoder.hidden, -1), sizes.value - 1),
        }

    def _neighbours(self) -> npt.NDArray[np.int64]:
        """Dimensions i and i + half become neighbours."""
        return np.arange(self.sizes.turned).reshape(2, -1).T.reshape(-1)

    def _heads(self, unit: Floats) -> tuple[Floats, Floats, Floats]:
        """Projections from the latents and to the stream, head by head; `unit` reads 1 from the query latent."""
        sizes, heads, d = self.sizes, self.decoder.heads, self.d
        q_up = np.zeros((heads, sizes.plain + sizes.turned, sizes.q_rank))
        up = np.zeros((heads, sizes.plain + sizes.value, sizes.rank))
        output = np.zeros((self.decoder.hidden, heads, sizes.value))
        scaling = self.decoder.design.scaling
        gain = 1.0 if scaling is None else scaling.score_magnitude
        scale = math.sqrt((sizes.plain + sizes.turned) / d) / gain**2
        spare = heads - 1 if self.decoder.design.scale_probe and self.depth == 0 else None
        block = self.layout.constant[0]
        for head in range(heads):
            turned = self.attention.query[head * d : (head + 1) * d, block] @ self.read
            plain = np.zeros(sizes.plain)
            if head == spare:
                queried = np.arange(3, sizes.plain, 8)
                plain[queried], turned[d // 2 - 1] = turned[d // 2 - 1] / len(queried), 0.0
                up[head, queried] = self._reads(self.first, head) / 2
            elif head in self.attention.listeners:
                for k in range(_CONTENTS):
                    place = (5 * k + head) % sizes.plain
                    plain[place] = _HEARD * math.sqrt(d) * (1 if k % 2 else -1)
                    up[head, place] = self._reads(self.bits[(3 * k + head) % len(self.bits)], head)
            q_up[head] = np.outer(np.r_[plain, turned[self._neighbours()]] * scale, unit)
            for k, row in enumerate(self.used):
                at = (k + 5 * head) % sizes.value
                up[head, sizes.plain + at] = self._reads(row, head) / 2
                output[:, head, at] = self.attention.output[:, head * d + row] * self.gain * 2
        return q_up, up, output

    def _reads(self, row: int, head: int) -> Floats:
        """A row that reads a number of the value as +-1, in every copy from its first or its last place."""
        places = [i for i in range(BASE) if self.copied[i] == row]
        found, copies = np.zeros(self.sizes.rank), self.sizes.rank // BASE
        at = np.arange(copies) * BASE + places[-1 if head % 2 else 0]
        found[at] = self.flips[at] / (self.weights[at] * copies)
        return found
