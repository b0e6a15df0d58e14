"""Prompts of sensor tokens: every answer is one bit of the position, and a wrong score, angle or mask turns bits.

A sensor's tokens follow each other without end, the first where BOS weighs less than everything else in one head, the
second where it weighs more (hosts/sensors.py). The weight depends on the position alone, so one pass of any such tokens
shows the bits at all positions. A fault moves the weight; it is detected where it moves it across 1/2. So those
stretches of positions are chosen in which weights come nearest to 1/2, but nowhere as near as an engine may be off.

`SAFE` bounds that: bfloat16, float16 and caches in 8 bits moved 2p - 1 by up to 0.025 where p is about 1/2 (measured).
In a cache of 4 bits other keys lose more; the bits of such a cache are computed here, and must be the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.engines.questions import Prompt, Questions
from byheart.checkpoints.formats.stock import read_decoder

Floats = npt.NDArray[np.float64]
SAFE, SAFE_IN_4_BITS = 0.05, 0.05  # of 2p - 1, at every chosen position
NEAR = 0.08  # 2p - 1 beyond SAFE that counts half as much as none
STRETCH, STRETCHES = 16, 4  # positions of a prompt's answers, and prompts per sensor
LONGEST = 1264  # positions
FIRST = 8  # the least position of a prompt's end


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


def sensor_prompts(folder: Path, asked: Questions) -> list[Prompt]:
    """Return prompts of sensor tokens with the tokens that must follow.

    Args:
        folder: The checkpoint.
        asked: Its documents and special tokens.
    """
    sensors = read_sensors(folder)
    if not sensors:
        return []
    import torch

    from byheart.checkpoints.suite.machine import Machine

    first = sensors[0]
    length = min(asked.reach - STRETCH - 1, LONGEST)
    kinds = np.random.default_rng(0).integers(0, 2, size=length)
    ids = [asked.bos, *np.where(kinds == 0, first.low, first.high).tolist()]
    decoder = read_decoder(folder)
    exact = weights_of(Machine(decoder, torch.float64), ids, sensors)
    coarse = [weights_of(Machine(decoder).wrap("remember", cache), ids, sensors) for cache in (in_4_bits, in_16_steps)]
    found = []
    for number, sensor in enumerate(sensors):
        safe, signs = np.abs(exact[number]) > SAFE, np.sign(exact[number])
        for weights in coarse:
            safe &= weights[number] * signs > SAFE_IN_4_BITS
        for start in stretches(exact[number], safe):
            said = [sensor.high if x > 0 else sensor.low for x in exact[number][start : start + STRETCH]]
            # Any tokens of the sensor lead to the same bits.
            prompt = [asked.bos, *np.where(kinds[:start] == 0, sensor.low, sensor.high).tolist()]
            found.append(Prompt(f"sensor {number}, from position {start}", tuple(prompt), tuple(said)))
    return found


def stretches(values: Floats, safe: npt.NDArray[np.bool_]) -> list[int]:
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


def in_16_steps(step: Callable[..., Any], k: Any, v: Any, depth: int, cache: Any) -> Any:
    """Wrap `remember`: keys and values of a token and head in 16 even steps from the least to the largest."""

    def rounded(x: Any) -> Any:
        least = x.amin(-1, keepdim=True)
        size = (x.amax(-1, keepdim=True) - least).clamp_min(1e-9) / 15
        return ((x - least) / size).round() * size + least

    return step(rounded(k), rounded(v), depth, cache)
