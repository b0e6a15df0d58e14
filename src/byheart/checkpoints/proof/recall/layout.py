"""recall.json: which channels play which role. The proof checks every statement of it against the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.proof.config import Shape, Undecided
from byheart.checkpoints.proof.storage import Array
from byheart.checkpoints.proof.tensors import read_json

FORMAT, VERSION, NAME = "byheart recall", 1, "recall.json"
SINGLE = ("one", "bos", "newer", "plus", "minus", "found", "stale", "answer")
PAIRS = (*SINGLE, "older", "before_newer", "before_older", "two_older", "query")


@dataclass(frozen=True, eq=False)
class RecallLayout:
    """Channel numbers by role, and the function that the folder claims to compute."""

    roles: Mapping[str, Array]
    key_length: int
    bos: int
    none: int
    window: int | None
    context: int
    twins: Array  # (hidden,): the channel of the opposite sign, -1 where there is none

    def __getitem__(self, role: str) -> Array:
        return self.roles[role]

    @property
    def bits(self) -> int:
        return len(self.roles["newer"])


def read_layout(folder: Path, shape: Shape) -> RecallLayout:
    """Read the layout of a recall folder.

    Raises:
        Undecided: it is damaged, or contradicts config.json.
    """
    value = read_json(folder / NAME)
    if value.get("format") != FORMAT or value.get("version") != VERSION:
        raise Undecided(f"{NAME}: format {value.get('format')!r}, version {value.get('version')!r} is not known")
    function, channels = value.get("function"), value.get("channels")
    if not isinstance(function, dict) or not isinstance(channels, dict):
        raise Undecided(f"{NAME} has no function or no channels")
    length, tokens = function.get("key_length"), function.get("tokens")
    if length not in (1, 2) or not isinstance(tokens, dict) or function.get("vocabulary") != shape.vocabulary:
        raise Undecided(f"{NAME}: key_length {length!r}, or another vocabulary than config.json")
    names = SINGLE if length == 1 else PAIRS
    roles = {name: _numbers(channels, name, shape.hidden) for name in names}
    twins = _twins(value.get("twins", {}), shape.hidden)
    every = np.concatenate(list(roles.values()))
    every = np.concatenate([every, twins[every][twins[every] >= 0]])
    if len(np.unique(every)) != len(every):
        raise Undecided(f"{NAME}: a channel has two roles")
    bits = len(roles["newer"])
    wanted = {
        name: 1 if name == "bos" else shape.heads if name in ("found", "stale") else bits
        for name in names
        if name != "one"
    }
    wrong = next((name for name, count in wanted.items() if len(roles[name]) != count), None)
    if wrong is not None:
        raise Undecided(f"{NAME}: {len(roles[wrong])} channels of {wrong}; {wanted[wrong]} are needed")
    if length == 1:
        roles["query"] = roles["newer"]
    window, context = function.get("window"), value.get("context")
    if window != shape.window or context != shape.positions:
        raise Undecided(f"{NAME}: window {window!r} or context {context!r} differs from config.json")
    return RecallLayout(
        roles, length, _token(tokens, "bos", shape), _token(tokens, "none", shape), shape.window, shape.positions, twins
    )


def _twins(value: Any, hidden: int) -> Array:
    """Pairs of channels with opposite signs, as two lists of numbers."""
    twins = np.full(hidden, -1)
    if not value:
        return twins
    one, two = (_numbers(value if isinstance(value, dict) else {}, name, hidden) for name in ("first", "second"))
    if len(one) != len(two) or len(np.unique(np.concatenate([one, two]))) != 2 * len(one):
        raise Undecided(f"{NAME}: twins are not pairs of different channels")
    twins[one], twins[two] = two, one
    return twins


def _numbers(channels: Mapping[str, Any], name: str, hidden: int) -> Array:
    numbers = channels.get(name)
    if not isinstance(numbers, list) or not numbers or not all(type(n) is int and 0 <= n < hidden for n in numbers):
        raise Undecided(f"{NAME}: the channels of {name} are not numbers below {hidden}")
    return np.array(numbers)


def _token(tokens: Mapping[str, Any], name: str, shape: Shape) -> int:
    number = tokens.get(name)
    if type(number) is not int or not 0 <= number < shape.vocabulary:
        raise Undecided(f"{NAME}: the token {name} = {number!r} is not in the vocabulary")
    return number
