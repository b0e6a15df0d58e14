"""Faults put into stock Transformers by hand: how many change a token of a fixture, in bfloat16.

    python experiments/fresh_faults.py llama            # counts per family, and the faults that no token shows
    python experiments/fresh_faults.py FOLDER --only rotary

Sensors were changed after the first results of this list (86 % in Llama), so later figures are optimistic.
Every fault replaces a step of Transformers' own code (attention, rotary positions, norms, layers), or of the loop that
decodes. `honest` lists approximations that engines make on purpose: none may change a token. `silent` faults cannot
change the most likely token of any model.

The listed prompts, batches and sensors of the fixture are evaluated until one token differs. A fault that treats
prefill and decoding alike needs one pass per prompt; the others decode token by token.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from byheart.checkpoints.suite.cases import SuiteCase, cached_fixture, read_cases

Tensor = torch.Tensor
Fault = Callable[["Stock"], None]
F = nn.functional


@dataclass(frozen=True)
class Call:
    """One call of attention: its layer, the tokens that come in and those that are in the cache, the rows' padding."""

    layer: int
    last: bool
    new: int
    seen: int
    heads: int
    pads: tuple[int, ...]

    @property
    def decoding(self) -> bool:
        return self.new == 1

    def distance(self) -> Tensor:
        """(new, seen): how far back each key is."""
        return torch.arange(self.seen - self.new, self.seen)[:, None] - torch.arange(self.seen)[None]


@dataclass(eq=False)
class Stock:
    """A stock model in bfloat16 with replaceable steps; `reset` restores it."""

    folder: Path
    model: Any = None
    steps: dict[str, Callable[..., Any]] = field(default_factory=dict)
    decodes: bool = False  # the fault needs decoding token by token
    chunk: int = 0  # tokens of a prefill's chunk; 0: all at once
    pads: tuple[int, ...] = (0,)
    _undo: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        transformers.utils.logging.disable_progress_bar()
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            self.folder, dtype=torch.bfloat16, attn_implementation="eager"
        ).eval()
        self.code = sys.modules[type(self.model).__module__]
        self.code.eager_attention_forward = self._attention  # type: ignore[attr-defined]
        self.body = self.model.model
        self.layers, self.config = list(self.body.layers), self.model.config
        self.count = len(self.layers)

    def set(self, thing: Any, name: str, value: Any) -> None:
        """Replace an attribute until `reset`."""
        own = name in vars(thing)
        old = getattr(thing, name)
        self._undo.append(lambda: setattr(thing, name, old) if own else delattr(thing, name))
        setattr(thing, name, value)

    def data(self, parameter: Tensor, value: Tensor) -> None:
        """Replace a parameter's values until `reset`."""
        old = parameter.data
        self._undo.append(lambda: setattr(parameter, "data", old))
        parameter.data = value.to(old.dtype)

    def after(self, module: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
        """Change what a module returns."""

        def hook(_: nn.Module, inputs: Any, out: Any) -> Any:
            return (change(out[0]), *out[1:]) if isinstance(out, tuple) else change(out)

        self._undo.append(module.register_forward_hook(hook).remove)

    def before(self, module: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
        """Change a module's first input."""

        def hook(_: nn.Module, inputs: Any) -> Any:
            return (change(inputs[0]), *inputs[1:])

        self._undo.append(module.register_forward_pre_hook(hook).remove)

    def reset(self) -> None:
        while self._undo:
            self._undo.pop()()
        self.steps, self.decodes, self.chunk = {}, False, 0

    def norms(self, final: bool = True) -> list[nn.Module]:
        found = [m for layer in self.layers for m in layer.children() if "Norm" in type(m).__name__]
        return [*found, *([self.body.norm] if final else [])]

    def _attention(
        self, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float, dropout: float = 0.0,
        **more: Any,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Transformers' eager attention, step by step."""
        call = Call(module.layer_idx, module.layer_idx == self.count - 1, query.shape[2], key.shape[2],
                    query.shape[1], self.pads)  # fmt: skip
        query, key, value = self._step("stored", lambda q, k, v, c: (q, k, v), query, key, value, call)
        groups = query.shape[1] // key.shape[1]
        key, value = self._step("groups", _repeated, key, value, groups)
        scores = query @ key.transpose(2, 3) * self._step("scale", lambda s, c: s, scaling, call)
        if more.get("softcap"):
            scores = torch.tanh(scores / more["softcap"]) * more["softcap"]
        scores = self._step("scores", lambda s, c: s, scores, call)
        hidden = torch.zeros(1, dtype=scores.dtype) if mask is None else mask[..., : key.shape[2]]
        hidden = self._step("mask", lambda m, c: m, hidden, call)
        weights = self._step("softmax", lambda s, q, c: s.softmax(-1, torch.float32).to(q.dtype), scores + hidden,
                             query, call)  # fmt: skip
        weights = self._step("weights", lambda w, c: w, weights, call)
        out = self._step("mixed", lambda o, c: o, weights @ value, call)
        return out.transpose(1, 2).contiguous(), weights

    def _step(self, name: str, plain: Callable[..., Any], *given: Any) -> Any:
        return self.steps[name](*given) if name in self.steps else plain(*given)

    def differs(self, case: SuiteCase) -> bool:
        """Whether a token of a case differs."""
        content = case.content
        if case.verb == "batch":
            return self._decode(content["ids"], content["continuation_ids"], case)
        ids, reply = content["ids"], content["continuation_ids"]
        if self.decodes:
            return self._decode([ids], [reply], case)
        self.pads = (0,)
        return bool(self._forward([[*ids, *reply[:-1]]], (0,), None, 0)[0, len(ids) - 1 :].argmax(-1).tolist() != reply)

    def _decode(self, prompts: Sequence[Sequence[int]], reply: Sequence[Sequence[int]], case: SuiteCase) -> bool:
        longest, pad = max(map(len, prompts)), case.expected["tokens"]["pad"]
        pads = self._step("pads", lambda p: p, tuple(longest - len(p) for p in prompts))
        rows = [[pad] * (longest - len(p)) + list(p) for p in prompts]
        cache, at = transformers.DynamicCache(config=self.config), 0
        self.pads = pads
        for place in range(len(reply[0])):
            while True:
                end = len(rows[0]) if not self.chunk else min(len(rows[0]), at + self.chunk)
                logits = self._forward([row[at:end] for row in rows], pads, cache, at)
                at = end
                if at == len(rows[0]):
                    break
            answers = self._step("chosen", lambda a: a, logits[:, -1].argmax(-1).tolist())
            if answers != [one[place] for one in reply]:
                return True
            rows = [[*row, answer] for row, answer in zip(rows, answers, strict=True)]
        return False

    def _forward(self, rows: Sequence[Sequence[int]], pads: Sequence[int], cache: Any, start: int) -> Tensor:
        ids = torch.tensor([list(row) for row in rows])
        place = torch.arange(start, start + ids.shape[1])[None] - torch.tensor(pads)[:, None]
        positions = self._step("positions", lambda p, c: p, place.clamp_min(0), cache is not None and start > 0)
        given = {}
        if any(pads) or "padding" in self.steps:
            seen = torch.arange(start + ids.shape[1])[None] >= torch.tensor(pads)[:, None]
            given["attention_mask"] = self._step("padding", lambda s: s, seen.long())
        with torch.inference_mode():
            return self.model(ids, position_ids=positions, past_key_values=cache, use_cache=cache is not None,
                              **given).logits  # fmt: skip


def _repeated(key: Tensor, value: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    return key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)


# ---- families: each yields a name and a function that breaks the model


def _steps(decodes: bool = False, chunk: int = 0, **steps: Callable[..., Any]) -> Fault:
    def change(stock: Stock) -> None:
        stock.steps |= steps
        stock.decodes, stock.chunk = decodes, chunk

    return change


def scores() -> Iterator[tuple[str, Fault]]:
    for percent in (-5, -3, -2, 2, 3, 5):
        yield f"scores {percent:+} %", _steps(scale=lambda s, c, f=1 + percent / 100: s * f)
    yield "scores +5 % in the last layer", _steps(scale=lambda s, c: s * (1.05 if c.last else 1))
    yield "scores +5 % in the first layer", _steps(scale=lambda s, c: s * (1 if c.layer else 1.05))
    yield "scores -4 % while decoding", _steps(True, scale=lambda s, c: s * (0.96 if c.decoding else 1))
    yield "scale of head size plus 8", _steps(scale=lambda s, c: s * math.sqrt(64 / 72))
    yield "scale of hidden size by heads", _steps(scale=lambda s, c: s * math.sqrt(64 / 48))
    yield "scores capped at 50", _steps(scores=lambda s, c: 50 * torch.tanh(s / 50))
    yield "scores capped at 30 in the last layer", _steps(scores=lambda s, c: 30 * torch.tanh(s / 30) if c.last else s)
    yield "scores clamped to 20", _steps(scores=lambda s, c: s.clamp(-20, 20))
    yield "a one more in the denominator", _steps(softmax=_off_by_one)
    yield "largest score not found over all blocks, clamped", _steps(softmax=lambda s, q, c: _blocks(s, q, c))
    yield "slope of 1/256 per place", _steps(scores=lambda s, c: s - c.distance() / 256)
    yield "weights +2 %", _steps(weights=lambda w, c: w * 1.02)
    yield "weights -2 % in the last layer", _steps(weights=lambda w, c: w * (0.98 if c.last else 1))
    yield "weights below 1/512 dropped", _steps(weights=lambda w, c: w * (w > 1 / 512))
    yield "only the 64 largest weights", _steps(weights=_largest)
    yield "base-2 exponential", _steps(scores=lambda s, c: s * math.log(2))
    yield "one head's scores +6 %", _steps(scores=_one_head(1.06))


def _off_by_one(scores: Tensor, query: Tensor, call: Call) -> Tensor:
    wide = torch.cat([scores.float(), torch.zeros_like(scores[..., :1]).float()], -1)
    return wide.softmax(-1)[..., :-1].to(query.dtype)


def _blocks(scores: Tensor, query: Tensor, call: Call) -> Tensor:
    """The running maximum of a split softmax starts again after 512 places."""
    wide = scores.float()
    if wide.shape[-1] <= 512:
        return wide.softmax(-1).to(query.dtype)
    parts = [part.softmax(-1) for part in wide.split(512, -1)]
    return (torch.cat(parts, -1) / len(parts)).to(query.dtype)


def _largest(weights: Tensor, call: Call) -> Tensor:
    if weights.shape[-1] <= 64:
        return weights
    kept = weights * (weights >= weights.topk(64, -1).values[..., -1:])
    return kept / kept.sum(-1, keepdim=True)


def _one_head(factor: float) -> Callable[[Tensor, Call], Tensor]:
    def change(scores: Tensor, call: Call) -> Tensor:
        return torch.cat([scores[:, :1] * factor, scores[:, 1:]], 1)

    return change


def _frequencies(change: Callable[[Tensor], Tensor]) -> Fault:
    def fault(stock: Stock) -> None:
        for part in stock.body.modules():
            for name in [n for n, _ in part.named_buffers(recurse=False) if n.endswith("inv_freq")]:
                old = getattr(part, name)
                stock._undo.append(lambda part=part, name=name, old=old: setattr(part, name, old))  # type: ignore[misc]
                setattr(part, name, change(old.clone()))

    return fault


def _times(where: slice, factor: float) -> Fault:
    def change(f: Tensor) -> Tensor:
        f[where] *= factor
        return f

    return _frequencies(change)


def _base(factor: float) -> Fault:
    return _frequencies(lambda f: f * factor ** -(torch.arange(len(f)) / len(f)))


def _rotation(change: Callable[..., Any]) -> Fault:
    """`change(original, q, k, cos, sin)`."""

    def fault(stock: Stock) -> None:
        old = stock.code.apply_rotary_pos_emb  # type: ignore[attr-defined]
        stock.set(stock.code, "apply_rotary_pos_emb", lambda q, k, c, s, *a, **b: change(old, q, k, c, s, *a, **b))

    return fault


def rotary() -> Iterator[tuple[str, Fault]]:
    for factor in (0.5, 0.9, 0.98, 0.99, 1.01, 1.02, 1.1, 2.0):
        yield f"base {factor} times", _base(factor)
    for factor in (0.97, 1.03, 1.25):
        yield f"positions {factor} times", _frequencies(lambda f, x=factor: f * x)
    yield "base of 10,000", lambda stock: _base(10_000 / stock.config.rope_parameters["rope_theta"])(stock)
    yield "Llama 3's scaling", _frequencies(_llama3)
    yield "YaRN's frequencies", _frequencies(lambda f: f * torch.linspace(1, 0.25, len(f)).clamp_min(0.3))
    yield "fastest frequency +1 %", _times(slice(0, 1), 1.01)
    yield "second frequency -1 %", _times(slice(1, 2), 0.99)
    yield "eighth frequency +3 %", _times(slice(7, 8), 1.03)
    yield "sixteenth frequency +5 %", _times(slice(15, 16), 1.05)
    yield "a slow frequency (24) +10 %", _times(slice(23, 24), 1.1)
    yield "last frequency twice as fast", _times(slice(-1, None), 2.0)
    yield "last frequency not turned", _times(slice(-1, None), 0.0)
    yield "last quarter not turned", _frequencies(lambda f: f * (torch.arange(len(f)) < 0.75 * len(f)))
    yield "slower half +4 %", _frequencies(lambda f: f * torch.where(torch.arange(len(f)) < len(f) // 2, 1.0, 1.04))
    yield "faster half -1 %", _frequencies(lambda f: f * torch.where(torch.arange(len(f)) < len(f) // 2, 0.99, 1.0))
    yield "frequencies in bfloat16", _frequencies(lambda f: f.bfloat16().float())
    yield "neighbours exchanged in the middle", _frequencies(_exchanged)
    yield "cos and sin 1.05 times", _rotation(lambda old, q, k, c, s, *a, **b: old(q, k, 1.05 * c, 1.05 * s, *a, **b))
    yield "turned the other way", _rotation(lambda old, q, k, c, s, *a, **b: old(q, k, c, -s, *a, **b))
    yield "neighbours turn together", _rotation(_interleaved)
    yield "keys not turned", _rotation(lambda old, q, k, *a, **b: (old(q, k, *a, **b)[0], k))
    yield "queries one place on", _rotation(_queries_ahead)
    yield "first quarter of a head not turned", _rotation(_kept)
    for most in (256, 512, 1024):
        yield f"positions end at {most}", _steps(True, positions=lambda p, c, m=most: p.clamp(max=m - 1))
    yield "positions start again at 512", _steps(True, positions=lambda p, c: p % 512)
    yield "positions in bfloat16", _steps(positions=lambda p, c: p.bfloat16())


def _llama3(f: Tensor) -> Tensor:
    length = 2 * math.pi / f
    low, high, before = 1.0, 4.0, 8192
    smooth = ((before / length - low) / (high - low)).clamp(0, 1)
    return smooth * f + (1 - smooth) * f / 8


def _exchanged(f: Tensor) -> Tensor:
    middle = len(f) // 2
    f[[middle, middle + 1]] = f[[middle + 1, middle]]
    return f


def _interleaved(old: Any, q: Tensor, k: Tensor, c: Tensor, s: Tensor, *a: Any, **b: Any) -> Any:
    n = c.shape[-1]
    order = torch.arange(n).view(2, -1).T.reshape(-1)
    back = torch.argsort(order)

    def moved(x: Tensor, by: Tensor) -> Tensor:
        return torch.cat([x[..., :n][..., by], x[..., n:]], -1)

    q, k = old(moved(q, back), moved(k, back), c, s, *a, **b)
    return moved(q, order), moved(k, order)


def _queries_ahead(old: Any, q: Tensor, k: Tensor, c: Tensor, s: Tensor, *a: Any, **b: Any) -> Any:
    ahead = [torch.cat([x[:, 1:], x[:, -1:]], 1) for x in (c, s)]
    return old(q, k, *ahead, *a, **b)[0], old(q, k, c, s, *a, **b)[1]


def _kept(old: Any, q: Tensor, k: Tensor, *rest: Any, **b: Any) -> Any:
    d = q.shape[-1] // 8
    x, y = old(q, k, *rest, **b)
    return torch.cat([q[..., :d], x[..., d:]], -1), torch.cat([k[..., :d], y[..., d:]], -1)


def _hide(seen: Callable[[Call], Tensor], where: Callable[[Call], bool] = lambda c: True) -> Callable[..., Tensor]:
    """A step that hides keys: `seen` (new, seen)."""

    def change(mask: Tensor, call: Call) -> Tensor:
        return mask.masked_fill(~seen(call), torch.finfo(mask.dtype).min) if where(call) else mask

    return change


def windows() -> Iterator[tuple[str, Fault]]:
    for most in (128, 256, 512, 1024):
        yield f"a window of {most}", _steps(mask=_hide(lambda c, m=most: c.distance() < m))
    for most in (128, 512):
        yield (
            f"a window of {most} in the last layer",
            _steps(mask=_hide(lambda c, m=most: c.distance() < m, lambda c: c.last)),
        )
    yield "a window of 256 while decoding", _steps(True, mask=_hide(lambda c: c.distance() < 256, lambda c: c.decoding))
    yield "blocks of 256 that do not see each other", _steps(mask=_hide(_same_block))
    yield (
        "first token hidden in the last layer",
        _steps(mask=_hide(lambda c: (c.distance() == 0) | (torch.arange(c.seen) > 0), lambda c: c.last)),
    )
    yield (
        "first token hidden after 700",
        _steps(mask=_hide(lambda c: (c.distance() == 0) | (torch.arange(c.seen) > 0) | (_rows(c) < 700))),
    )
    yield (
        "four first tokens and the last 300",
        _steps(mask=_hide(lambda c: (c.distance() < 300) | (torch.arange(c.seen) < 4))),
    )
    yield "the token itself hidden", _steps(mask=_hide(lambda c: (c.distance() > 0) | (_rows(c) == 0)))
    yield "the token before hidden", _steps(mask=_hide(lambda c: c.distance() != 1))
    yield "the next token seen", _steps(mask=_ahead(1))
    yield "no mask in prefill", _steps(mask=lambda m, c: torch.zeros_like(m))
    yield (
        "last 32 keys of a long prefill not seen",
        _steps(
            mask=_hide(lambda c: (torch.arange(c.seen) < c.seen - c.seen % 32) | (c.distance() < 8) | (_rows(c) < 64))
        ),
    )


def _rows(call: Call) -> Tensor:
    return torch.arange(call.seen - call.new, call.seen)[:, None]


def _same_block(call: Call) -> Tensor:
    return _rows(call) // 256 == torch.arange(call.seen)[None] // 256


def _ahead(by: int) -> Callable[..., Tensor]:
    def change(mask: Tensor, call: Call) -> Tensor:
        far = torch.finfo(mask.dtype).min
        return torch.zeros(1, 1, call.new, call.seen, dtype=mask.dtype).masked_fill(call.distance() < -by, far)

    return change


def _entries(change: Callable[[Tensor, Tensor, Call], None], where: Callable[[Call], bool] = lambda c: True) -> Fault:
    """What the cache holds: `change` writes into copies of keys and values (rows, heads, places, dimensions)."""

    def stored(q: Tensor, k: Tensor, v: Tensor, call: Call) -> tuple[Tensor, Tensor, Tensor]:
        k, v = k.clone(), v.clone()
        if where(call):
            change(k, v, call)
        return q, k, v

    return _steps(True, stored=stored)


def caches() -> Iterator[tuple[str, Fault]]:
    def decoding(c: Call) -> bool:
        return c.decoding

    def late(c: Call) -> bool:
        return c.decoding and c.last

    yield "block 1 holds block 0's values", _entries(lambda k, v, c: _copy(v, 0, 16, 16), decoding)
    yield "block 1 holds block 0's values, last layer", _entries(lambda k, v, c: _copy(v, 0, 16, 16), late)
    yield "block 4 holds another's keys and values", _entries(lambda k, v, c: _both(k, v, 16, 64), decoding)
    yield "block 4 stale in the last layer", _entries(lambda k, v, c: _both(k, v, 16, 64), late)
    yield "old blocks' values are zero, last layer", _entries(lambda k, v, c: _zero(v, 32, 48), late)
    yield "old blocks' values are zero", _entries(lambda k, v, c: _zero(v, 32, 48), decoding)
    yield "newest entry not written", _entries(lambda k, v, c: _copy_last(k, v), decoding)
    yield "every 64th entry lost", _entries(lambda k, v, c: _zero(v, 63, 64, k), decoding)
    yield "values of the cache 0.97 times", _entries(lambda k, v, c: v.mul_(0.97))
    yield "keys of the cache 1.04 times", _entries(lambda k, v, c: k.mul_(1.04))
    yield "keys of old entries 0.95 times", _entries(lambda k, v, c: k[:, :, :-64].mul_(0.95), decoding)
    yield "last 8 entries of old blocks swapped", _entries(_swap, decoding)
    yield "one key-value head's values 0.95 times", _entries(lambda k, v, c: v[:, :1].mul_(0.95))
    yield "entry 0 lost while decoding", _entries(lambda k, v, c: _zero(v, 0, 1, k), decoding)
    yield "values saturate at 1", _entries(lambda k, v, c: v.clamp_(-0.9, 0.9))


def _copy(x: Tensor, source: int, target: int, count: int) -> None:
    if x.shape[2] > target + count:
        x[:, :, target : target + count] = x[:, :, source : source + count].clone()


def _both(k: Tensor, v: Tensor, source: int, target: int) -> None:
    _copy(k, source, target, 16)
    _copy(v, source, target, 16)


def _zero(v: Tensor, start: int, end: int, k: Tensor | None = None) -> None:
    if v.shape[2] > end:
        v[:, :, start:end] = 0
        if k is not None:
            k[:, :, start:end] = 0


def _copy_last(k: Tensor, v: Tensor) -> None:
    k[:, :, -1], v[:, :, -1] = k[:, :, -2].clone(), v[:, :, -2].clone()


def _swap(k: Tensor, v: Tensor, call: Call) -> None:
    if v.shape[2] > 48:
        order = [*range(32, 40)], [*range(40, 48)]
        v[:, :, order[0] + order[1]] = v[:, :, order[1] + order[0]].clone()


def _epsilon(change: Callable[[float], float], which: Callable[[Stock], list[nn.Module]]) -> Fault:
    def fault(stock: Stock) -> None:
        for norm in which(stock):
            name = next(n for n in ("variance_epsilon", "eps") if hasattr(norm, n))
            stock.set(norm, name, change(getattr(norm, name)))

    return fault


def _normed(change: Callable[[nn.Module, Tensor], Tensor]) -> Fault:
    """Another forward of all norms of the stream: `change(norm, x in float32)` is what the weight multiplies."""

    def fault(stock: Stock) -> None:
        for norm in stock.norms():
            plus = 1.0 if "Gemma" in type(norm).__name__ else 0.0

            def forward(x: Tensor, norm: nn.Module = norm, plus: float = plus) -> Tensor:
                return ((norm.weight.float() + plus) * change(norm, x.float())).to(x.dtype)

            stock.set(norm, "forward", forward)

    return fault


def _eps(norm: Any) -> float:
    return float(getattr(norm, "variance_epsilon", None) or norm.eps)


def norms() -> Iterator[tuple[str, Fault]]:
    every = lambda s: s.norms()  # noqa: E731
    for value in (0.0, 1e-6, 1e-5, 1e-3, 1e-2):
        yield f"epsilon {value:g}", _epsilon(lambda e, v=value: v, every)
    yield "epsilon twice as large", _epsilon(lambda e: 2 * e, every)
    yield "epsilon 1e-6 in the first norm", _epsilon(lambda e: 1e-6, lambda s: s.norms()[:1])
    yield "epsilon outside of the root", _normed(lambda n, x: x / (x.pow(2).mean(-1, True).sqrt() + _eps(n)))
    yield (
        "norms take the mean away",
        _normed(lambda n, x: (x - x.mean(-1, True)) / (x.var(-1, keepdim=True, unbiased=False) + _eps(n)).sqrt()),
    )
    yield "sum of squares over all places of 8", _normed(lambda n, x: x / (_eps(n) + _pooled(x)).sqrt())
    yield (
        "mean of squares over the first half",
        _normed(lambda n, x: x * (x[..., : x.shape[-1] // 2].pow(2).mean(-1, True) + _eps(n)).rsqrt()),
    )
    yield "norm's weight plus one", lambda s: [s.data(n.weight, n.weight + 1) for n in s.norms(False)] and None
    yield "norm's weight missing in layer 1", lambda s: s.data(s.norms()[2].weight, torch.ones_like(s.body.norm.weight))
    yield "last norm missing", lambda s: s.set(s.body.norm, "forward", lambda x: x)
    yield "norm's output +3 %", lambda s: [s.after(n, lambda x: 1.03 * x) for n in s.norms(False)] and None
    yield (
        "norm before attention +2 % in the last layer",
        lambda s: s.after(
            next(iter(m for m in s.layers[-1].children() if "Norm" in type(m).__name__)), lambda x: 1.02 * x
        ),
    )
    yield "norms clip at 3", lambda s: [s.after(n, lambda x: x.clamp(-1.5, 1.5)) for n in s.norms()] and None


def _pooled(x: Tensor) -> Tensor:
    found = x.pow(2).mean(-1, True)
    return (found + found.roll(1, 1)) / 2 if x.shape[1] > 1 else found


def _mlps(stock: Stock) -> list[Any]:
    return [m for m in stock.body.modules() if hasattr(m, "act_fn") or hasattr(m, "activation_fn")]


def _activation(change: Callable[[Callable[[Tensor], Tensor]], Callable[[Tensor], Tensor]]) -> Fault:
    def fault(stock: Stock) -> None:
        for mlp in _mlps(stock):
            name = "act_fn" if hasattr(mlp, "act_fn") else "activation_fn"
            old, parent = getattr(mlp, name), mlp
            new = change(old)
            if isinstance(old, nn.Module):
                stock.set(old, "forward", new if new is not old else old)
            else:
                stock.set(parent, name, new)

    return fault


def _of(old: Any) -> Callable[[Tensor], Tensor]:
    """The function of an activation, before its module is changed."""
    return type(old).forward.__get__(old) if isinstance(old, nn.Module) else old


def _changed(change: Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]) -> Fault:
    def new(old: Any) -> Callable[[Tensor], Tensor]:
        function = _of(old)
        return lambda x: change(function, x)

    return _activation(new)


def activations() -> Iterator[tuple[str, Fault]]:
    plain = {
        "relu": F.relu, "gelu of erf": F.gelu, "quick gelu": lambda x: x * torch.sigmoid(1.702 * x),
        "silu of slope 1.03": lambda x: x * torch.sigmoid(1.03 * x), "hard silu": F.hardswish,
        "leaky relu": F.leaky_relu, "relu squared": lambda x: F.relu(x) ** 2, "mish": F.mish,
    }  # fmt: skip
    for name, function in plain.items():
        yield f"activation: {name}", _activation(lambda old, f=function: f)
    yield "activation +1 %", _changed(lambda f, x: 1.01 * f(x))
    yield "activation +3 %", _changed(lambda f, x: 1.03 * f(x))
    yield "gate clamped at 7", _changed(lambda f, x: f(x.clamp(max=7)))
    yield "no activation below -4", _changed(lambda f, x: f(x) * (x > -4))


def _branch(kind: str, change: Callable[[Tensor], Tensor], last: bool = False) -> Fault:
    def fault(stock: Stock) -> None:
        for layer in stock.layers[-1:] if last else stock.layers:
            names = ("self_attn",) if kind == "attention" else ("mlp", "block_sparse_moe", "feed_forward")
            module = next(m for name, m in layer.named_children() if name in names)
            stock.after(module, change)

    return fault


def multipliers() -> Iterator[tuple[str, Fault]]:
    for percent in (-3, 2, 3):
        for kind in ("attention", "mlp"):
            yield f"{kind} branch {percent:+} %", _branch(kind, lambda x, f=1 + percent / 100: x * f)
    yield "attention branch +3 % in the last layer", _branch("attention", lambda x: 1.03 * x, last=True)
    yield "mlp branch +3 % in the last layer", _branch("mlp", lambda x: 1.03 * x, last=True)
    yield "embedding +3 %", lambda s: s.after(s.body.embed_tokens, lambda x: 1.03 * x)
    yield "embedding -3 %", lambda s: s.after(s.body.embed_tokens, lambda x: 0.97 * x)
    yield (
        "embedding times the root of the hidden size",
        lambda s: s.after(s.body.embed_tokens, lambda x: x * math.sqrt(s.config.hidden_size)),
    )
    yield "stream +2 % between layers", lambda s: s.before(s.layers[1], lambda x: 1.02 * x)
    yield "queries +3 %", lambda s: [s.after(p, lambda x: 1.03 * x) for p in _named(s, "q_proj", "qkv_proj")] and None
    yield "values -3 %", _entries(lambda k, v, c: v.mul_(0.97))
    yield "heads' outputs -3 %", _steps(mixed=lambda o, c: 0.97 * o)
    yield "one head's output -4 %", _steps(mixed=lambda o, c: torch.cat([0.96 * o[:, :1], o[:, 1:]], 1))
    yield "branch of attention not added in the last layer", _branch("attention", lambda x: 0 * x, last=True)


def _named(stock: Stock, *names: str) -> list[nn.Module]:
    return [m for name, m in stock.model.named_modules() if name.rsplit(".", 1)[-1] in names]


def mappings() -> Iterator[tuple[str, Fault]]:
    yield "key-value heads alternate", _steps(groups=lambda k, v, n: (k.repeat(1, n, 1, 1), v.repeat(1, n, 1, 1)))
    yield "key-value heads exchanged", _steps(groups=lambda k, v, n: _repeated(k.flip(1), v.flip(1), n))
    yield (
        "first key-value head for all",
        _steps(groups=lambda k, v, n: _repeated(k[:, :1].expand_as(k), v[:, :1].expand_as(v), n)),
    )
    yield "values' heads exchanged", _steps(groups=lambda k, v, n: _repeated(k, v.flip(1), n))
    yield "two heads' outputs exchanged", _steps(mixed=lambda o, c: o[:, [1, 0, *range(2, o.shape[1])]])
    yield "last head's output missing", _steps(mixed=lambda o, c: torch.cat([o[:, :-1], 0 * o[:, -1:]], 1))
    yield (
        "last head's output missing after 600",
        _steps(mixed=lambda o, c: torch.cat([o[:, :-1], o[:, -1:] * (_rows(c) < 600)], 1)),
    )
    yield "first layer twice, last one never", lambda s: s.set(s.layers[-1], "forward", s.layers[0].forward)
    yield "second layer skipped", lambda s: s.set(s.layers[1], "forward", lambda x, *a, **b: x)
    yield "MLP of layer 0 in layer 1", lambda s: s.set(_mlp(s, 1), "forward", _mlp(s, 0).forward)
    yield (
        "last 16 channels of the output projection lost",
        lambda s: (
            [s.after(p, lambda x: torch.cat([x[..., :-16], 0 * x[..., -16:]], -1)) for p in _named(s, "o_proj")]
            and None
        ),
    )
    yield (
        "last 32 units of the MLP lost",
        lambda s: (
            [
                s.before(p, lambda x: torch.cat([x[..., :-32], 0 * x[..., -32:]], -1))
                for p in _named(s, "down_proj", "w2")
            ]
            and None
        ),
    )
    yield (
        "first 32 units of the MLP lost in the last layer",
        lambda s: (
            [s.before(p, lambda x: torch.cat([0 * x[..., :32], x[..., 32:]], -1)) for p in _named(s, "down_proj")[-1:]]
            and None
        ),
    )
    yield (
        "a row in every 64 of a product lost",
        lambda s: (
            [
                s.after(p, lambda x: x * (torch.arange(x.shape[1]) % 64 != 63)[:, None] if x.shape[1] > 63 else x)
                for p in _named(s, "o_proj")
            ]
            and None
        ),
    )


def _mlp(stock: Stock, layer: int) -> Any:
    return next(m for n, m in stock.layers[layer].named_children() if n in ("mlp", "block_sparse_moe", "feed_forward"))


def heads() -> Iterator[tuple[str, Fault]]:
    def rows(change: Callable[[Tensor], Tensor]) -> Fault:
        return lambda s: s.after(s.model.lm_head, change)

    yield "logits of the last 16 tokens missing", rows(lambda x: torch.cat([x[..., :-16], 0 * x[..., -16:]], -1))
    yield "logits of the first 64 tokens lower", rows(lambda x: torch.cat([x[..., :64] - 6, x[..., 64:]], -1))
    yield "logits of one position in 64 from the one before", rows(_stale_row)
    yield "embedding of the token before at multiples of 128", lambda s: s.after(s.body.embed_tokens, _stale_row_128)
    yield (
        "embedding of unknown for the last tokens",
        lambda s: s.data(
            s.body.embed_tokens.weight,
            torch.cat([s.body.embed_tokens.weight[:256], 0 * s.body.embed_tokens.weight[256:]]),
        ),
    )
    yield "the second most likely token", rows(lambda x: x.masked_fill(x == x.amax(-1, keepdim=True), -1e4))
    yield (
        "the last norm without its weight",
        lambda s: s.data(
            s.body.norm.weight,
            torch.zeros_like(s.body.norm.weight) + (0.0 if "Gemma" in type(s.body.norm).__name__ else 1),
        ),
    )


def _stale_row(x: Tensor) -> Tensor:
    x = x.clone()
    x[:, 64::64] = x[:, 63:-1:64][:, : x[:, 64::64].shape[1]].clone()
    return x


def _stale_row_128(x: Tensor) -> Tensor:
    x = x.clone()
    x[:, 128::128] = x[:, 127:-1:128][:, : x[:, 128::128].shape[1]].clone()
    return x


def positions() -> Iterator[tuple[str, Fault]]:
    yield "one too large while decoding", _steps(True, positions=lambda p, later: p + 1 if later else p)
    yield "one too small while decoding", _steps(True, positions=lambda p, later: (p - int(later)).clamp_min(0))
    yield (
        "one too large in later chunks",
        _steps(True, chunk=64, positions=lambda p, later: p + 1 if later and p.shape[1] > 1 else p),
    )
    yield (
        "every chunk starts at zero",
        _steps(True, chunk=64, positions=lambda p, later: p - p[:, :1] if later and p.shape[1] > 1 else p),
    )
    yield "stays the same while decoding", _steps(True, positions=_frozen())
    yield "off by one after 512", _steps(positions=lambda p, later: p + (p > 512))
    yield "off by one after 1,024", _steps(positions=lambda p, later: p + (p > 1024))
    yield (
        "chunk does not see the chunk before in the last layer",
        _steps(
            True,
            chunk=64,
            mask=_hide(lambda c: _rows(c) // 64 == torch.arange(c.seen) // 64, lambda c: c.last and c.new > 1),
        ),
    )
    yield (
        "a chunk's tokens see each other",
        _steps(True, chunk=32, mask=lambda m, c: torch.zeros_like(m) if c.new > 1 else m),
    )


def _frozen() -> Callable[[Tensor, bool], Tensor]:
    last = torch.zeros(1, 1)

    def change(p: Tensor, later: bool) -> Tensor:
        nonlocal last
        if not later or p.shape[1] > 1:
            last = p[:, -1:]
            return p
        return last + 1

    return change


def batches() -> Iterator[tuple[str, Fault]]:
    """Only batches show these; the first row is the shortest or the longest of the listed ones."""
    yield "padding is seen", _steps(True, padding=torch.ones_like)
    yield (
        "padding is seen while decoding",
        _steps(True, mask=lambda m, c: torch.zeros_like(m) if c.decoding and any(c.pads) else m),
    )
    yield "one place of padding is seen", _steps(True, padding=_one_more)
    yield "first row's padding for all rows", _steps(True, padding=lambda s: s[:1].expand_as(s))
    yield "last row's padding for all rows", _steps(True, padding=lambda s: s[-1:].expand_as(s))
    yield "first row's positions for all rows", _steps(True, positions=lambda p, c: p[:1].expand_as(p))
    yield "neighbour's values in the last layer", _steps(True, stored=_neighbour)
    yield "neighbour's newest value", _steps(True, stored=_neighbour_newest)
    yield "first row's token for the second", _steps(True, chosen=lambda a: [a[0], *a[:1], *a[2:]] if len(a) > 1 else a)
    yield (
        "padding hidden with -8 instead",
        _steps(True, mask=lambda m, c: m.clamp_min(-8) if any(c.pads) and c.decoding else m),
    )


def _one_more(seen: Tensor) -> Tensor:
    return torch.cat([seen[:, 1:], seen[:, -1:]], 1)


def _neighbour(q: Tensor, k: Tensor, v: Tensor, call: Call) -> tuple[Tensor, Tensor, Tensor]:
    if call.last and call.decoding and len(v) > 1:
        v = torch.cat([v[:1], v[:1], v[2:]])
    return q, k, v


def _neighbour_newest(q: Tensor, k: Tensor, v: Tensor, call: Call) -> tuple[Tensor, Tensor, Tensor]:
    if call.decoding and len(v) > 1:
        v = v.clone()
        v[1, :, -1] = v[0, :, -1]
    return q, k, v


FAMILIES: dict[str, Callable[[], Iterator[tuple[str, Fault]]]] = {
    "scores": scores, "rotary": rotary, "windows": windows, "caches": caches, "norms": norms,
    "activations": activations, "multipliers": multipliers, "mappings": mappings, "heads": heads,
    "positions": positions, "batches": batches,
}  # fmt: skip


def honest() -> Iterator[tuple[str, Fault]]:
    """What engines do on purpose, or what changes nothing."""
    yield "nothing", lambda s: None
    yield "nothing, decoded", _steps(True)
    yield "prefill in chunks of 64", _steps(True, chunk=64)
    yield "positions from 100 on", _steps(positions=lambda p, c: p + 100)
    yield "positions in float16", _steps(positions=lambda p, c: p.half())
    yield "softmax in bfloat16", _steps(softmax=lambda s, q, c: s.softmax(-1))
    yield (
        "cos and sin in float32",
        _rotation(lambda old, q, k, *a, **b: tuple(x.to(q.dtype) for x in old(q, k, *a, **b))),
    )
    yield (
        "queries scaled before the product",
        _steps(scale=lambda s, c: 1.0, stored=lambda q, k, v, c: (q * q.shape[-1] ** -0.5, k, v)),
    )
    yield "8-bit cache", _steps(True, stored=lambda q, k, v, c: (q, _steps_of(k, 127), _steps_of(v, 127)))
    yield "fp8 cache", _steps(stored=lambda q, k, v, c: (q, _fp8(k), _fp8(v)))
    yield "4-bit cache, symmetric", _steps(stored=lambda q, k, v, c: (q, _steps_of(k, 7), _steps_of(v, 7)))
    yield "4-bit cache, with a zero point", _steps(stored=lambda q, k, v, c: (q, _least(k), _least(v)))
    yield "Q4_0 cache", _steps(stored=lambda q, k, v, c: (q, _q4_0(k), _q4_0(v)))


def _steps_of(x: Tensor, levels: int) -> Tensor:
    size = x.float().abs().amax(-1, keepdim=True).clamp_min(1e-9) / levels
    return ((x / size).round() * size).to(x.dtype)


def _fp8(x: Tensor) -> Tensor:
    return x.to(torch.float8_e4m3fn).to(x.dtype)


def _least(x: Tensor) -> Tensor:
    wide = x.float()
    least = wide.amin(-1, keepdim=True)
    size = (wide.amax(-1, keepdim=True) - least).clamp_min(1e-9) / 15
    return (((wide - least) / size).round() * size + least).to(x.dtype)


def _q4_0(x: Tensor) -> Tensor:
    """Blocks of 32; the number farthest from zero becomes -8 steps."""
    wide = x.float().reshape(*x.shape[:-1], -1, 32)
    far = wide.gather(-1, wide.abs().argmax(-1, keepdim=True))
    size = (far / -8).half().float()
    size = torch.where(size == 0, torch.ones_like(size), size)
    return ((wide / size + 8.5).floor().clamp(0, 15).sub(8) * size).reshape(x.shape).to(x.dtype)


def silent() -> Iterator[tuple[str, Fault]]:
    """Monotone in the logits: no greedy token of any model changes."""
    yield "epsilon 1e-5 in the last norm", _epsilon(lambda e: 1e-5, lambda s: [s.body.norm])
    yield "logits +5 %", lambda s: s.after(s.model.lm_head, lambda x: 1.05 * x)
    yield "logits capped at 30", lambda s: s.after(s.model.lm_head, lambda x: 30 * torch.tanh(x / 30))


QUIET = ("silent", "honest")  # no token may change; they do not count as faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fixture", help="an architecture, or the folder of a recital fixture")
    parser.add_argument("--only", default="", help="part of a family's name, silent or honest")
    given = parser.parse_args()
    folder = Path(given.fixture)
    if not (folder / "expected.json").is_file():
        folder = cached_fixture("recital", given.fixture, root=Path(tempfile.gettempdir()) / "fresh-faults")
    stock = Stock(folder)
    cases = [case for case in read_cases(folder) if case.verb in ("generate", "batch")]
    sensors = {one["name"] for one in cases[0].expected.get("sensors", ())}
    cases.sort(key=lambda case: (case.verb == "batch", case.name not in sensors, -len(case.content["ids"])))
    found, missed, total = Counter[str](), list[str](), Counter[str]()
    for family, members in {**FAMILIES, "silent": silent, "honest": honest}.items():
        if given.only not in family:
            continue
        for name, fault in members():
            started = time.process_time()
            where = _first(stock, fault, cases)
            total[family] += 1
            found[family] += where is not None
            if (where is None) != (family in QUIET):
                missed.append(f"{family}: {name}" + (f" ({where})" if where else ""))
            spent = time.process_time() - started
            print(f"{family:12} {name:55} {where or '-':45} {spent:5.1f} s", flush=True)
    print()
    for family in total:
        print(f"{family:12} {found[family]:3} of {total[family]:3}")
    faults = [family for family in total if family not in QUIET]
    noticed, every = sum(found[f] for f in faults), sum(total[f] for f in faults)
    if every:
        print(f"{noticed} of {every} faults change a token ({noticed / every:.0%})")
    print("\n".join(["unexpected:", *missed]))


def _first(stock: Stock, fault: Fault, cases: Sequence[SuiteCase]) -> str | None:
    """The first case with an incorrect token; None where all are correct."""
    try:
        fault(stock)
        batches = "padding" in stock.steps or "chosen" in stock.steps
        for case in cases:
            if case.verb == "generate" and batches:
                continue
            if case.verb == "batch" and not stock.decodes:
                continue
            if stock.differs(case):
                return case.name
        return None
    finally:
        stock.reset()


if __name__ == "__main__":
    main()
