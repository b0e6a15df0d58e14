"""Further guarantees of a claim, and who proves them.

A guarantee is named `kind: argument`; each kind has one prover, which returns whether it is shown and a sentence why.
"""

from __future__ import annotations

from collections.abc import Callable

from byheart.data.dataset.dataset import Dataset
from byheart.ir.layers import Attention, GlobalToken
from byheart.ir.network import Network
from byheart.progress import Progress

Prover = Callable[[Network, Dataset, str, Progress], tuple[bool, str]]

_PROVERS: dict[str, Prover] = {}


def prover(kind: str) -> Callable[[Prover], Prover]:
    """Register the decorated function as the prover of guarantees `kind: …`."""

    def add(function: Prover) -> Prover:
        _PROVERS[kind] = function
        return function

    return add


def prove_property(name: str, network: Network, dataset: Dataset, progress: Progress) -> tuple[bool, str]:
    """(shown, sentence) for a guarantee; a guarantee that cannot be proved is not shown."""
    kind, _, argument = name.partition(": ")
    if kind not in _PROVERS:
        return False, f"the guarantee {name!r} has no prover, so it stays unproved"
    return _PROVERS[kind](network, dataset, argument, progress)


def connections(network: Network, n: int) -> int:
    """Count the pairs (query, key) of all attention layers, by their patterns.

    Args:
        network: The network.
        n: Tokens of the sequence.

    Returns:
        The number of pairs.
    """
    total, length = 0, n
    for layer in network.layers:
        if isinstance(layer, GlobalToken):
            length += 1
        elif isinstance(layer, Attention):
            total += layer.connections(length)
    return total


@prover("connections")
def prove_connections(network: Network, dataset: Dataset, guaranteed: str, progress: Progress) -> tuple[bool, str]:
    """At most as many connections as guaranteed, on the longest sequence of the data."""
    found = connections(network, dataset.n)
    return found <= int(guaranteed), f"attention connects {found} pairs of tokens, of {guaranteed} guaranteed"
