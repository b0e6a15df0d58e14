"""Listeners: heads that look at everything softly, so that every step of attention moves a logit.

A head that copies is one-hot, and one-hot stays one-hot if scores are a tenth larger, a frequency is wrong or an old
entry of the cache is lost. A *listener* has scores of a few nats over all frequencies of its keys, so its weights shift
when any of these change. It adds LOUDNESS times the mean of four bits of what it sees to its own channel, which
nothing but the head reads: the failure token's logit falls by up to 2 SWING of 32 nats (where the head is tied, it and
the others move by up to SWING/2, in opposite directions). Tokens never change by that; logits that are shipped beside
the tokens do.

Heads listen that are not needed for copying: one per key-value head in even layers, as many as there are in odd ones,
so that every head listens somewhere. The scale probe listens too. For the proof a listener is anything in the hull of
its values. Where several tokens may follow a window, nothing listens: shares must be right to a thousandth.

The wave: frequencies that turn quickly get LOUD nats each; slow ones get more, so that a change of any frequency by a
tenth changes scores at far distances by a few hundredths. With a sliding window the quick ones are in step at its last
place: a window that is one too short loses what the listener hears best.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.rotary import Wave, look_back
from byheart.checkpoints.hosts.scaling import FrequencyScaling

Floats = npt.NDArray[np.float64]
DEEPEST = 5  # stages: what listeners hear moves every norm a little, and errors grow from layer to layer
LOUDNESS = 1 / 128  # of kappa: little, since it moves the norm
SWING = 2.0  # nats, where the correct logit is 32
# Of the correct logit: the most that the failure token's loses, where the head is not tied. Half of that is lost
# whatever listeners hear, so that other tokens lead it as they lead each other.
QUIETER = 9 / 16
BITS = 4
LOUD, SLOW, LOUDEST = (
    0.35,
    1.5,
    16.0,
)  # nats of a quick frequency; nats that a slow one changes by within the range; cap
LEAST_OWN = 12.0  # nats below zero that a listener scores its own place
BENT = 1.2  # of a cap of scores: what listeners score at least, where there is one
RANGE, PHASE = 512, 2.4  # places; radians from one frequency to the next
_LEAST_LEAD = 0.11  # of the head that would rather look beyond the window
_WINDOWS = (128, 144, 112, 160, 96, 80, 64, 40)  # tried in turn
_BEYOND = 16  # windows that are tried beyond a far place


def wave(
    frequencies: Floats, used: npt.NDArray[np.bool_], window: int | None, head: int, quiet: float | None = None
) -> Wave:
    """A listener's score by distance, over the `used` frequencies; every head has its own.

    `quiet`: nats of every frequency, where the head also has scores of its own for slow ones.
    """
    slow = SLOW / (frequencies * (window or RANGE))
    sizes = np.where(used, np.clip(slow, LOUD, LOUDEST) if quiet is None else quiet, 0.0)
    phases = PHASE * np.arange(len(frequencies)) + head
    if window is not None:
        phases = np.where(slow < LOUD, -frequencies * (window - 1), phases)
    # As in rotary.py, a low score at the own place overflows in padded rows of float16. The slow frequencies, which
    # make it low, are turned around; quick ones add up to 11 nats at most.
    if (sizes * np.cos(phases)).sum() < -LEAST_OWN:
        phases = np.where(slow < LOUD, phases, phases + np.pi)
    return Wave(sizes * np.cos(phases), -sizes * np.sin(phases), 1.0)


def spread(head: int, carried: int) -> npt.NDArray[np.int64]:
    """Which of a head's value dimensions it listens to: every other one, since neighbours have opposite signs."""
    return np.unique((BITS * head + 2 * np.arange(BITS)) % carried)


def block_size(count: int) -> int:
    """Channels for `count` listeners: one each, and one or two that stay as they are; an even number."""
    return 2 * (count // 2) + 2 if count else 0


def readout(size: int, logit: float, least: float | None = None) -> Floats:
    """How much of each channel of the block the failure token's logit loses: short numbers, whose sum is what it loses
    at rest. That is nothing, or, where the logit must not rise, the swing and `least` of the correct logit."""
    if not size:
        return np.zeros(0)
    count = size - 1
    each = 2.0 ** np.floor(np.log2(SWING * logit / 32 / (count * LOUDNESS)))
    found: Floats = np.where(np.arange(size) % 2 == 0, each, -each)
    found[-1] = (0.0 if least is None else each * count * LOUDNESS + least * logit) - found[:-1].sum()
    return found


def sliding_window(
    dimensions: int,
    theta: float,
    near: Sequence[int],
    far: int,
    used: Sequence[tuple[int, ...]],
    scaling: FrequencyScaling | None = None,
) -> tuple[int, int | None]:
    """A window, and the distance whose heads would rather look at the first place beyond it, so that one that is too
    long shows: the farthest of the `near` ones. Where no wide window allows that, one that just holds it. A window also
    holds `far`; then shorter distances are tried as well, and the last resort is a window that shows less."""
    farthest = max(near)
    wide = [*_WINDOWS, *range(far + 1, far + _BEYOND)] if far else _WINDOWS
    for trap in sorted(set(near), reverse=True) if far else [farthest]:
        for window in (w for w in wide if w > max(8 * trap, far)):
            waves = (look_back(dimensions, theta, trap, window, window, u, True, scaling=scaling) for u in used)
            if min(wave.gap for wave in waves) > _LEAST_LEAD:
                return window, trap
    return (far + 1, None) if far else (farthest + 1, farthest)
