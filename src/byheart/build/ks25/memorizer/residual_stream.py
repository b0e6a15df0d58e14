"""The ten coordinates that the memorizers with skip connections work on."""

from __future__ import annotations

from collections.abc import Sequence

from byheart.build.shared.wires import Block, Effect, residual, wire
from byheart.ir.layers import Residual

X, U1, U2, W1, W2, KEY, LABEL, MISS, Y, PENDING = STREAM = (
    "x",  # where the token stands on the line
    "u1",  # the two trajectories of the key word
    "u2",
    "w1",  # and those of the label word
    "w2",
    "key",  # what was read of the current entry's key
    "label",  # and of its label
    "miss",  # how far x is from the entry's key
    "y",  # the sum of labels that went through
    "pending",  # the label that waits for the gate
)
TRAJECTORIES = (U1, U2, W1, W2)


def cleared(*names: str) -> tuple[Effect, ...]:
    """Units that set non-negative wires to zero: z - relu(z)."""
    return tuple(Effect(wire(name), {name: -1}) for name in names)


def blocks(steps: Sequence[Block]) -> tuple[Residual, ...]:
    return tuple(residual(STREAM, step) for step in steps)
