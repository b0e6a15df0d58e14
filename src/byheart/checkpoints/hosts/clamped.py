"""Units whose gate and up are clamped (gpt-oss): act(min(gate, 7)) (clip(up, -7, 7) + 1), act(x) = x sigmoid(1.702 x).

A window's gate is 16 at its match and at most -32 anywhere else, so the clamp makes it 7: a plateau with one unit. Its
up is 1/7, so the unit outputs 7 (1/7 + 1) = 8. LIFT nats of every gate are its bias, and `up` is a bias alone.

Probes: two units with a gate below the minimum of the activation, where other functions have other values, and an up
that the clamp clips, one from above and one from below. Half of what they write is the bias of the last matrix, so an
engine that forgets that bias reads thresholds that are wrong.

With these numbers the matrices lie on MXFP4's grid: rows are ternary times a power of two, plus 3/8 of that.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.description import GatedDecoder, GatedWeights, fill_idle
from byheart.checkpoints.hosts.ends import writes
from byheart.checkpoints.hosts.experts import reads_one
from byheart.checkpoints.hosts.gated import PROBES
from byheart.checkpoints.hosts.recognising import Recognising

Floats = npt.NDArray[np.float64]
LIMIT, SLOPE = 7.0, 1.702
LIFT, SAID = 12.0, 8.0  # nats of a gate that are its bias; output of a unit at its match
_DRIVE = 12.0  # of a probe's up, which is then clipped to LIMIT


def activation(gate: Floats) -> Floats:
    """x sigmoid(SLOPE x).

    >>> activation(np.array([0.0, 7.0])).round(3).tolist()
    [0.0, 7.0]
    """
    return np.asarray(gate / (1 + np.exp(-SLOPE * gate)))


def probe_gate(wanted: float) -> float:
    """The number of 8 bits below the activation's minimum that it maps to `wanted`, as nearly as possible.

    >>> probe_gate(-1 / 8), probe_gate(-1 / 9)
    (-1.3359375, -1.46875)
    """
    grid = -np.arange(128, 256) / 128
    return float(grid[np.abs(activation(grid) / wanted - 1).argmin()])


def clamped_weights(
    decoder: GatedDecoder, depth: int, rows: npt.NDArray[np.int64], units: int, inverse: float,
    written: npt.NDArray[np.bool_] | None,
) -> GatedWeights:  # fmt: skip
    """Write an expert's matrices and biases; see `experts.expert_weights`."""
    recital, layout, design, stage = decoder.recital, decoder.layout, decoder.design, decoder.stages[depth]
    own, book, table = replace(stage, rows=rows), decoder.books.states[stage.table], recital.tables[stage.table]
    gain = 0.5 if depth % 2 == 0 else 2.0
    part, whole = (Recognising(layout, x, depth, table, book, design, gain, PROBES["silu"]) for x in (own, stage))
    part.level = whole.level  # thresholds are read through the norm, which all experts share
    one, count = reads_one(decoder, depth), len(rows)
    gate, up, down = (
        np.zeros((units, layout.hidden)),
        np.zeros((units, layout.hidden)),
        np.zeros((layout.hidden, units)),
    )
    gate_bias, up_bias, down_bias = np.zeros(units), np.zeros(units), np.zeros(layout.hidden)
    gate[:count], gate_bias[:count] = part.gates(part.sharp / part.m) - LIFT * one, LIFT
    up_bias[:count] = SAID / LIMIT - 1
    down[:, :count] = writes(recital, decoder.books, layout, own, design.kappa) * (inverse / SAID)
    turned = layout.constant[depth + 1]
    mine = turned[written[turned]] if written is not None else turned[:0]
    probes = ((-1 / 8, _DRIVE, -1.0, mine[::2]), (-1 / 9, -_DRIVE, 3 / 2, mine[1::2]))
    for unit, (value, drive, factor, channels) in enumerate(probes, start=count):
        gate[unit], gate_bias[unit] = -2.0 * one, probe_gate(value) + 2.0
        up[unit] = drive * one
        down[channels, unit] = factor * inverse * design.kappa * layout.signs[channels]
        down_bias[channels] = inverse * design.kappa * layout.signs[channels]
    column = int(layout.constant[0][0])
    filled = fill_idle(gate, column), fill_idle(up, column), fill_idle(down, units - 1)
    return GatedWeights(part.norm(), *filled, rows, (gate_bias, up_bias, down_bias))
