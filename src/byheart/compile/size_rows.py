"""Promised, measured and necessary, side by side: the rows that the demo, the command line and the report show."""

from __future__ import annotations

from dataclasses import dataclass

from byheart.compile.memory import Memory
from byheart.theory import lower_bound

MEANINGS = {
    "parameters": "numbers in the network",
    "nonzero": "… of them not zero",
    "max_bits": "bits of the longest number",
    "total_bits": "bits of all numbers together",
    "width": "widest layer",
    "depth": "layers, one after the other",
    "blocks": "blocks",
}


@dataclass(frozen=True)
class SizeRow:
    """One quantity: what the theorem allows at most, what was built, and what no network for such data can undercut."""

    field: str
    meaning: str
    promised: int | None
    measured: int
    least: int | None


def size_rows(memory: Memory) -> list[SizeRow]:
    """The rows for one memory.

    The least number of parameters is the bound that holds for every chain of layers: Theorem 4.2's is larger, but
    counts attention in every block.
    """
    told = memory.summary()
    floor = lower_bound(**{name: told[name] for name in ("task", "N", "n", "d", "C", "contexts")})
    chain = next((bound.value for bound in floor.bounds if bound.name == "any chain of layers"), None)
    least = {"parameters": None if chain is None else int(chain), "total_bits": floor.total_bits}
    promised = memory.certificate.promised
    return [
        SizeRow(name, meaning, promised.get(name), told[name], least.get(name)) for name, meaning in MEANINGS.items()
    ]
