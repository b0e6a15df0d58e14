"""Prompts of sensor tokens: every answer is one bit of the position, and a wrong score, angle or mask turns bits.

A sensor's tokens follow each other without end, the first where BOS weighs less than everything else in one head, the
second where it weighs more (hosts/sensors.py). The weight depends on the position alone, so one pass of any such tokens
shows the bits at all positions. A fault moves the weight; it is detected where it moves it across 1/2. Small faults of
scores, frequencies and windows are tried here, in both directions, and stretches of positions are chosen that detect
each of them; the others are those in which weights come nearest to 1/2. Nowhere are they as near as an engine may be
off.

`SAFE` bounds that: bfloat16, float16 and caches in 8 bits moved 2p - 1 by up to 0.027 where p is about 1/2 (measured).
In caches of 4 bits and in 8-bit floats other keys lose more; their bits are computed here, and must be the same. A
cache so coarse that the text itself is lost does not count.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.engines.queries import Prompt, Queries
from byheart.checkpoints.formats.stock import read_decoder

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
SAFE, SAFE_IN_FEW_BITS = 0.05, 0.05  # of 2p - 1, at every chosen position
NEAR = 0.08  # 2p - 1 beyond SAFE that counts half as much as none
STRETCH, STRETCHES = 8, 9  # positions of a prompt's answers, and prompts per sensor
LONGEST = 1500  # positions: beyond a window of 1,024, or one that is lost there
FIRST = 8  # the least position of a prompt's end
# Faults that stretches are chosen for: factors of all scores, of the rotary base, of the slower half of the
# frequencies, of their third and fourth quarters; the slowest one lost; and windows.
SCALES, BASES, SLOWER = (0.975, 1.025), (0.99, 1.01), (0.97, 1.03)
QUARTERS = ((2, 0.97), (2, 1.03), (3, 0.94), (3, 1.06))
WINDOWS = (128, 256, 512, 1024)
TURNED = 0.02  # of 2p - 1, beyond zero, that a fault moves a bit at least
TWICE = 2  # stretches for every fault
TEXT, UNDECIDED = 129, 8  # tokens of the document that a coarse cache must continue, but for the first few


@dataclass(frozen=True)
class Sensor:
    """Two tokens, and the channel of the residual stream that holds their bit."""

    low: int
    high: int
    channel: int


def read_sensors(folder: Path) -> tuple[Sensor, ...]:
    """Return the sensors of a checkpoint folder; none where it has none."""
    content = json.loads((folder / "recital.json").read_text(encoding="utf-8"))
    return tuple(Sensor(*map(int, one)) for one in content.get("sensors", ()) if one[2] >= 0)


def alarm_tokens(folder: Path) -> list[int]:
    """Return the tokens whose logits add up large numbers that cancel: engines differ there by more than elsewhere."""
    content = json.loads((folder / "recital.json").read_text(encoding="utf-8"))
    return [int(token) for one in content.get("sensors", ()) if one[2] < 0 for token in one[:2]]


def sensor_prompts(folder: Path, queried: Queries) -> list[Prompt]:
    """Return prompts of sensor tokens with the tokens that must follow.

    Args:
        folder: The checkpoint.
        queried: Its documents and special tokens.
    """
    sensors = read_sensors(folder)
    if not sensors:
        return []
    import torch

    from byheart.checkpoints.suite.machine import Machine

    first = sensors[0]
    length = min(queried.reach - STRETCH - 1, LONGEST)
    kinds = np.random.default_rng(0).integers(0, 2, size=length)
    ids = [queried.bos, *np.where(kinds == 0, first.low, first.high).tolist()]
    decoder = read_decoder(folder)

    def read(**changes: Callable[..., Any]) -> Floats:
        return weights_of(_changed(Machine(decoder), changes), ids, sensors)

    exact = weights_of(Machine(decoder, torch.float64), ids, sensors)
    text = queried.documents[0][:TEXT]
    kept = [cache for cache in COARSE if _recites(_changed(Machine(decoder), {"remember": cache}), text)]
    safe = np.abs(exact) > SAFE
    for cache in kept:
        safe &= read(remember=cache) * np.sign(exact) > SAFE_IN_FEW_BITS
    moved = [read(scale=lambda step, attention, f=factor: f * step(attention)) for factor in SCALES]
    moved += [read(frequencies=lambda step, rotary, f=base: _with_base(step(rotary), f)) for base in BASES]
    moved += [read(frequencies=lambda step, rotary, f=factor: _slower_half(step(rotary), f)) for factor in SLOWER]
    moved += [read(frequencies=lambda step, rotary, q=q, f=f: _quarter(step(rotary), q, f)) for q, f in QUARTERS]
    moved += [read(frequencies=lambda step, rotary: _without_last(step(rotary)))]
    moved += [np.where(np.arange(length + 1) < window, exact, -1.0) for window in WINDOWS]
    turned = np.array([values * np.sign(exact) < -TURNED for values in moved])  # (faults, sensors, positions)
    found = []
    for number, start in chosen_stretches(exact, safe, turned):
        sensor, bits = sensors[number], exact[number][start : start + STRETCH] > 0
        # Any tokens of the sensor lead to the same bits.
        prompt = [queried.bos, *np.where(kinds[:start] == 0, sensor.low, sensor.high).tolist()]
        expected = np.where(bits, sensor.high, sensor.low).tolist()
        found.append(Prompt(f"sensor {number}, from position {start}", tuple(prompt), tuple(expected)))
    return found


def sensor_batches(prompts: Sequence[Prompt]) -> list[list[Prompt]]:
    """One prompt of every sensor, side by side, the longest first: rows that see padding, positions or cached values of
    a neighbour turn bits."""
    first: dict[str, Prompt] = {}
    for prompt in prompts:
        first.setdefault(prompt.name.split(",")[0], prompt)
    rows = sorted(first.values(), key=lambda prompt: -len(prompt.ids))
    return [rows] if len({len(prompt.ids) for prompt in rows}) > 1 else []


def chosen_stretches(values: Floats, safe: Flags, turned: Flags) -> list[tuple[int, int]]:
    """Sensors and first positions, up to STRETCHES per sensor: those that detect the most faults come first.

    Args:
        values: 2p - 1 (sensors, positions).
        safe: Whether no legitimate engine turns a bit.
        turned: Whether a fault turns it (faults, sensors, positions).

    Returns:
        Stretches that do not overlap, in the order of sensors and positions. Every fault is covered TWICE where that is
        possible; the others are those of `stretches`.
    """
    whole = np.array([np.convolve(row, np.ones(STRETCH), "valid") == STRETCH for row in safe.astype(float)])
    whole[:, :FIRST] = False
    seen = np.zeros((len(turned), *whole.shape), dtype=bool)
    for fault, flags in enumerate(turned):
        for number, row in enumerate((flags & safe).astype(float)):
            seen[fault, number] = np.convolve(row, np.ones(STRETCH), "valid") > 0.5
    found: list[tuple[int, int]] = []
    wanted = np.full(len(turned), TWICE)
    while (gains := ((wanted > 0)[:, None, None] & seen).sum(axis=0) * whole).any():
        number, start = map(int, np.unravel_index(int(gains.argmax()), gains.shape))
        found.append((number, start))
        wanted -= seen[:, number, start]
        whole[number, max(0, start - STRETCH + 1) : start + STRETCH] = False
        if sum(one == number for one, _ in found) == STRETCHES:
            whole[number] = False
    for number in range(len(values)):
        free = safe[number].copy()
        for _, start in (one for one in found if one[0] == number):
            free[start : start + STRETCH] = False
        count = STRETCHES - sum(one == number for one, _ in found)
        found += [(number, start) for start in stretches(values[number], free)[:count]]
    return sorted(found)


def stretches(values: Floats, safe: Flags) -> list[int]:
    """The first positions of up to STRETCHES runs of safe positions, apart from each other, that show most.

    A position shows the more the nearer its value is to zero; a change of the sign from one to the next counts too.
    """
    shows = np.exp(-np.maximum(np.abs(values) - SAFE, 0.0) * (np.log(2.0) / NEAR))
    shows[1:] += (values[1:] * values[:-1] < 0) / 2
    sums, sound = (np.convolve(x, np.ones(STRETCH), "valid") for x in (shows, safe.astype(float)))
    sums[sound < STRETCH] = -np.inf
    sums[:FIRST] = -np.inf
    found: list[int] = []
    while len(found) < STRETCHES and np.isfinite(sums).any():
        best = int(sums.argmax())
        found.append(best)
        sums[max(0, best - STRETCH) : best + STRETCH] = -np.inf
    return sorted(found)


def _changed(machine: Any, changes: Mapping[str, Callable[..., Any]]) -> Any:
    for step, change in changes.items():
        machine.wrap(step, change)
    return machine


def _with_base(frequencies: Any, factor: float) -> Any:
    """The frequencies with the rotary base times a factor."""
    import torch

    return frequencies * factor ** -(torch.arange(len(frequencies)) / len(frequencies))


def _slower_half(frequencies: Any, factor: float) -> Any:
    """The frequencies, the slower half of which is multiplied by a factor."""
    changed = frequencies.clone()
    changed[len(changed) // 2 :] *= factor
    return changed


def _quarter(frequencies: Any, number: int, factor: float) -> Any:
    """The frequencies, a quarter of which is multiplied by a factor."""
    changed, size = frequencies.clone(), len(frequencies) // 4
    changed[number * size : (number + 1) * size] *= factor
    return changed


def _without_last(frequencies: Any) -> Any:
    """The frequencies, the slowest of which does not turn."""
    changed = frequencies.clone()
    changed[-1] = 0
    return changed


def _recites(machine: Any, text: Sequence[int]) -> bool:
    """Whether a machine continues the text; where a cache is too coarse for that, its bits do not count either."""
    import torch

    with torch.inference_mode():
        answers = machine.run(text[:-1]).argmax(1).tolist()
    wrong = [place for place, pair in enumerate(zip(answers, text[1:], strict=True)) if pair[0] != pair[1]]
    return not wrong or wrong[-1] < UNDECIDED


def weights_of(machine: Any, ids: Sequence[int], sensors: Sequence[Sensor]) -> Floats:
    """2p - 1 of every sensor (sensors, positions), as the last MLP of a machine reads it."""
    import torch

    from byheart.checkpoints.suite.machine import in_blocks

    read: list[Any] = []

    def catch(step: Callable[..., Any], x: Any, *rest: Any) -> Any:
        read.append(x)
        return step(x, *rest)

    with torch.inference_mode():
        machine.wrap("mix", in_blocks).wrap("mlp", catch).run(ids)
    return np.asarray(read[-1][:, [sensor.channel for sensor in sensors]].double().numpy().T)


def in_4_bits(step: Callable[..., Any], k: Any, v: Any, depth: int, cache: Any) -> Any:
    """Wrap `remember`: keys and values of a token and head as whole numbers from -7 to 7 times one scale."""

    def rounded(x: Any) -> Any:
        size = x.abs().amax(-1, keepdim=True).clamp_min(1e-9) / 7
        return (x / size).round() * size

    return step(rounded(k), rounded(v), depth, cache)


def in_8_bits(step: Callable[..., Any], k: Any, v: Any, depth: int, cache: Any) -> Any:
    """Wrap `remember`: keys and values of a token and head as whole numbers from -127 to 127 times one scale."""

    def rounded(x: Any) -> Any:
        size = x.abs().amax(-1, keepdim=True).clamp_min(1e-9) / 127
        return (x / size).round() * size

    return step(rounded(k), rounded(v), depth, cache)


def in_16_steps(step: Callable[..., Any], k: Any, v: Any, depth: int, cache: Any) -> Any:
    """Wrap `remember`: keys and values of a token and head in 16 even steps from the least to the largest."""

    def rounded(x: Any) -> Any:
        least = x.amin(-1, keepdim=True)
        size = (x.amax(-1, keepdim=True) - least).clamp_min(1e-9) / 15
        return ((x - least) / size).round() * size + least

    return step(rounded(k), rounded(v), depth, cache)


def in_fp8(step: Callable[..., Any], k: Any, v: Any, depth: int, cache: Any) -> Any:
    """Wrap `remember`: keys and values as 8-bit floats with three bits after the point."""
    import torch

    return step(*(x.float().to(torch.float8_e4m3fn).to(x.dtype) for x in (k, v)), depth, cache)


COARSE = (in_4_bits, in_16_steps, in_fp8)
