"""Neurons for contexts in R^d, d > 1: each looks in the direction of its own context.

In the coordinates in which the contexts have unit covariance, neuron i measures how far a context lies in direction
x_i, and its threshold stands between context i and the runner-up. In enough dimensions most contexts are extreme
points, so the matrix of features is nearly diagonal. This serves activations that do not saturate (GELU), for which
neurons on a line must cancel large numbers.

    >>> points = np.random.default_rng(0).standard_normal((40, 24))
    >>> weight, bias = own_directions(points, Activation.GELU)
    >>> features = Activation.GELU(points @ weight + bias)
    >>> bool(np.linalg.cond(features) < 100)
    True
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from byheart.ir.decoder import Activation

Floats = npt.NDArray[np.float64]

_SHARP = 3.0  # |argument| of neuron i at context i and at its runner-up
_INSIDE = 0.8  # threshold, in lengths of x_i, for a context that is no extreme point


def own_directions(
    points: Floats, activation: Activation, rows: npt.NDArray[np.int64] | None = None
) -> tuple[Floats, Floats]:
    """(weight (d, m), bias (m,)) of one neuron for each context in `rows` (default: all of them)."""
    rows = np.arange(len(points)) if rows is None else rows
    mean = points.mean(axis=0)
    whitening = _whitening(points - mean)  # (d, k)
    white = (points - mean) @ whitening
    length = np.linalg.norm(white[rows], axis=1)
    central = length < 1e-9  # the mean itself has no direction (a single context): its neuron is a constant
    length = np.where(central, 1.0, length)
    direction = (white[rows] / length[:, None]).T  # (k, m)
    reach = white @ direction  # (n, m)
    reach[rows, np.arange(len(rows))] = -np.inf
    runner_up = reach.max(axis=0) if len(points) > 1 else np.zeros(len(rows))
    margin = length - runner_up
    extreme = margin > 0.01 * length
    threshold = np.where(extreme, (length + runner_up) / 2, _INSIDE * length)
    steepness = _SHARP / np.where(extreme, margin / 2, (1 - _INSIDE) * length)
    weight = (whitening @ direction) * np.where(central, 0.0, steepness)
    return weight, np.where(central, _SHARP, -steepness * threshold - mean @ weight)


def _whitening(centred: Floats) -> Floats:
    """A matrix M for which centred @ M has unit covariance on the directions that the points span."""
    _, singular, directions = np.linalg.svd(centred, full_matrices=False)
    kept = singular > 1e-10 * max(singular.max(initial=0.0), np.finfo(float).tiny)
    if not kept.any():
        return np.eye(centred.shape[1])
    return np.asarray(directions[kept].T * (np.sqrt(len(centred)) / singular[kept]))
