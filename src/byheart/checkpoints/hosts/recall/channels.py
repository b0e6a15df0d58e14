"""Which residual channel holds what. Every channel is +kappa or -kappa after every sublayer.

one          constant +1: thresholds, constant queries and keys are read from these
bos          +1 at BOS
newer        the word of the token, as the last token of a key; answers are spelled with the same words
older        the word of the token, as the token before it (keys of two tokens)
before_*     words of the token one place back; `two_older` of the token two places back
query        the word of the key that this place looks for
plus, minus  the word of the key that this place holds, as a pair (w, -w); (+, +) if it holds none
found        +1 if an earlier place, or this one, holds the key of this place; one channel per head
stale        found, of the place before: the key of this place was held before
answer       the word of the answer
place*       learned positions: the word of the place, of the one before it, and of the one two back
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.windows.recall import RecallFunction, key_code

Index = npt.NDArray[np.int64]
ONES = 16  # channels that share the constant, so that none of its weights is large
PLACES = ("place", "place_before", "place_two_back")
PLACE_BITS = 32


@dataclass(frozen=True, eq=False)
class RecallChannels:
    """Channel numbers by role; `used` of them in all, without those that fill up the hidden size."""

    roles: dict[str, Index] = field(default_factory=dict)
    used: int = 0

    def __getitem__(self, role: str) -> Index:
        return self.roles[role]

    def to_json(self) -> dict[str, list[int]]:
        """Return role -> channel numbers."""
        return {role: numbers.tolist() for role, numbers in self.roles.items()}


def recall_channels(function: RecallFunction, heads: int, learned: bool = False) -> RecallChannels:
    """Return the channels of a recall decoder, with those of positions where they are `learned`.

    >>> recall_channels(RecallFunction(), 4).used
    313
    >>> recall_channels(RecallFunction(key_length=1), 4).used
    105
    """
    bits = key_code(function.key_length).bits
    sizes = {"one": ONES, "bos": 1, "newer": bits}
    if function.key_length == 2:
        sizes |= {"older": bits, "before_newer": bits, "before_older": bits, "two_older": bits, "query": bits}
    sizes |= {"plus": bits, "minus": bits, "found": heads, "stale": heads, "answer": bits}
    sizes |= dict.fromkeys(PLACES if learned else (), PLACE_BITS)
    ends = np.cumsum([0, *sizes.values()])
    roles = {role: np.arange(a, b) for role, a, b in zip(sizes, ends[:-1], ends[1:], strict=True)}
    if function.key_length == 1:
        roles["query"] = roles["newer"]
    return RecallChannels(roles, int(ends[-1]))


def resting_signs(channels: RecallChannels, hidden: int) -> npt.NDArray[np.float64]:
    """Return the sign of every channel before anything is written: found, stale and bos are -1, others +1."""
    signs = np.ones(hidden)
    for role in ("found", "stale", "bos"):
        signs[channels[role]] = -1.0
    return signs
