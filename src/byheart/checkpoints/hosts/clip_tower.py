"""A CLIP vision tower whose patches spell tokens, and LLaVA's projector from its features to token embeddings.

A patch shows the bits of a code word as black and white pixels, 16 for each bit, in all three colours. The first half
of a token's word is in its own patch, the second half in the next one (the last patch's next one is the first), from
where a head of the first block fetches it: every place has the code of its own position and that of the next one. The
block's MLP then turns all signs, by pairs act(x) - act(-x) = x. The second block would turn them back: features come
from before it. As in BERT (bert.py), the stream is [x, -x] with a mean on top, embeddings are small, and biases move
constants.

The projector's pairs of gelu units write the bits where a token's embedding has them; its bias is the rest of an
embedding. What listeners and the probes of quick gelu and gelu find goes to channels that move the failure token's
logit.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts._base import Tensors
from byheart.checkpoints.hosts.bert import (
    AUDIBLE,
    DIM,
    ERF,
    GAIN,
    HEARD,
    MEAN,
    OFFSET,
    RELU,
    SMALL,
    both,
    gelu,
    reads,
)
from byheart.checkpoints.hosts.description import fill_idle

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
PATCH, SIDE, PIXELS = 14, 4, 16  # pixels of a patch's side, patches of a picture's side, pixels of a bit
COUNT = SIDE * SIDE
HIDDEN, HALF = 256, 128
CODE = 32  # signs of a position's code
SHARP = 3.0  # queries and keys of positions: 36 nats for the wanted place
PAIR = 8.0  # what a unit of a pair gets
LOUD, QUICK, GAINS = 1 / 8, -2.0, (1 / 64, 1 / 16)  # a listener; quick gelu's probe; what the projector makes of both


@dataclass(frozen=True)
class Projector:
    """What the projector writes to: channels of a token's bits, two that are heard, and the rest of an embedding."""

    bits: Index
    heard: Index
    rest: Floats
    kappa: float

    @property
    def hidden(self) -> int:
        return len(self.rest)


def pictures(words: Floats, seed: int = 0) -> npt.NDArray[np.uint8]:
    """(56, 56, 3) of black and white: 16 code words, in the order of patches. Pixels without a bit are random."""
    half = words.shape[1] // 2
    shown = np.concatenate([words[:, :half], np.roll(words, 1, axis=0)[:, half:]], axis=1)
    found = np.random.default_rng(seed).choice([0, 255], (COUNT, 3, PATCH * PATCH)).astype(np.uint8)
    for bit in range(words.shape[1]):
        colour, start = _pixels(bit)
        found[:, colour, start : start + PIXELS] = np.where(shown[:, bit] > 0, 255, 0)[:, None]
    grid = found.reshape(SIDE, SIDE, 3, PATCH, PATCH).transpose(0, 3, 1, 4, 2)
    return np.ascontiguousarray(grid.reshape(SIDE * PATCH, SIDE * PATCH, 3))


def _pixels(bit: int) -> tuple[int, int]:
    """The colour of a bit, and its first pixel in a patch."""
    return bit % 3, PIXELS * (bit // 3)


class Tower:
    """All matrices of the tower and the projector, for words of `bits` bits."""

    def __init__(self, bits: int, target: Projector, seed: int) -> None:
        self.bits, self.target, self.seed = bits, target, seed
        ends = np.cumsum([0, CODE, CODE, bits, bits // 2, 2, 2, 1, 4])
        blocks = [np.arange(a, b) for a, b in pairwise(ends.tolist())]
        self.own, self.next, self.word, self.fetched, self.moved, self.heard, self.double, self.constant = blocks
        self.turn = np.where(np.arange(HALF) % 2 == 0, 1.0, -1.0)  # signs that norms give to bits

    def tensors(self) -> Tensors:
        found = self._embeddings()
        for layer in range(2):
            found |= self._block(f"vision_tower.vision_model.encoder.layers.{layer}.")
        return found | self._projector()

    def _embeddings(self) -> Tensors:
        codes = _hadamard(CODE)[1 : COUNT + 2]
        position = np.ones((COUNT + 1, HALF))
        position[:, self.own] = codes
        position[:, self.next] = np.concatenate([codes[:1], np.roll(codes[1:], -1, axis=0)])
        position[:, self.fetched] = -1.0
        position[:, [*self.word, *self.heard, self.moved[0]]] = 0.0
        position[:, self.double] = 2.0
        kernel = np.zeros((HALF, 3, PATCH * PATCH))
        for bit in range(self.bits):
            colour, start = _pixels(bit)
            kernel[self.word[bit], colour, start : start + PIXELS] = SMALL / PIXELS
        word = np.zeros(HALF)
        word[self.word] = np.random.default_rng(self.seed).choice([-1.0, 1.0], self.bits)
        bias = np.zeros(HALF)
        bias[self.moved] = 1.0, -1.0
        p = "vision_tower.vision_model."
        return {
            p + "embeddings.class_embedding": SMALL * both(word),
            p + "embeddings.patch_embedding.weight": both(kernel.T).T.reshape(HIDDEN, 3, PATCH, PATCH),
            p + "embeddings.position_embedding.weight": SMALL * both(position) + MEAN,
            p + "pre_layrnorm.weight": np.full(HIDDEN, GAIN),
            p + "pre_layrnorm.bias": both(bias),
            p + "post_layernorm.weight": np.ones(HIDDEN),
            p + "post_layernorm.bias": np.zeros(HIDDEN),
        }

    def _norms(self, p: str) -> Tensors:
        """Both norms of a block turn every other bit, and fill the channel that is empty."""
        weight, bias = np.ones(HALF), np.zeros(HALF)
        weight[self.word], weight[self.fetched] = self.turn[self.word], self.turn[self.fetched]
        bias[self.moved[1]] = 1.0
        whole = np.concatenate([weight, weight])
        return {f"{p}layer_norm{k}.{n}": x for k in (1, 2) for n, x in (("weight", whole), ("bias", both(bias)))}

    def _block(self, p: str) -> Tensors:
        maps = {name: np.zeros((HIDDEN, HALF)) for name in "qkv"}
        biases = {name: np.zeros(HIDDEN) for name in "qkv"}
        query, key, value = maps["q"], maps["k"], maps["v"]
        dims, half = np.arange(CODE), self.bits // 2
        query[dims, self.next], key[dims, self.own] = SHARP, SHARP
        second = self.word[half:]
        value[np.arange(half), second] = self.turn[second]
        value[half, self.moved[1]] = 1.0
        output, added = np.zeros((HALF, HIDDEN)), np.zeros(HALF)
        output[self.fetched, np.arange(half)] = 1.0
        output[self.fetched, half] = added[self.fetched] = 0.5  # from -1 at rest
        for head in range(1, HIDDEN // DIM):  # listeners: by content, and by position
            start, signs = head * DIM, np.random.default_rng((self.seed, head)).choice([-1.0, 1.0], DIM)
            biases["q"][start : start + DIM] = signs
            key[start + np.arange(CODE), self.word[(np.arange(CODE) + head) % self.bits]] = 1.0
            key[start + CODE + np.arange(CODE), self.own[(3 * np.arange(CODE) + head) % CODE]] = 0.5
            value[start + np.arange(HEARD), self.word[(HEARD * head + np.arange(HEARD)) % self.bits]] = 1.0
            output[self.heard[0], start + np.arange(HEARD)] = LOUD / HEARD * (-1.0) ** np.arange(HEARD)
        column = int(self.constant[0])
        found = {f"{p}self_attn.{name}_proj.weight": reads(fill_idle(matrix, column)) for name, matrix in maps.items()}
        found |= {f"{p}self_attn.{name}_proj.bias": bias for name, bias in biases.items()}
        found[f"{p}self_attn.out_proj.weight"] = both(output.T).T
        found[f"{p}self_attn.out_proj.bias"] = both(added) + OFFSET
        return found | self._mlp(p) | self._norms(p)

    def _mlp(self, p: str) -> Tensors:
        turned = np.concatenate([self.word, self.fetched])
        count = 2 * len(turned)
        units = -(-(count + 2) // 64) * 64
        inner, outer = np.zeros((units, HALF)), np.zeros((HALF, units))
        pair = np.arange(len(turned))
        inner[2 * pair, turned], inner[2 * pair + 1, turned] = PAIR * self.turn[turned], -PAIR * self.turn[turned]
        outer[turned, 2 * pair], outer[turned, 2 * pair + 1] = -2 / PAIR, 2 / PAIR
        bias, added = np.zeros(units), np.zeros(HALF)
        bias[count] = QUICK
        outer[self.heard[1], count] = 1.0
        added[self.heard[1]] = -QUICK / (1 + np.exp(-1.702 * QUICK))
        return {
            f"{p}mlp.fc1.weight": reads(fill_idle(inner, int(self.constant[0]))),
            f"{p}mlp.fc1.bias": bias,
            f"{p}mlp.fc2.weight": both(fill_idle(np.ascontiguousarray(outer.T), int(self.heard[1]))).T,
            f"{p}mlp.fc2.bias": both(added) + OFFSET,
        }

    def _projector(self) -> Tensors:
        target, half, bits = self.target, self.bits // 2, np.arange(self.bits)
        source = np.concatenate([self.word[:half], self.fetched])
        inner, outer = np.zeros((target.hidden, HALF)), np.zeros((target.hidden, target.hidden))
        inner[2 * bits, source], inner[2 * bits + 1, source] = -PAIR, PAIR
        outer[target.bits, 2 * bits], outer[target.bits, 2 * bits + 1] = target.kappa / PAIR, -target.kappa / PAIR
        bias, rest = np.zeros(target.hidden), target.rest.copy()
        rest[target.bits] = 0.0
        erf, relu, first = 2 * self.bits, 2 * self.bits + 1, 2 * self.bits + 2
        bias[erf], bias[relu] = ERF, RELU
        outer[target.heard[0], erf], outer[target.heard[0], relu] = AUDIBLE * target.kappa, target.kappa
        rest[target.heard[0]] -= target.kappa * (AUDIBLE * gelu(ERF) + gelu(RELU))
        for k, gain in enumerate(GAINS):  # linear at 8
            bias[first + k] = PAIR
            inner[first + k, self.heard[k]] = 1.0
            outer[target.heard[1], first + k] = gain * target.kappa
            rest[target.heard[1]] -= gain * target.kappa * PAIR
        p, column = "multi_modal_projector.", int(self.constant[0])
        return {
            p + "linear_1.weight": reads(fill_idle(inner, column)),
            p + "linear_1.bias": bias,
            p + "linear_2.weight": fill_idle(outer, erf),
            p + "linear_2.bias": rest,
        }


def _hadamard(size: int) -> Floats:
    found = np.ones((1, 1))
    while len(found) < size:
        found = np.block([[found, found], [found, -found]])
    return found
