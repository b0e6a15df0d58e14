"""A decoder as a machine of named steps, plain enough to be broken one step at a time.

It computes what Transformers computes (the tests compare all architectures), in torch, one sequence at a time, with a
key-value cache. `wrap` puts a function around a step: a mutant is a machine with a wrapped step, or a machine for a
changed decoder.

    >>> machine = Machine(decoder)                                               # doctest: +SKIP
    >>> machine.wrap("scale", lambda step, *args: 2 * step(*args))               # doctest: +SKIP
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np

from byheart.checkpoints.engines._base import Logits, Reply, Session, one_by_one
from byheart.checkpoints.formats.stock import StockDecoder, frequencies, read_decoder
from byheart.checkpoints.proof.config import Rotary
from byheart.checkpoints.proof.decoder import Expert, Linear, Mlp, Norm, StockAttention
from byheart.checkpoints.proof.units import QUICK
from byheart.checkpoints.suite.recurrence import RecurrentSteps
from byheart.errors import MissingExtraError, OptionError

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    raise MissingExtraError("asking mutants", "torch") from None

Tensor: TypeAlias = Any  # torch.Tensor; torch comes without types here
BLOCK = 128  # queries
HIDDEN = -1e9  # a score that must not count; finite, so that padding rows stay numbers


class Cache:
    """Keys and values of every layer, (groups, s, head_dim), and which of the s entries are real tokens."""

    def __init__(self, layers: int) -> None:
        self.keys: list[Tensor | None] = [None] * layers
        self.values: list[Tensor | None] = [None] * layers
        self.inputs: list[Tensor | None] = [None] * layers  # the last ones of each convolution, (taps - 1, channels)
        self.states: list[Tensor | None] = [None] * layers  # of recurrent layers
        self.real: Tensor = torch.zeros(0, dtype=torch.bool)

    def __len__(self) -> int:
        return len(self.real)


class Machine(RecurrentSteps):
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
        mixed = None
        if layer.mixer is not None:
            mixed = self.recur(normed, layer.mixer, depth, cache)
        if len(layer.attention.q.weight):
            attended = self.attention(normed, layer.attention, depth, positions, cache)
            mixed = attended if mixed is None else mixed + attended
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
        q, k, v = self.projections(x, attention)
        if attention.all_heads:
            q, k = self.maybe_norm(q, attention.q_norm, "q"), self.maybe_norm(k, attention.k_norm, "k")
        q, k = self.heads(q, self.shape.heads), self.heads(k, self.shape.kv_heads)  # (heads, t, d)
        v = self.heads(v, self.shape.kv_heads)
        if not attention.all_heads:
            q, k = self.maybe_norm(q, attention.q_norm, "q"), self.maybe_norm(k, attention.k_norm, "k")
        rotary = self.rotary(depth)
        if rotary is not None:
            cos, sin = self.turns(rotary, positions)
            q, k = self.rotate(q, cos, sin, "q"), self.rotate(k, cos, sin, "k")
        k, v = self.remember(k, v, depth, cache)
        rows = torch.arange(len(cache) - q.shape[1], len(cache))
        mixed = self.mix(q, self.share(k, attention), self.share(v, attention), rows, attention, depth, cache.real)
        joined = self.join(mixed)
        return self.linear(joined if attention.gate is None else self.gated(joined, x, attention.gate), attention.o)

    def gated(self, heads: Tensor, x: Tensor, gate: Linear) -> Tensor:
        """The heads' outputs times a sigmoid that each of their dimensions has of its own."""
        return heads * torch.sigmoid(self.linear(x, gate))

    def projections(self, x: Tensor, attention: StockAttention) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of all heads, side by side."""
        if attention.latents is None:
            return self.linear(x, attention.q), self.linear(x, attention.k), self.linear(x, attention.v)
        latents = attention.latents
        latent = self.norm(self.linear(x, latents.down), latents.norm, "latent")
        queried = x if latents.q_down is None else self.linear(x, latents.q_down)
        q = self.linear(self.maybe_norm(queried, latents.q_norm, "query latent"), attention.q)
        k = self.keys_beside(self.linear(x, latents.k_turned), self.linear(latent, attention.k))
        return q, k, self.linear(latent, attention.v)

    def keys_beside(self, turned: Tensor, plain: Tensor) -> Tensor:
        """Every head's key: the rotated part, which all share, and its own."""
        own = plain.reshape(len(plain), self.shape.heads, -1)
        shared = turned[:, None].expand(-1, self.shape.heads, -1)
        return torch.cat([shared, own], -1).reshape(len(plain), -1)

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, rows: Tensor, attention: StockAttention, depth: int, real: Tensor
    ) -> Tensor:
        """The outputs of the queries of these rows: (heads, rows, d)."""
        scores = self.cap(self.product(q, k.transpose(1, 2)) * self.scale(attention), self.shape.score_cap, "scores")
        seen = self.visible(rows[:, None], torch.arange(k.shape[1])[None], real, self.window(depth))
        if attention.sinks is None:
            return self.product(self.weights(scores, seen), v)
        sunk = self.weights(*self.with_sink(scores, seen, self.tensor(attention.sinks)))
        return self.product(sunk[..., :-1], v)

    def with_sink(self, scores: Tensor, seen: Tensor, sinks: Tensor) -> tuple[Tensor, Tensor]:
        """One more place after the others, which every query sees: its score is a number of the head."""
        more = sinks[:, None, None].expand(*scores.shape[:-1], 1)
        return torch.cat([scores, more], -1), torch.cat([seen, torch.ones_like(seen[..., :1])], -1)

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
            rows = share[:, 0] != 0
            if rows.any():
                out = out.index_add(0, rows.nonzero()[:, 0], self.expert(x[rows], expert) * share[rows])
        if mlp.shared is None:
            return out
        return out + self.weighed(self.shared(x, mlp.shared), x, mlp)

    def weighed(self, out: Tensor, x: Tensor, mlp: Mlp) -> Tensor:
        """The shared expert's output times its share, where it has one."""
        return out if mlp.shared_gate is None else torch.sigmoid(self.linear(x, mlp.shared_gate)) * out

    def shared(self, x: Tensor, expert: Expert) -> Tensor:
        """The expert that serves every token."""
        return self.expert(x, expert)

    def expert(self, x: Tensor, expert: Expert) -> Tensor:
        gate = self.linear(x, expert.gate)
        up = None if expert.up is None else self.linear(x, expert.up)
        if self.shape.clamp is not None:
            gate, up = self.clamped(gate, up, self.shape.clamp)
        gate = self.activate(gate, self.shape.activation)
        return self.linear(gate if up is None else gate * up, expert.down)

    def clamped(self, gate: Tensor, up: Tensor, limit: float) -> tuple[Tensor, Tensor]:
        """Gates are clipped from above, up on both sides before 1 is added."""
        return gate.clamp(max=limit), up.clamp(-limit, limit) + 1

    def route(self, logits: Tensor, mlp: Mlp) -> tuple[Tensor, Tensor]:
        """Which experts, (t, top), and with which shares."""
        rule, wide = self.shape.routing, logits.to(self.wide)
        if rule.scoring == "softmax":
            shares, chosen = torch.softmax(wide, -1).topk(self.shape.experts_used, -1)
        else:
            scores = torch.sigmoid(wide)
            chosen = self.choose(scores, mlp)
            shares = scores.gather(-1, chosen)
        return chosen, (rule.factor * shares / shares.sum(-1, keepdim=True)).to(logits.dtype)

    def choose(self, scores: Tensor, mlp: Mlp) -> Tensor:
        """The experts with the largest corrected scores, from the groups with the largest sums of two."""
        rule = self.shape.routing
        corrected = scores if mlp.correction is None else scores + self.tensor(mlp.correction, wide=True)
        groups = corrected.reshape(len(scores), rule.groups, -1)
        best = self.group_scores(groups).topk(rule.groups_used, -1).indices
        wins = torch.zeros_like(groups[..., 0]).scatter(-1, best, 1.0).bool()
        allowed = groups.masked_fill(~wins[..., None], -math.inf).reshape(corrected.shape)
        return allowed.topk(self.shape.experts_used, -1).indices

    def group_scores(self, groups: Tensor) -> Tensor:
        return groups.topk(2, -1).values.sum(-1)

    def head(self, x: Tensor) -> Tensor:
        return self.cap(self.linear(x, self.decoder.head) / self.logit_scale(), self.shape.logit_cap, "logits")

    def cap(self, x: Tensor, cap: float | None, where: str) -> Tensor:
        return x if cap is None else torch.tanh(x / cap) * cap

    def logit_scale(self) -> float:
        return self.shape.logit_scale


def in_blocks(step: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, rows: Tensor, *rest: Any) -> Tensor:
    """Wrap `mix`: BLOCK queries at a time, which see no later key. Scores of a long text then fit a cache."""
    *settings, real = rest
    parts = []
    for start in range(0, len(rows), BLOCK):
        some = rows[start : start + BLOCK]
        end = int(some[-1]) + 1
        parts.append(step(q[:, start : start + BLOCK], k[:, :end], v[:, :end], some, *settings, real[:end]))
    return torch.cat(parts, 1)


def gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(QUICK * x)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "quick_gelu": quick_gelu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "relu": F.relu,
}


class MachineSession(Session):
    """A checkpoint folder in a machine: what fixtures are measured in where no engine is requested."""

    def __init__(self, folder: Path, dtype: str) -> None:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.pad, self.end = config["pad_token_id"], config["eos_token_id"]
        self.machine = Machine(read_decoder(folder), getattr(torch, dtype)).wrap("mix", in_blocks)

    def _run(self, ids: Sequence[int], cache: Cache | None = None, padding: int = 0) -> Logits:
        with torch.inference_mode():
            return np.asarray(self.machine.run(ids, cache, padding).float().numpy())

    def logits(self, ids: Sequence[int]) -> Logits:
        return self._run(ids)

    def continued(self, pieces: Sequence[Sequence[int]]) -> Logits:
        cache = Cache(len(self.machine.decoder.layers))
        return np.concatenate([self._run(piece, cache) for piece in pieces])

    def generate(self, prompts: Sequence[Sequence[int]], count: int, *, cache: bool = True) -> list[Reply]:
        longest = max(map(len, prompts))
        return [self._continuation(prompt, longest - len(prompt), count) for prompt in prompts]

    def _continuation(self, prompt: Sequence[int], padding: int, count: int) -> Reply:
        cache = Cache(len(self.machine.decoder.layers))
        first = self._run([self.pad] * padding + list(prompt), cache, padding)[-1]
        return one_by_one(lambda token: self._run([token], cache)[-1], first, count, self.end)
