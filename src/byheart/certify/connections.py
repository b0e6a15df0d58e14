"""Proving how many pairs of tokens attention connects."""

from __future__ import annotations

from byheart.certify.properties import prover
from byheart.data.dataset.dataset import Dataset
from byheart.ir.layers import Attention, GlobalToken
from byheart.ir.network import Network
from byheart.progress import Progress


def connections(network: Network, n: int) -> int:
    """Pairs (query, key) of all attention layers on a sequence of n tokens, by their patterns."""
    total, length = 0, n
    for layer in network.layers:
        if isinstance(layer, GlobalToken):
            length += 1
        elif isinstance(layer, Attention):
            total += layer.connections(length)
    return total


@prover("connections")
def prove_connections(network: Network, dataset: Dataset, promised: str, progress: Progress) -> tuple[bool, str]:
    """At most as many connections as promised, on the longest sequence of the data."""
    found = connections(network, dataset.n)
    return found <= int(promised), f"attention connects {found} pairs of tokens, of {promised} promised"
