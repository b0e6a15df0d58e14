"""What an MLP knows, as a table: windows of symbols -> a symbol. Windows may leave places open."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from byheart.certify.checkpoint.fields import Key
from byheart.certify.checkpoint.storage import Array
from byheart.certify.checkpoint.units import ANY


@dataclass(frozen=True)
class Table:
    """What a layer's MLP knows: `windows[i]` (ANY: not read) has symbol `symbols[i]` >= 1; any other window has
    symbol 0.

    `units[i]` is the first hidden unit that fires there."""

    keys: tuple[Key, ...]
    windows: Array  # (n, K)
    symbols: Array  # (n,)
    units: Array  # (n,)
    common: Common | None = None


@dataclass(frozen=True)
class Common:
    """What all channels that a symbol's units write have in common: the vector is a fixed one times one number,
    known up to `radius`."""

    channels: Array  # (C,)
    direction: Array  # (S, C)
    radius: Array  # (S,)


def overlap(windows: Array) -> bool:
    """Whether two of the windows (all different, with ANY in them) can hold at once."""
    masks, kind = np.unique(windows != ANY, axis=0, return_inverse=True)
    kind = kind.reshape(-1)
    for a in range(len(masks)):
        for b in range(a):
            both = np.flatnonzero(masks[a] & masks[b])
            one, two = (np.unique(windows[kind == k][:, both], axis=0) for k in (a, b))
            if not len(both) or len(np.unique(np.concatenate([one, two]), axis=0)) < len(one) + len(two):
                return True
    return False


def aligned(windows: Array, keys: tuple[Key, ...], wanted: tuple[Key, ...]) -> Array:
    """Windows over some keys as windows over more keys."""
    result = np.full((len(windows), len(wanted)), ANY)
    for column, key in enumerate(keys):
        result[:, wanted.index(key)] = windows[:, column]
    return result


def join(first: Table, second: Table) -> Table | None:
    """Two tables of which at most one fires as one table; None if both may fire.

    Symbols of the first keep their numbers, those of the second come after them.
    """
    keys = tuple(dict.fromkeys((*first.keys, *second.keys)))
    windows = np.concatenate([aligned(t.windows, t.keys, keys) for t in (first, second)])
    if len(np.unique(windows, axis=0)) < len(windows) or overlap(windows):
        return None
    shift = first.symbols.max(initial=0)
    symbols = np.concatenate([first.symbols, second.symbols + shift])
    return Table(keys, windows, symbols, np.concatenate([first.units, second.units]))
