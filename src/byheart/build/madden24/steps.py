"""Neurons that stand between contexts on a line: well-conditioned features for Theorem 5's linear system.

The n numbers x_1 < … < x_n get a neuron between any two neighbours, steep enough to tell them apart:
ψ(w_j (x - c_j)), c_j the middle of a gap and w_j = sharpness / half the gap. For a saturating ψ the matrix of
features is nearly the n x n staircase of ones, whose condition number grows like n whatever the gaps are;
a random draw has condition numbers beyond 1/ε already at a few dozen contexts.

    >>> features = steps_between(np.array([0.0, 1.0, 1.5]), Activation.TANH).features(np.array([0.0, 1.0, 1.5]))
    >>> np.sign(features).astype(int).tolist()
    [[1, -1, -1], [1, 1, -1], [1, 1, 1]]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byheart.errors import BuildError
from byheart.ir.decoder import Activation

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# |argument| at the two neighbours of a gap. Saturating activations: within 2^-53 of their limit there (arctan: 2^-30).
STEEP = {Activation.TANH: 20.0, Activation.SIGMOID: 40.0, Activation.ARCTAN: 2.0**30, Activation.GELU: 6.0}
GENTLE = {Activation.TANH: 3.0, Activation.SIGMOID: 6.0, Activation.ARCTAN: 16.0, Activation.GELU: 3.0}


@dataclass(frozen=True, eq=False)
class Neurons:
    """m neurons on the line: x -> activation(weight·x + bias)."""

    weight: Floats  # (m,)
    bias: Floats  # (m,)
    activation: Activation

    def features(self, numbers: Floats) -> Floats:
        """(n, m)"""
        return self.activation(np.multiply.outer(numbers, self.weight) + self.bias)


def steps_between(
    ordered: Floats, activation: Activation, places: Ints | None = None, sharpness: float | None = None
) -> Neurons:
    """One neuron that is on for all numbers, and one before `ordered[k]` for each k in `places` (default: 1..n-1).

    Notation: ordered = x (ascending), places = the k whose gap (x_{k-1}, x_k) gets a neuron.
    """
    if len(ordered) > 1 and not (np.diff(ordered) > 0).all():
        raise BuildError("two contexts have the same number; draw other token and position weights")
    places = np.arange(1, len(ordered)) if places is None else places
    sharp = (STEEP[activation] if activation.saturates else GENTLE[activation]) if sharpness is None else sharpness
    spread = float(ordered[-1] - ordered[0]) if len(ordered) > 1 else 1.0
    first = spread / len(ordered)
    half = np.concatenate([[first], (ordered[places] - ordered[places - 1]) / 2])
    centre = np.concatenate([[ordered[0] - first], (ordered[places] + ordered[places - 1]) / 2])
    weight = sharp / half
    return Neurons(weight, -weight * centre, activation)
