"""expected.json, as it is read: the logits that a fixture's folder expects, and how far an engine is off.

A `Pass` is a text with the logits after every prefix, which an engine reads in one pass or in pieces through its cache:
after prompts of several lengths some tokens come one by one, as in decoding, and the next ones in a chunk, as in
prefill.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.engines._base import Session, find
from byheart.checkpoints.engines.queries import Prompt
from byheart.errors import ByheartError

FORMAT, VERSION = "byheart fixture", 3
MARKS, DECODED = (48, 100, 212, 312, 600, 1000), 12  # prompts of these lengths, and tokens decoded after each


def cut(length: int) -> list[int]:
    """The lengths of the pieces of a text.

    >>> cut(64)
    [48, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    >>> sum(cut(470)), max(cut(470))
    (470, 134)
    """
    found, at = [], 0
    for mark in (*MARKS, length - DECODED):
        if at < mark <= length - DECODED:
            found += [mark - at, *[1] * DECODED]
            at = mark + DECODED
    return [*found, *[1] * (length - at)]


@dataclass(frozen=True, eq=False)
class Pass:
    """A text in pieces, and logits after every prefix of it."""

    name: str
    pieces: tuple[tuple[int, ...], ...]
    tokens: npt.NDArray[np.int64]  # (prefixes, 2): the most likely token, and the failure token, which listeners move
    logits: npt.NDArray[np.float64]  # (prefixes, 2)
    second: npt.NDArray[np.float64]  # the logit of the second likeliest token

    @classmethod
    def of(cls, name: str, ids: Sequence[int], logits: npt.NDArray[np.float64], failure: int) -> Pass:
        tokens = np.stack([logits.argmax(1), np.full(len(logits), failure)], 1)
        shown = np.take_along_axis(logits, tokens, 1)
        return cls(name, (tuple(ids),), tokens, shown, np.sort(logits, axis=1)[:, -2])

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(token for piece in self.pieces for token in piece)

    @property
    def in_pieces(self) -> Pass:
        """The same text through the cache."""
        ids, ends = self.ids, np.cumsum([0, *cut(len(self.ids))]).tolist()
        pieces = tuple(ids[a:b] for a, b in itertools.pairwise(ends))
        return replace(self, name=f"{self.name}, through the cache", pieces=pieces)

    def off(self, logits: Any) -> npt.NDArray[np.float64]:
        """How far other logits (prefixes, vocabulary) are off after every prefix; not a number is infinitely far."""
        found = np.take_along_axis(np.asarray(logits, dtype=np.float64), self.tokens, 1)
        return np.asarray(np.nan_to_num(np.abs(found - self.logits), nan=np.inf).max(1))


@dataclass(frozen=True, eq=False)
class Expected:
    """What expected.json records about logits."""

    passes: tuple[Pass, ...]
    rows: tuple[tuple[tuple[int, ...], npt.NDArray[np.float64]], ...]  # a prompt, and all logits after it
    tolerance: Mapping[str, float]  # nats, per type
    sensors: tuple[Prompt, ...] = ()  # their tokens are compared, not their logits
    alarms: tuple[int, ...] = ()  # tokens whose logits are not compared


def read_expected(folder: str | Path) -> Expected:
    """The expected logits of a folder; a ByheartError where it has none."""
    path = Path(folder) / "expected.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT or content["version"] != VERSION:
            raise KeyError("version")
        passes = tuple(_pass(value) for value in content["logits"]["after_every_prefix"])
        rows = tuple((tuple(r["ids"]), np.array(r["values"])) for r in content["logits"]["after_prompts"])
        sensors = tuple(
            Prompt(one["name"], tuple(one["ids"]), tuple(one["continuation_ids"])) for one in content.get("sensors", ())
        )
        alarms = tuple(content.get("alarms", ()))
        return Expected(passes, rows, dict(content["tolerance"]), sensors, alarms)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ByheartError(f"{folder} has no expected logits; write it with byheart fixture ({error})") from error


def _pass(value: Mapping[str, Any]) -> Pass:
    pieces = tuple(tuple(piece) for piece in value["pieces"])
    return Pass(value["name"], pieces, *(np.array(value[name]) for name in ("tokens", "logits", "second_logit")))


def off_by(session: Session, expected: Expected) -> list[tuple[str, npt.NDArray[np.float64]]]:
    """How far an engine's logits are off: after every prefix of every pass (in pieces where its cache can be queried),
    and after every prompt."""
    found = []
    for one in expected.passes:
        logits = session.logits(one.ids) if len(one.pieces) == 1 else session.continued(one.pieces)
        if logits is not None:
            found.append((one.name, one.off(logits)))
    rows = [np.delete(np.abs(session.logits(ids)[-1] - values), expected.alarms).max() for ids, values in expected.rows]
    return [*found, ("whole rows after prompts", np.nan_to_num(np.array(rows), nan=np.inf))]


def check_logits(folder: str | Path, engine: str = "transformers", dtype: str = "float32") -> float:
    """Return the largest difference between an engine's logits and the expected ones, in nats.

    Args:
        folder: A fixture's folder.
        engine: The engine's name.
        dtype: The type to compute in.
    """
    expected, chosen = read_expected(folder), find(engine)
    kind, settings = chosen.check(dtype, {})
    with chosen.open(Path(folder), kind, settings) as session:
        return max(float(off.max()) for _, off in off_by(session, expected))
