"""Sinks and biases in attention (gpt-oss): every head has one more score, whose place holds no value.

*Heads that copy* have a sink SAFE nats below the lowest score that wins. That is at the start of a sequence, where what
a head looks for does not exist yet and a nearer place with a lower score replaces it.
*The scale probe* has a sink ln 2 above ordinary places, and a higher score of BOS, so that BOS weighs what it should.
*Listeners* have one about as large as what they hear.
*Silent heads.* One head per layer has a sink SAFE nats above all its scores together. Its output would turn the next
thresholds around, so an engine that ignores sinks recites nothing.

*Biases.* Every other dimension of queries and keys, the constant of a value, and half of what slots lose are biases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.description import GatedDecoder, fill_idle
from byheart.checkpoints.hosts.rotary import frequencies

Floats = npt.NDArray[np.float64]
SAFE = 24.0  # e^-24 of a value is lost, or added, without a trace
HEARD = 4.0  # the sink of a listener
_PROBE = 2.0  # the probe's sink weighs as much as so many ordinary places


@dataclass(frozen=True, eq=False)
class BiasedAttention:
    """Matrices and biases by role (query, key, value, output), and a sink per head."""

    weights: dict[str, Floats]
    biases: dict[str, Floats]
    sinks: Floats


def with_sinks(decoder: GatedDecoder, depth: int) -> BiasedAttention:
    """Return a layer's attention with sinks and biases; where every head copies, no head is silent."""
    return _Sinks(decoder, depth).write()


class _Sinks:
    """One layer's heads as constant queries and keys; scores are in nats, by distance."""

    def __init__(self, decoder: GatedDecoder, depth: int) -> None:
        self.decoder, self.depth, self.design = decoder, depth, decoder.designs[depth]
        self.attention, self.layout, self.d = decoder.attention[depth], decoder.layout, decoder.design.head_dim
        names = ("query", "key", "value", "output")
        self.weights = {name: getattr(self.attention, name).copy() for name in names}
        self.sinks = np.zeros(decoder.heads)
        self.per_group = decoder.heads // decoder.kv_heads
        self.read = self.attention.norm * self.layout.signs  # what the normed constant channels hold
        design = self.design
        self.turns = frequencies(self.d, design.theta, design.scaling)
        gain = 1.0 if design.scaling is None else design.scaling.magnitude
        self.scale = gain**2 / math.sqrt(self.d)
        self.gain = float(self.attention.norm[self.layout.first[0]])

    def write(self) -> BiasedAttention:
        seen = np.arange(self.design.window or self.design.reach)
        probe = self.per_group - 1 if self.depth == 0 and self.design.scale_probe else None
        quiet = [head for head in self.attention.listeners if head != probe]
        for head in range(self.decoder.heads):
            if head == probe:
                self._probe(head)
            elif head in quiet[:-1]:
                self.sinks[head] = HEARD
            elif head not in quiet:
                # The best score so far rises with the distance, up to the place that the head looks for.
                self.sinks[head] = round(float(np.maximum.accumulate(self._scores(head, seen)).min()) - SAFE)
        if quiet:
            self._silence(quiet[-1], seen)
        biases = self._biases()
        idle = self.d - 1, int(self.layout.constant[0][0])
        filled = {name: fill_idle(x, idle[name != "output"]) for name, x in self.weights.items()}
        return BiasedAttention(filled, biases, self.sinks)

    def _constants(self, head: int) -> tuple[Floats, Floats]:
        """A head's query and key where they are the same for every token."""
        block, group, d = self.layout.constant[0], head // self.per_group, self.d
        query = self.weights["query"][head * d : (head + 1) * d, block] @ self.read[block]
        return query, self.weights["key"][group * d : (group + 1) * d, block] @ self.read[block]

    def _scores(self, head: int, distances: npt.NDArray[np.int64]) -> Floats:
        query, key = self._constants(head)
        half = self.d // 2
        wave = (query[:half] + 1j * query[half:]) * np.conj(key[:half] + 1j * key[half:])
        angle = np.outer(distances, self.turns)
        return np.asarray((np.cos(angle) @ wave.real - np.sin(angle) @ wave.imag) * self.scale)

    def _probe(self, head: int) -> None:
        """BOS scores q/2, others -q/2, beside a ripple: it weighs 3/4 at the farthest place, the sink included."""
        row, block = head * self.d + self.d // 2 - 1, self.layout.constant[0]
        far = self.decoder.recital.tables[0].offsets[-1]
        old = float(self.weights["query"][row, block] @ self.read[block]) * self.scale
        loud = self.weights["query"][row].copy()
        self.weights["query"][row] = 0.0
        ripple = self._scores(head, np.arange(far + 1))
        others = np.exp(ripple[:far] - ripple[far]).sum() + _PROBE * np.exp(-ripple[far])
        new = math.log(3 * others)
        self.weights["query"][row] = loud * (new / old)
        self.sinks[head] = math.log(_PROBE) - new / 2

    def _silence(self, head: int, seen: npt.NDArray[np.int64]) -> None:
        """A listener that would turn around the block from which the next thresholds, or the verdict, are read."""
        d, group, block = self.d, head // self.per_group, self.layout.constant[self.depth + 1]
        constant = self._constant_of(group)
        output = self.weights["output"]
        output[:, head * d : (head + 1) * d] = 0.0
        output[block, head * d + constant] = -2 * self.design.kappa / self.gain * self.layout.signs[block]
        scores = self._scores(head, seen)
        self.sinks[head] = round(float(scores.max()) + math.log(len(seen)) + SAFE)

    def _constant_of(self, group: int) -> int:
        """The dimension of a key-value head's values that is the same for every token."""
        rows = self.weights["value"][group * self.d : (group + 1) * self.d, self.layout.width]
        return int(np.abs(rows).max(axis=1).argmax())

    def _biases(self) -> dict[str, Floats]:
        layout, block, biases = self.layout, self.layout.constant[0], {}
        for name in ("query", "key"):
            matrix = self.weights[name]
            odd = np.arange(len(matrix)) % 2 == 1
            biases[name] = np.where(odd, matrix[:, block] @ self.read[block], 0.0)
            matrix[np.ix_(odd, block)] = 0.0
        value, output = self.weights["value"], self.weights["output"]
        biases["value"], biases["output"] = np.zeros(len(value)), np.zeros(len(output))
        stage = self.decoder.stages[self.depth]
        slots = np.concatenate(layout.slots[stage.table])
        for group in range(self.decoder.kv_heads):
            row = group * self.d + self._constant_of(group)
            biases["value"][row] = value[row, layout.width] @ self.read[layout.width]
            value[row] = 0.0
            for head in range(group * self.per_group, (group + 1) * self.per_group):
                column = head * self.d + row % self.d
                if head not in self.attention.listeners:
                    lost = output[slots, column] / 2
                    biases["output"][slots] += lost * biases["value"][row]
                    output[slots, column] = lost
        return biases
