"""Two checkpoints that differ in a few memories: what was forgotten, and that nothing else changed.

`compare_checkpoints` proves, from the files alone, that

- all tensors are bitwise the same, except in rows and columns of some hidden units;
- in the second checkpoint those units fire on no input any more, in the first they fire on the removed windows only;
- so both are the same symbolic program up to the removed windows, for every input;
- no context of the documents that are kept ever meets a removed window, and all of them are still proved.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from byheart.certify.certificate import Verdict
from byheart.checkpoints.proof.bounds import TOKEN, symbols_seen
from byheart.checkpoints.proof.certificate import MarginCertificate
from byheart.checkpoints.proof.check import certify_checkpoint, interpreted
from byheart.checkpoints.proof.checkpoint import open_checkpoint
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.decoder import StoredCheckpoint
from byheart.checkpoints.proof.mlp import KnownWindows, aligned
from byheart.checkpoints.proof.network import CheckpointProgram
from byheart.checkpoints.proof.queries import look_up
from byheart.checkpoints.proof.storage import Array
from byheart.checkpoints.proof.units import ANY
from byheart.errors import OptionError

# names inside an MLP: its first maps have a row per unit, its last one a column (GPT-2 stores both transposed)
_FIRST = (
    *("gate_proj.weight", "up_proj.weight", "gate_up_proj.weight", ".w1.weight", ".w3.weight"),
    *("fc1.weight", "fc1.bias", "dense_h_to_4h.weight", "dense_h_to_4h.bias"),
)
_LAST = ("down_proj.weight", ".w2.weight", "fc2.weight", "dense_4h_to_h.weight")
_TURNED_FIRST, _TURNED_LAST = ("c_fc.weight", "c_fc.bias"), ("mlp.c_proj.weight",)


@dataclass(frozen=True)
class Removed:
    """A window that the first checkpoint stores and the second does not, newest symbol first."""

    layer: int
    unit: int
    window: tuple[int, ...]


@dataclass(frozen=True)
class FolderComparison:
    """The certificate of `compare_checkpoints`.

    The verdict requires that every document that stays is proved by itself; `same` is the comparison alone.

    Attributes:
        verdict: `proved`, `refuted` or `undecided`.
        reason: One sentence.
        removed: Windows that the first checkpoint stores and the second does not.
        changed_units: How many units differ.
        kept: The certificate of the second checkpoint for the documents that stay.
        same: Both compute the same for every input that meets no removed window, and no document that stays meets one.
    """

    verdict: Verdict
    reason: str
    removed: tuple[Removed, ...]
    changed_units: int
    kept: MarginCertificate | None
    same: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, ready for JSON."""
        return {**asdict(self), "kept": None if self.kept is None else self.kept.as_dict()}


def compare_checkpoints(
    before: str | Path,
    after: str | Path,
    documents: Sequence[Sequence[int]],
    forgotten: Collection[int],
    types: Sequence[str] = ("float32",),
    *,
    reach: int | None = None,
    copies: Sequence[int] | None = None,
    ignored: Collection[int] = (),
) -> FolderComparison:
    """Certify that `after` is `before` without some documents.

    Args:
        before: The first checkpoint's folder.
        after: The second checkpoint's folder.
        documents: Token ids of all documents.
        forgotten: Numbers of the documents that `after` must not store.
        types: Types for the proof of the documents that stay.
        reach: The longest sequence; all positions of config.json unless given.
        copies: How often each document counts.
        ignored: Numbers of documents that were forgotten earlier; they count in distributions only.

    Returns:
        The certificate.

    Raises:
        OptionError: If the forgotten documents are unknown, or all of them.
    """
    if not set(forgotten) <= set(range(len(documents))) or len(set(forgotten)) == len(documents):
        raise OptionError(f"documents {sorted(forgotten)} of {len(documents)} cannot be the forgotten ones")
    try:
        first, second = open_checkpoint(Path(before)), open_checkpoint(Path(after))
        units = _changed_units(first, second)
        length = first.shape.positions if reach is None else reach
        programs = interpreted(first, types[0], length), interpreted(second, types[0], length)
        removed = _removed(*programs, units)
    except Undecided as undecided:
        return FolderComparison(Verdict.UNDECIDED, str(undecided), (), 0, None)
    staying = [i for i in range(len(documents)) if i not in {*forgotten, *ignored}]
    met = _first_difference(*programs, [list(documents[i]) for i in staying])
    count = sum(map(len, units.values()))
    if met is not None:
        return FolderComparison(
            Verdict.REFUTED, f"document {staying[met]}, which stays, needs a removed window", removed, count, None
        )
    kept = certify_checkpoint(after, documents, types, reach=reach, only=staying, copies=copies)
    if kept.verdict is not Verdict.PROVED:
        return FolderComparison(kept.verdict, f"documents that stay: {kept.reason}", removed, count, kept, True)
    going = [list(documents[i]) for i in sorted(set(forgotten))]
    if _first_difference(*programs, going) is None:
        return FolderComparison(Verdict.REFUTED, "the forgotten documents are still there", removed, count, kept, True)
    reason = f"{len(removed)} windows are gone, for every input everything else is the same"
    return FolderComparison(Verdict.PROVED, reason, removed, count, kept, True)


def _changed_units(first: StoredCheckpoint, second: StoredCheckpoint) -> dict[int, set[int]]:
    """Units by layer in whose rows or columns the two files differ; any other difference is refused by name."""
    if first.shape != second.shape or set(first.files.entries) != set(second.files.entries):
        raise Undecided("the two checkpoints have different configs or tensors")
    prefix = first.family.layers.split("{}")[0]
    units: dict[int, set[int]] = {}
    for name in first.files.entries:
        one, two = first.files.read(name), second.files.read(name)
        if np.array_equal(one, two):
            continue
        if one.shape != two.shape or not name.startswith(prefix):
            raise Undecided(f"{name} differs")
        index = int(name[len(prefix) :].split(".")[0])
        different = one != two
        if name.endswith((*_FIRST, *_TURNED_LAST)):
            where = different.any(axis=1) if different.ndim == 2 else different
        elif name.endswith((*_LAST, *_TURNED_FIRST)):
            where = different.any(axis=0) if different.ndim == 2 else different
        else:
            raise Undecided(f"{name} differs")
        numbers = np.flatnonzero(where) % first.shape.units  # fused gate and up have two rows per unit
        units.setdefault(index, set()).update(numbers.tolist())
    return units


def _removed(before: CheckpointProgram, after: CheckpointProgram, units: dict[int, set[int]]) -> tuple[Removed, ...]:
    """The windows that are gone; nothing may be new, and only changed units may have held what is gone.

    States of the second checkpoint may be numbered otherwise, since some are gone: each gets the number that the same
    window has in the first.
    """
    found, seen = [], set()  # a table that joins an earlier one holds its windows too
    same: dict[int, dict[int, int]] = {}  # by signal: number in the second checkpoint -> number in the first
    for signal in sorted(before.tables):
        table, other = before.tables[signal], after.tables[signal]
        old, new = _set(table, table.keys, {}), _set(other, table.keys, same)
        if new.keys() - old.keys():
            raise Undecided(f"layer {signal - 1}: the second checkpoint stores windows that the first does not")
        same[signal] = _same_symbols(old, new, signal)
        for window in sorted(old.keys() - new.keys()):
            layer, unit = signal - 1, old[window][0]
            content = frozenset((key, symbol) for key, symbol in zip(table.keys, window, strict=True) if symbol != ANY)
            if content in seen:
                continue
            seen.add(content)
            if not any(unit in numbers for numbers in units.values()):
                raise Undecided(f"layer {layer}: a window is gone although unit {unit} was not changed")
            found.append(Removed(layer, unit, window))
    return tuple(found)


def _same_symbols(
    old: dict[tuple[int, ...], tuple[int, int]], new: dict[tuple[int, ...], tuple[int, int]], signal: int
) -> dict[int, int]:
    """What the symbols of the second checkpoint are called in the first; one that is two there is refused."""
    pairs = {(now, old[window][1]) for window, (_, now) in new.items()}
    if len({now for now, _ in pairs}) != len(pairs) or len({was for _, was in pairs}) != len(pairs):
        raise Undecided(f"layer {signal - 1}: windows that were distinguished no longer are, or the reverse")
    return dict(pairs)


def _set(
    table: KnownWindows, keys: tuple[tuple[int, int], ...], same: dict[int, dict[int, int]]
) -> dict[tuple[int, ...], tuple[int, int]]:
    """Window -> (unit, symbol), with the symbols of earlier tables as `same` calls them."""
    missing = [key for key in table.keys if key not in keys]
    if missing:
        raise Undecided("the two checkpoints read different places")
    rows = aligned(table.windows, table.keys, keys)
    found = {}
    for row, unit, symbol in zip(rows.tolist(), table.units.tolist(), table.symbols.tolist(), strict=True):
        called = (same.get(signal, {}).get(value, value) for (signal, _), value in zip(keys, row, strict=True))
        found[tuple(called)] = (unit, symbol)
    return found


def _first_difference(before: CheckpointProgram, after: CheckpointProgram, documents: list[list[int]]) -> int | None:
    """The first document in which a window is known to one checkpoint only."""
    for number, document in enumerate(documents):
        one, two = _known(before, document), _known(after, document)
        if any(not np.array_equal(one[signal], two[signal]) for signal in one):
            return number
    return None


def _known(program: CheckpointProgram, document: list[int]) -> dict[int, Array]:
    """Per signal: at which positions its window is known."""
    tokens = np.asarray(document[:-1], dtype=np.int64)
    place, signals = np.arange(len(tokens)), {TOKEN: tokens}
    for signal in sorted(program.tables):
        table = program.tables[signal]
        columns = [symbols_seen(signals[s], program.symbols(s), place, 0, o) for s, o in table.keys]
        signals[signal] = look_up(table, np.stack(columns or [np.zeros_like(tokens)], 1))
    return {signal: found > 0 for signal, found in signals.items() if signal != TOKEN}
