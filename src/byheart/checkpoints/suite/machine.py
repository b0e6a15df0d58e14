"""A decoder as a machine of named steps, plain enough to be broken one step at a time.

It computes what Transformers computes (the tests compare all architectures), in torch, one sequence at a time, with a
key-value cache. `wrap` puts a function around a step: a mutant is a machine with a wrapped step, or a machine for a
changed decoder.

    >>> machine = Machine(decoder)                                               # doctest: +SKIP
    >>> machine.wrap("scale", lambda step, *args: 2 * step(*args))               # doctest: +SKIP
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeAlias

from byheart.checkpoints.formats.stock import StockDecoder, frequencies
from byheart.checkpoints.proof.config import Rotary
from byheart.checkpoints.proof.decoder import Expert, Linear, Mlp, Norm, StockAttention
from byheart.errors import MissingExtraError, OptionError

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    raise MissingExtraError("asking mutants", "torch") from None

Tensor: TypeAlias = Any  # torch.Tensor; torch comes without types here
HIDDEN = -1e9  # a score that must not count; finite, so that padding rows stay numbers


class Cache:
    """Keys and values of every layer, (groups, s, head_dim), and which of the s entries are real tokens."""

    def __init__(self, layers: int) -> None:
        self.keys: list[Tensor | None] = [None] * layers
        self.values: list[Tensor | None] = [None] * layers
        self.real: Tensor = torch.zeros(0, dtype=torch.bool)

    def __len__(self) -> int:
        return len(self.real)


class Machine:
    """The steps of a decoder. Every method but `run` and `wrap` is a step that a mutant may wrap."""

    def __init__(self, decoder: StockDecoder, dtype: torch.dtype = torch.float32) -> None:
        self.decoder, self.shape, self.dtype = decoder, decoder.shape, dtype
        self.wide = torch.float64 if dtype == torch.float64 else torch.float32  # norms and softmax, as engines do
        self._tensors: dict[tuple[int, bool], tuple[Any, Tensor]] = {}

    def wrap(self, step: str, change: Callable[..., Any]) -> Self:
        """From now on `step(*args)` is `change(old step, *args)`."""
        old = getattr(self, step, None)
        if not callable(old):
            raise OptionError(f"a machine has no step {step!r}")
        setattr(self, step, lambda *args: change(old, *args))
        return self

    def in_type(self, dtype: torch.dtype) -> Machine:
        """Return this machine, computing in another type from now on; a mutant keeps its fault."""
        self.dtype, self._tensors = dtype, {}
        self.wide = torch.float64 if dtype == torch.float64 else torch.float32
        return self

    def tensor(self, array: Any, *, wide: bool = False) -> Tensor:
        """The array as a tensor of the machine's type, made once; `wide`: its numbers in the type that adds up."""
        key = (id(array), wide)
        if key not in self._tensors:
            rounded = torch.from_numpy(array.copy()).to(self.dtype)
            # The array is kept beside its tensor: another array could get the number of a freed one.
            self._tensors[key] = (array, rounded.to(self.wide) if wide else rounded)
        return self._tensors[key][1]

    def run(self, ids: Sequence[int], cache: Cache | None = None, padding: int = 0) -> Tensor:
        """Logits (t, vocabulary) after every one of `ids`, the first `padding` of which are padding."""
        cache = Cache(len(self.decoder.layers)) if cache is None else cache
        start = len(cache)
        real = torch.tensor([i >= padding for i in range(len(ids))])
        cache.real = torch.cat([cache.real, real])
        positions = self.positions(cache.real, start)
        h = self.embed(torch.tensor(list(ids)), positions)
        for depth in range(len(self.decoder.layers)):
            h = self.layer(h, depth, positions, cache)
        return self.head(self.norm(h, self.decoder.final_norm, "final")).to(self.wide)

    def positions(self, real: Tensor, start: int) -> Tensor:
        """Positions count real tokens, so that left padding does not shift them."""
        return (real.long().cumsum(0) - 1).clamp(min=0)[start:]

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        h = self.tensor(self.decoder.embedding)[ids] * self.embedding_scale()
        return h if self.decoder.positions is None else h + self.place(positions)

    def embedding_scale(self) -> float:
        return self.decoder.embedding_scale

    def place(self, positions: Tensor) -> Tensor:
        return self.tensor(self.decoder.positions)[positions]

    def layer(self, h: Tensor, depth: int, positions: Tensor, cache: Cache) -> Tensor:
        after = self.add(h, self.attention_branch(h, depth, positions, cache), "attention")
        read = h if self.parallel(self.shape.parallel) else after
        return self.add(after, self.mlp_branch(read, depth), "mlp")

    def attention_branch(self, h: Tensor, depth: int, positions: Tensor, cache: Cache) -> Tensor:
        layer = self.decoder.layers[depth]
        normed = self.maybe_norm(h, layer.attention_norm, "attention")
        mixed = self.attention(normed, layer.attention, depth, positions, cache)
        return self.maybe_norm(mixed, layer.after_attention, "after attention")

    def mlp_branch(self, h: Tensor, depth: int) -> Tensor:
        layer = self.decoder.layers[depth]
        found = self.mlp(self.maybe_norm(h, layer.mlp_norm, "mlp"), layer.mlp)
        return self.maybe_norm(found, layer.after_mlp, "after mlp")

    def parallel(self, value: bool) -> bool:
        return value

    def add(self, h: Tensor, branch: Tensor, where: str) -> Tensor:
        scale = self.residual_scale()
        return h + (branch if scale == 1 else branch * scale)

    def residual_scale(self) -> float:
        return self.shape.residual_scale

    def maybe_norm(self, x: Tensor, norm: Norm | None, where: str) -> Tensor:
        """A norm before or after a branch, where the architecture has one."""
        return x if norm is None else self.norm(x, norm, where)

    def norm(self, x: Tensor, norm: Norm, where: str) -> Tensor:
        wide = x.to(self.wide)
        if self.centred(norm.centred, where):
            wide = wide - wide.mean(-1, keepdim=True)
        y = (wide / self.size(wide, norm, where)).to(x.dtype) * self.tensor(norm.weight)
        return y if norm.bias is None else y + self.tensor(norm.bias)

    def centred(self, value: bool, where: str) -> bool:
        return value

    def size(self, wide: Tensor, norm: Norm, where: str) -> Tensor:
        return (wide.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt()

    def linear(self, x: Tensor, linear: Linear) -> Tensor:
        bias = None if linear.bias is None else self.tensor(linear.bias, wide=True)
        return F.linear(x.to(self.wide), self.tensor(linear.weight, wide=True), bias).to(x.dtype)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """Sums in the wide type, rounded once: as engines add up. Processors do that far faster than 16-bit sums."""
        return (a.to(self.wide) @ b.to(self.wide)).to(a.dtype)

    def attention(self, x: Tensor, attention: StockAttention, depth: int, positions: Tensor, cache: Cache) -> Tensor:
        q, k = self.linear(x, attention.q), self.linear(x, attention.k)
        if attention.all_heads:
            q, k = self.maybe_norm(q, attention.q_norm, "q"), self.maybe_norm(k, attention.k_norm, "k")
        q, k = self.heads(q, self.shape.heads), self.heads(k, self.shape.kv_heads)  # (heads, t, d)
        v = self.heads(self.linear(x, attention.v), self.shape.kv_heads)
        if not attention.all_heads:
            q, k = self.maybe_norm(q, attention.q_norm, "q"), self.maybe_norm(k, attention.k_norm, "k")
        rotary = self.rotary(depth)
        if rotary is not None:
            cos, sin = self.turns(rotary, positions)
            q, k = self.rotate(q, cos, sin, "q"), self.rotate(k, cos, sin, "k")
        k, v = self.remember(k, v, depth, cache)
        scores = self.product(q, self.share(k, attention).transpose(1, 2)) * self.scale(attention)
        rows = torch.arange(len(cache) - q.shape[1], len(cache))
        seen = self.visible(rows[:, None], torch.arange(len(cache))[None], cache.real, self.window(depth))
        mixed = self.product(self.weights(scores, seen), self.share(v, attention))
        return self.linear(self.join(mixed), attention.o)

    def window(self, depth: int) -> int | None:
        """How many positions a query of this layer sees; None: all before it."""
        return self.shape.at(depth).window

    def rotary(self, depth: int) -> Rotary | None:
        """How queries and keys of this layer are rotated; None: not at all."""
        return self.shape.at(depth).rotary

    def heads(self, x: Tensor, count: int) -> Tensor:
        return x.reshape(x.shape[0], count, -1).transpose(0, 1)

    def join(self, x: Tensor) -> Tensor:
        return x.transpose(0, 1).reshape(x.shape[1], -1)

    def turns(self, rotary: Rotary, positions: Tensor) -> tuple[Tensor, Tensor]:
        angle = self.angles(rotary, positions)
        both, size = torch.cat([angle, angle], -1), self.rotary_gain(rotary)
        return (both.cos() * size).to(self.dtype), (both.sin() * size).to(self.dtype)

    def rotary_gain(self, rotary: Rotary) -> float:
        """What cos and sin are multiplied by: yarn's factor."""
        return rotary.gain

    def angles(self, rotary: Rotary, positions: Tensor) -> Tensor:
        return positions.to(self.wide)[:, None] * self.frequencies(rotary)[None]

    def frequencies(self, rotary: Rotary) -> Tensor:
        return torch.from_numpy(frequencies(rotary)).to(self.wide)

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor, which: str) -> Tensor:
        """Dimension i turns with dimension i + n of the first 2 n; the others stay."""
        n = cos.shape[-1]
        part, rest = x[..., :n], x[..., n:]
        first, second = part.chunk(2, -1)
        return torch.cat([part * cos + torch.cat([-second, first], -1) * sin, rest], -1)

    def remember(self, k: Tensor, v: Tensor, depth: int, cache: Cache) -> tuple[Tensor, Tensor]:
        """Appends to the cache and returns all of it."""
        old_k, old_v = cache.keys[depth], cache.values[depth]
        k = k if old_k is None else torch.cat([old_k, k], 1)
        v = v if old_v is None else torch.cat([old_v, v], 1)
        cache.keys[depth], cache.values[depth] = k, v
        return k, v

    def share(self, x: Tensor, attention: StockAttention) -> Tensor:
        """Each key-value head once for every query head of its group."""
        return x.repeat_interleave(self.shape.heads // self.shape.kv_heads, 0)

    def scale(self, attention: StockAttention) -> float:
        return self.decoder.score_scale

    def visible(self, rows: Tensor, columns: Tensor, real: Tensor, window: int | None) -> Tensor:
        seen = (columns <= rows) & real[None]
        return seen if window is None else seen & (rows - columns < window)

    def weights(self, scores: Tensor, seen: Tensor) -> Tensor:
        wide = scores.to(self.wide).masked_fill(~seen, HIDDEN)
        return torch.softmax(wide, -1).to(self.dtype)

    def activate(self, x: Tensor, kind: str) -> Tensor:
        return ACTIVATIONS[kind](x)

    def mlp(self, x: Tensor, mlp: Mlp) -> Tensor:
        if mlp.router is None:
            (only,) = mlp.experts
            return self.expert(x, only)
        chosen, shares = self.route(self.linear(x, mlp.router), mlp)
        out = torch.zeros_like(x)
        for e, expert in enumerate(mlp.experts):
            share = (shares * (chosen == e)).sum(-1, keepdim=True)
            out = out + self.expert(x, expert) * share
        return out

    def expert(self, x: Tensor, expert: Expert) -> Tensor:
        gate = self.activate(self.linear(x, expert.gate), self.shape.activation)
        inner = gate if expert.up is None else gate * self.linear(x, expert.up)
        return self.linear(inner, expert.down)

    def route(self, logits: Tensor, mlp: Mlp) -> tuple[Tensor, Tensor]:
        """Which experts, (t, top), and with which shares."""
        probabilities = torch.softmax(logits.to(self.wide), -1)
        shares, chosen = probabilities.topk(self.shape.experts_used, -1)
        return chosen, (shares / shares.sum(-1, keepdim=True)).to(logits.dtype)

    def head(self, x: Tensor) -> Tensor:
        return self.linear(x, self.decoder.head) / self.logit_scale()

    def logit_scale(self) -> float:
        return self.shape.logit_scale


def gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "relu": F.relu,
}
