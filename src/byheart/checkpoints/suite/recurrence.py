"""The machine's steps for recurrent layers: a causal convolution, Gated DeltaNet, Mamba-2.

A piece of a text is one chunk: its places are computed side by side from the cached state, so a prompt
in one pass and single tokens take different ways through the same recurrence, as in engines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from byheart.checkpoints.proof.decoder import Convolution, DeltaNet, Mamba2, Norm
from byheart.errors import MissingExtraError

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    raise MissingExtraError("asking mutants", "torch") from None

Tensor: TypeAlias = Any  # torch.Tensor; torch comes without types here
LENGTH_EPS = 1e-6


class RecurrentSteps:
    """Every method is a step that a mutant may wrap; the other steps are the machine's."""

    dtype: Any
    wide: Any
    tensor: Callable[..., Tensor]
    linear: Callable[..., Tensor]

    def recur(self, x: Tensor, mixer: DeltaNet | Mamba2, depth: int, cache: Any) -> Tensor:
        """What a mixer adds: `x` are the normed places of this piece, of which padding is not read."""
        x = x * self.read_places(cache.real[-len(x) :])[:, None]
        if isinstance(mixer, DeltaNet):
            return self.linear(self.delta_net(x, mixer, depth, cache), mixer.o)
        return self.linear(self.mamba2(x, mixer, depth, cache), mixer.o)

    def read_places(self, real: Tensor) -> Tensor:
        return real.to(self.dtype)

    def convolve(self, x: Tensor, convolution: Convolution, depth: int, cache: Any) -> Tensor:
        """silu of the convolution over this piece and the last inputs of the one before, which the cache holds."""
        kernel = self.kernel(self.tensor(convolution.weight, wide=True))
        every = torch.cat([self.last_inputs(cache.inputs[depth], x, kernel.shape[1] - 1), x])
        cache.inputs[depth] = every[len(every) - kernel.shape[1] + 1 :]
        found = sum(kernel[:, j] * every[j : j + len(x)].to(self.wide) for j in range(kernel.shape[1]))
        if convolution.bias is not None:
            found = found + self.tensor(convolution.bias, wide=True)
        return self.convolved(found.to(self.dtype))

    def kernel(self, weight: Tensor) -> Tensor:
        """(channels, taps): the last tap meets the newest place."""
        return weight

    def last_inputs(self, held: Tensor | None, x: Tensor, count: int) -> Tensor:
        return torch.zeros(count, x.shape[1], dtype=x.dtype) if held is None else held

    def convolved(self, x: Tensor) -> Tensor:
        return F.silu(x)

    def held_state(self, state: Tensor | None, shape: tuple[int, ...]) -> Tensor:
        """The state before this piece."""
        return torch.zeros(shape, dtype=self.wide) if state is None else state

    def delta_net(self, x: Tensor, mixer: DeltaNet, depth: int, cache: Any) -> Tensor:
        parts = [self.linear(x, layer) for layer in (mixer.q, mixer.k, mixer.v)]
        mixed = self.convolve(torch.cat(parts, 1), mixer.convolution, depth, cache).to(self.wide)
        q, k, v = mixed.split([part.shape[1] for part in parts], 1)
        q, k = (self.shared_keys(self.unit_length(self.by_head(y, mixer.key_heads)), mixer.heads) for y in (q, k))
        v = self.by_head(v, mixer.heads)
        share = self.write_share(self.linear(x, mixer.b)).to(self.wide).T
        decay = self.log_decay(self.linear(x, mixer.a), mixer).T
        state = self.held_state(cache.states[depth], (mixer.heads, k.shape[2], v.shape[2]))
        y, cache.states[depth] = self.delta_rule(q * self.query_scale(q.shape[2]), k, v, decay, share, state)
        z = self.by_head(self.linear(x, mixer.z), mixer.heads)
        normed = self.norm_by_head(y.to(self.dtype), z, mixer.norm)
        return normed.transpose(0, 1).reshape(len(x), -1)

    def by_head(self, x: Tensor, heads: int) -> Tensor:
        """(heads, places, dimensions)"""
        return x.reshape(len(x), heads, -1).transpose(0, 1)

    def unit_length(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + LENGTH_EPS)

    def query_scale(self, size: int) -> float:
        return float(size**-0.5)

    def shared_keys(self, x: Tensor, heads: int) -> Tensor:
        """Each key head once for every value head of its group."""
        return x.repeat_interleave(heads // len(x), 0)

    def write_share(self, b: Tensor) -> Tensor:
        return torch.sigmoid(b)

    def log_decay(self, a: Tensor, mixer: DeltaNet) -> Tensor:
        rate = self.rate(self.tensor(mixer.decay, wide=True))
        return -rate * F.softplus(a.to(self.wide) + self.tensor(mixer.step, wide=True))

    def rate(self, decay: Tensor) -> Tensor:
        """A of its stored logarithm."""
        return decay.exp()

    def delta_rule(
        self, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, share: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Outputs (heads, places, value) and the state (heads, key, value) after them."""
        total = decay.cumsum(1)
        apart = self.decayed(total[:, :, None] - total[:, None, :])
        overlap = (share[..., None] * (k @ k.transpose(1, 2)) * apart).tril(-1)
        before = self.decayed(total)[..., None]
        wanted = share[..., None] * (v - before * (k @ state))
        written = torch.linalg.solve_triangular(overlap, wanted, upper=False, unitriangular=True)
        out = before * (q @ state) + ((q @ k.transpose(1, 2)) * apart).tril() @ written
        left = self.decayed(total[:, -1:] - total)[..., None]
        return out, before[:, -1:] * state + (left * k).transpose(1, 2) @ written

    def decayed(self, exponent: Tensor) -> Tensor:
        """Exponentials; what would come later than it is read has a positive exponent, and is masked."""
        return torch.exp(exponent.clamp(max=0.0))

    def norm_by_head(self, y: Tensor, z: Tensor, norm: Norm) -> Tensor:
        wide = y.to(self.wide)
        normed = (wide / (wide.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt()).to(y.dtype) * self.tensor(norm.weight)
        return (normed.to(self.wide) * self.gate(z.to(self.wide))).to(y.dtype)

    def gate(self, z: Tensor) -> Tensor:
        return F.silu(z)

    def mamba2(self, x: Tensor, mixer: Mamba2, depth: int, cache: Any) -> Tensor:
        parts = [self.linear(x, layer) for layer in (mixer.x, mixer.b, mixer.c)]
        mixed = self.convolve(torch.cat(parts, 1), mixer.convolution, depth, cache)
        mixed = mixed * self.read_places(cache.real[-len(x) :])[:, None]
        value, b, c = (part.to(self.wide) for part in mixed.split([part.shape[1] for part in parts], 1))
        value = self.by_head(value, mixer.heads)
        b, c = (self.shared_keys(self.by_head(part, mixer.groups), mixer.heads) for part in (b, c))
        step = self.time_step(self.linear(x, mixer.dt), mixer).to(self.wide).T
        rate = self.rate(self.tensor(mixer.decay, wide=True))
        state = self.held_state(cache.states[depth], (mixer.heads, value.shape[2], b.shape[2]))
        y, cache.states[depth] = self.scan(value, b, c, step, rate, state)
        y = y + self.skip(self.tensor(mixer.skip, wide=True)[:, None, None] * value)
        y = y.to(self.dtype).transpose(0, 1).reshape(len(x), -1)
        return self.norm_over_heads(y, self.linear(x, mixer.z), mixer)

    def time_step(self, dt: Tensor, mixer: Mamba2) -> Tensor:
        return F.softplus(dt + self.tensor(mixer.step))

    def scan(self, x: Tensor, b: Tensor, c: Tensor, step: Tensor, rate: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs (heads, places, dimensions) and the state (heads, dimensions, state) after them."""
        total = -(rate[:, None] * step).cumsum(1)
        apart = self.decayed(total[:, :, None] - total[:, None, :]).tril()
        written = step[..., None] * x
        out = ((c @ b.transpose(1, 2)) * apart) @ written + self.decayed(total)[..., None] * (c @ state.transpose(1, 2))
        left = self.decayed(total[:, -1:] - total)[..., None]
        return out, self.decayed(total[:, -1:])[..., None] * state + (left * written).transpose(1, 2) @ b

    def skip(self, passed: Tensor) -> Tensor:
        return passed

    def norm_over_heads(self, y: Tensor, z: Tensor, mixer: Mamba2) -> Tensor:
        """The gate first, then the norm over all heads, or over each of some parts of them."""
        gated = y.to(self.wide) * self.gate(z.to(self.wide))
        if mixer.norm is None:
            return gated.to(self.dtype)
        parts = gated.reshape(len(gated), mixer.norm_groups, -1)
        size = (parts.pow(2).mean(-1, keepdim=True) + mixer.norm.eps).sqrt()
        return (parts / size).reshape(gated.shape).to(self.dtype) * self.tensor(mixer.norm.weight)
