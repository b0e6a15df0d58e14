"""Faults of recurrent layers: convolutions, states, decays, gated norms, and what is beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from byheart.checkpoints.formats.stock import StockDecoder
from byheart.checkpoints.proof.decoder import DeltaNet, Linear, Mamba2
from byheart.checkpoints.suite.machine import Tensor
from byheart.checkpoints.suite.mutants._base import Mutant, wrapped

Steps = dict[str, Callable[..., Any]]
CACHE, MIXER, NORMS = "batch", "attention", "norms"  # families of mutants


def mutants(decoder: StockDecoder) -> Iterator[Mutant]:
    """All faults of these blocks; none for an architecture without them."""
    kinds = {type(layer.mixer) for layer in decoder.layers}
    found: dict[str, tuple[str, Steps]] = {}
    if kinds & {DeltaNet, Mamba2}:
        found |= _CONVOLUTION | _STATE
    if DeltaNet in kinds:
        found |= _DELTA
    if Mamba2 in kinds:
        found |= _MAMBA
    if any(layer.attention.gate is not None for layer in decoder.layers):
        d = decoder.shape.head_dim
        found |= {
            "attention's gate is ignored": (MIXER, {"gated": lambda step, heads, x, gate: heads}),
            "the next head's gate of attention": (
                MIXER, {"gated": lambda step, heads, x, gate: step(heads, x, _rows_moved(gate, d))},
            ),
        }  # fmt: skip
    if any(layer.mlp.shared_gate is not None for layer in decoder.layers):
        found["shared expert's share ignored"] = "mlp", {"weighed": lambda step, out, x, mlp: out}
    for name, (family, steps) in found.items():
        yield Mutant(name, family, wrapped(decoder, **steps), harmless=name in _HARMLESS)


def _rows_moved(linear: Linear, by: int) -> Linear:
    return replace(linear, weight=np.roll(linear.weight, by, axis=0))


def _rolled(x: Tensor | None, axis: int) -> Tensor | None:
    return None if x is None else torch.roll(x, 1, axis)


def _typed(state: Tensor | None) -> Tensor | None:
    return None if state is None else state.to(torch.bfloat16).to(state.dtype)


_CONVOLUTION: dict[str, tuple[str, Steps]] = {
    "the convolution's last inputs are lost": (CACHE, {"last_inputs": lambda step, held, x, n: step(None, x, n)}),
    "the convolution's last inputs are one place old": (
        CACHE, {"last_inputs": lambda step, held, x, n: step(_rolled(held, 0), x, n)},
    ),
    "the convolution's taps mirrored": (MIXER, {"kernel": lambda step, w: step(w).flip(1)}),
    "the convolution's taps one place earlier": (MIXER, {"kernel": lambda step, w: torch.roll(step(w), -1, 1)}),
    "the convolution without its activation": (MIXER, {"convolved": lambda step, x: x}),
    "the convolution's activation is gelu": (MIXER, {"convolved": lambda step, x: torch.nn.functional.gelu(x)}),
    "the convolution without its bias": (
        MIXER, {"convolve": lambda step, x, c, depth, cache: step(x, replace(c, bias=None), depth, cache)},
    ),
    "recurrent layers read padding": (CACHE, {"read_places": lambda step, real: torch.ones_like(step(real))}),
}  # fmt: skip
_STATE: dict[str, tuple[str, Steps]] = {
    "the state is lost between calls": (CACHE, {"held_state": lambda step, state, shape: step(None, shape)}),
    "the state is halved between calls": (
        CACHE, {"held_state": lambda step, s, shape: step(None if s is None else s / 2, shape)},
    ),
    "the state of the next head": (CACHE, {"held_state": lambda step, s, shape: step(_rolled(s, 0), shape)}),
    "the state in bfloat16 between calls": (CACHE, {"held_state": lambda step, s, shape: step(_typed(s), shape)}),
    "A is the stored number, not its exponential": (MIXER, {"rate": lambda step, decay: decay.abs()}),
    "A is 1 for every head": (MIXER, {"rate": lambda step, decay: torch.ones_like(decay)}),
    "the next head's A": (MIXER, {"rate": lambda step, decay: torch.roll(step(decay), 1, 0)}),
    "states decay twice as fast": (MIXER, {"rate": lambda step, decay: 2 * step(decay)}),
    "the gate is a sigmoid": (NORMS, {"gate": lambda step, z: torch.sigmoid(z)}),
    "the gate is ignored": (NORMS, {"gate": lambda step, z: torch.ones_like(z)}),
}  # fmt: skip


def _gate_first(step: Callable[..., Tensor], y: Tensor, z: Tensor, norm: Any) -> Tensor:
    gated = y * (z * torch.sigmoid(z))
    return gated / (gated.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * torch.from_numpy(norm.weight.copy())


_DELTA: dict[str, tuple[str, Steps]] = {
    "queries and keys keep their length": (MIXER, {"unit_length": lambda step, x: x / 16}),
    "key heads tiled, not repeated": (MIXER, {"shared_keys": lambda step, x, n: x.repeat(n // len(x), 1, 1)}),
    "queries and keys exchanged": (MIXER, {"delta_rule": lambda step, q, k, v, *rest: step(k / 8, 8 * q, v, *rest)}),
    "every write replaces": (MIXER, {"write_share": lambda step, b: torch.ones_like(b)}),
    "the next head's write": (MIXER, {"write_share": lambda step, b: torch.roll(step(b), 1, -1)}),
    "writes are not squashed": (MIXER, {"write_share": lambda step, b: b.clamp(0, 1)}),
    "nothing decays": (MIXER, {"log_decay": lambda step, a, mixer: torch.zeros_like(step(a, mixer))}),
    "the step's bias is ignored": (
        MIXER, {"log_decay": lambda step, a, mixer: step(a, replace(mixer, step=0 * mixer.step))},
    ),
    "what is written is not compared with the state": (
        MIXER, {"delta_rule": lambda step, q, k, v, g, b, s: _without_comparison(q, k, v, g, b, s)},
    ),
    "the gate comes before the norm": (NORMS, {"norm_by_head": _gate_first}),
    "the gated norm's weight + 1": (
        NORMS, {"norm_by_head": lambda step, y, z, norm: step(y, z, replace(norm, weight=norm.weight + 1))},
    ),
    "the gated norm runs over all heads": (NORMS, {"norm_by_head": lambda *arguments: _over_all(*arguments)}),
}  # fmt: skip


def _without_comparison(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, share: Tensor, state: Tensor) -> Any:
    total = decay.cumsum(1)
    apart = torch.exp((total[:, :, None] - total[:, None, :]).clamp(max=0.0)).tril()
    written = share[..., None] * v
    out = ((q @ k.transpose(1, 2)) * apart) @ written + total.exp()[..., None] * (q @ state)
    left = (total[:, -1:] - total).exp()[..., None]
    return out, total[:, -1:].exp()[..., None] * state + (left * k).transpose(1, 2) @ written


def _over_all(step: Callable[..., Tensor], y: Tensor, z: Tensor, norm: Any) -> Tensor:
    own = (y.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt()
    every = (y.pow(2).mean((0, 2), keepdim=True) + norm.eps).sqrt()
    return step(y, z, norm) * own / every


_MAMBA: dict[str, tuple[str, Steps]] = {
    "D is ignored": (MIXER, {"skip": lambda step, x: torch.zeros_like(x)}),
    "D counts twice": (MIXER, {"skip": lambda step, x: 2 * x}),
    "the time step's bias is ignored": (
        MIXER, {"time_step": lambda step, dt, mixer: step(dt, replace(mixer, step=0 * mixer.step))},
    ),
    "the time step is not softened": (MIXER, {"time_step": lambda step, dt, mixer: step(dt, mixer).clamp(min=0.01)}),
    "time steps are at most 0.1": (MIXER, {"time_step": lambda step, dt, mixer: step(dt, mixer).clamp(max=0.1)}),
    "the next head's time step": (MIXER, {"time_step": lambda step, dt, mixer: torch.roll(step(dt, mixer), 1, -1)}),
    "x is not multiplied by the time step": (
        MIXER, {"scan": lambda step, x, b, c, dt, a, s: step(x / dt.clamp(min=1e-6)[..., None], b, c, dt, a, s)},
    ),
    "the norm comes before the gate": (
        NORMS, {"norm_over_heads": lambda step, y, z, mixer: step(y, torch.full_like(z, 30.0), mixer) / 30 * _silu(z)},
    ),
    "the norm runs over each head": (
        NORMS, {"norm_over_heads": lambda step, y, z, mixer: step(y, z, replace(mixer, norm_groups=mixer.heads))},
    ),
}  # fmt: skip


def _silu(z: Tensor) -> Tensor:
    return z * torch.sigmoid(z)


_HARMLESS = ("the state in bfloat16 between calls",)
