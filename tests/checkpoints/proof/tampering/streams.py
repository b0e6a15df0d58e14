"""The stream after every layer in stock Transformers, channel by channel, inside the bounds of the proof.

A margin hides most errors of the bounds: they are wider than what an engine does. Here every number of the stream is
compared, also of folders that are not proved, up to the layer that the proof does not understand.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.proof.bounds import POSITION, START, STARTS, TOKEN, Bounds, Key, symbols_seen
from byheart.checkpoints.proof.check import _interpret
from byheart.checkpoints.proof.checkpoint import open_checkpoint
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.decoder import StoredCheckpoint
from byheart.checkpoints.proof.network import CheckpointProgram
from byheart.checkpoints.proof.queries import look_up
from byheart.checkpoints.proof.recall.check import Places, RecallProof
from byheart.checkpoints.proof.recall.layout import read_layout
from byheart.checkpoints.proof.storage import storage

Interval = tuple[np.ndarray, np.ndarray]


class RecordedProof(RecallProof):
    """A proof of recall that keeps the stream after every layer."""

    seen: list[Places]

    def _layer(self, *args: Any) -> Places:
        self.seen.append(super()._layer(*args))
        return self.seen[-1]


def streams_of(checkpoint: StoredCheckpoint, type_: str, reach: int) -> list[CheckpointProgram]:
    """The program after one layer, after two, ... as far as the proof understands it."""
    found: list[CheckpointProgram] = []
    for count in range(1, checkpoint.shape.layers + 1):
        part = replace(checkpoint, shape=replace(checkpoint.shape, layers=count))
        once = found[-1].reach.once if found else frozenset[int]()
        try:
            found.append(_interpret(part, type_, reach, "type", once, stored=type_ != "float32"))
        except (Undecided, ValueError, IndexError, KeyError, ArithmeticError):
            break
    return found


def symbols_at(program: CheckpointProgram, signals: dict[int, np.ndarray], key: Key, place: np.ndarray) -> np.ndarray:
    """The symbols that a key means at every position of a row."""
    signal, offset = key
    return symbols_seen(signals[signal], program.symbols(signal) if signal >= TOKEN else 0, place, 0, offset)


def evaluated(program: CheckpointProgram, field: Bounds, row: list[int]) -> Interval:
    """A field at every position of a row."""
    place, tokens = np.arange(len(row)), np.array(row)
    start = np.minimum(place, STARTS) if row[0] in program.reach.once else np.full(len(row), STARTS + 1)
    signals = {TOKEN: tokens, POSITION: place, START: start}
    for signal in sorted(program.tables):
        table = program.tables[signal]
        seen = [symbols_at(program, signals, key, place) for key in table.keys]
        signals[signal] = look_up(table, np.stack(seen or [np.zeros_like(place)], 1))
    lo, hi = (np.tile(end, (len(row), 1)) for end in (field.lo, field.hi))
    for part in field.parts:
        symbols = symbols_at(program, signals, part.key, place)
        lo[:, part.channels] += part.lo[symbols]
        hi[:, part.channels] += part.hi[symbols]
    return lo, hi


def hidden_states(model: Any, pattern: str, layers: int, row: list[int]) -> list[np.ndarray]:
    """What every layer gives to the next one."""
    import torch

    found: list[np.ndarray] = []

    def keep(_module: Any, _given: Any, given: Any) -> None:
        found.append((given[0] if isinstance(given, tuple) else given).double().numpy().reshape(len(row), -1))

    hooks = [model.get_submodule(pattern.format(k)).register_forward_hook(keep) for k in range(layers)]
    with torch.no_grad():
        model(torch.tensor([row]))
    for hook in hooks:
        hook.remove()
    return found


def recall_streams(folder: Path, type_: str) -> tuple[StoredCheckpoint, list[Places]]:
    """The streams of a proof of recall, as far as it gets."""
    checkpoint = open_checkpoint(folder)
    seen: list[Places] = []
    with np.errstate(all="ignore"), suppress(Undecided, ValueError, IndexError, KeyError, ArithmeticError):
        layout = read_layout(folder, checkpoint.shape)
        proof = RecordedProof(checkpoint, layout, storage(type_), type_ != "float32")
        proof.seen = seen
        proof.margin()
    return checkpoint, seen


def place_faults(seen: list[Places], pattern: str, model: Any, type_: str, rows: list[list[int]]) -> list[str]:
    """The same of a recall folder: magnitudes and fixed signs at every place."""
    found = []
    for number, row in enumerate(rows):
        shown = hidden_states(model, pattern, len(seen), row)
        for layer, (places, values) in enumerate(zip(seen, shown, strict=True)):
            lo, hi, size = places.every.lo, places.every.hi, np.abs(values)
            off = np.where(np.isfinite(values), np.maximum(lo - size, size - hi), np.inf)
            off = np.where(values * places.every.fixed < 0, np.inf, off)
            found += _worst(off, values, (lo + 0 * values, hi + 0 * values), f"{type_} row {number} layer {layer}")
    return found


def _worst(off: np.ndarray, values: np.ndarray, bounds: Interval, where: str) -> list[str]:
    if not off.max() > 0:
        return []
    place, channel = at = np.unravel_index(int(off.argmax()), off.shape)
    ends = f"[{bounds[0][at]:.9g}, {bounds[1][at]:.9g}]"
    return [f"{where}: place {place} channel {channel} is {values[at]:.9g}, not in {ends}"]


def stream_faults(
    programs: list[CheckpointProgram], pattern: str, model: Any, type_: str, rows: list[list[int]]
) -> list[str]:
    """Layers and channels in which a model leaves the bounds of the proof."""
    found, once = [], programs[-1].reach.once if programs else frozenset()
    for number, row in enumerate(rows):
        if once & set(row[1:]):
            continue
        shown = hidden_states(model, pattern, len(programs), row)
        for layer, (program, values) in enumerate(zip(programs, shown, strict=True)):
            lo, hi = evaluated(program, program.stream, row)
            off = np.where(np.isfinite(values), np.maximum(lo - values, values - hi), np.inf)
            found += _worst(off, values, (lo, hi), f"{type_} row {number} layer {layer}")
    return found
