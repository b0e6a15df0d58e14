"""The shared description: one decoder as matrices, before an architecture gives them their names.

All arrays are float64 and follow the convention y = W x; biases are None where an architecture has none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.layout import Books, ChannelLayout, LayerStage
from byheart.checkpoints.hosts.scaling import FrequencyScaling
from byheart.checkpoints.windows.tables import Recital

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens: where a text begins and ends, what fills a batch, and the token that signals a failure."""

    bos: int
    eos: int
    pad: int
    failure: int


@dataclass(frozen=True)
class Design:
    """What a user may choose about the network; an architecture adds its own demands.

    `gap` nats remain between the wanted place and all others after the errors of bfloat16; `logit` is the right
    token's. `kappa` is the size of every residual channel, `epsilon` that of the norms.

    `away` keeps numbers of the shape from coinciding with each other: heads * head_dim is not the hidden size where the
    architecture allows that, and heads come in pairs, for tensor parallelism of two. `activation` and `sequential`
    (branches one after the other, GPT-NeoX) are other values of keys that engines tend to assume.
    """

    head_dim: int = 64
    heads: int | None = None
    kv_heads: int | None = None
    layers: int | None = None
    hidden: int | None = None
    units: int | None = None
    experts: int | None = None  # None: as many as the architecture's fixture has
    activation: str | None = None
    sequential: bool = False
    away: bool = False
    sensing: bool = False  # units for tokens of no text that show small faults, where the architecture has them
    # With sensors, epsilon is so large that norms without it, or with another one, turn bits.
    audible: bool = False
    norm_gain: float = 1.0  # of all norms' weights: what such an epsilon takes from normed values
    theta: float = 10_000.0
    scaling: FrequencyScaling | None = None  # of the rotary frequencies
    rotary: int | None = None  # dimensions of a head that turn, where not all of them do
    cap: float | None = None  # of scores: cap * tanh(score / cap)
    own_slack: float = 1.0  # of STORED (rotary.py): where norms of queries and keys round scores once more
    reach: int = 2048
    window: int | None = None
    trap: int | None = None  # the offset whose heads would rather look at the first place beyond the window
    epsilon: float = 1e-5
    kappa: float = 0.5
    gap: float = 20.0
    logit: float = 32.0
    flavour: str = "parabola"
    scale_probe: bool = True
    tied: bool = False
    parts: int = 1
    seed: int = 0

    @property
    def turning(self) -> int:
        """Dimensions of a head that turn with the position: the first ones."""
        return self.head_dim if self.rotary is None else self.rotary


@dataclass(frozen=True, eq=False)
class AttentionWeights:
    """Weights of one attention layer; `query`, `key`, `value` read the normed stream, `output` writes to it.

    `listeners` are the heads whose scores are small, the scale probe too where nothing else listens. A layer with a
    mixer instead of attention has matrices without rows, and `heard`: the channels that its mixer may be heard in.
    """

    norm: Floats
    query: Floats
    key: Floats
    value: Floats
    output: Floats
    listeners: tuple[int, ...] = ()
    heard: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class GatedWeights:
    """Weights of one gated MLP: output (act(gate x) * (up x)). `count` rows of `gate` are window units.

    `rows[i]` is the row of the table that unit i holds (a plateau has two units per row). `biases` are those of gate,
    up and down, where the architecture has any.
    """

    norm: Floats
    gate: Floats
    up: Floats
    down: Floats
    rows: npt.NDArray[np.int64]
    biases: tuple[Floats, Floats, Floats] | None = None


@dataclass(frozen=True, eq=False)
class GatedDecoder:
    """A whole decoder with gated MLPs, RMSNorm and rotary positions."""

    recital: Recital
    tokens: SpecialTokens
    design: Design
    books: Books
    layout: ChannelLayout
    stages: tuple[LayerStage, ...]
    embedding: Floats
    attention: tuple[AttentionWeights, ...]
    mlp: tuple[GatedWeights, ...]
    norm: Floats
    head: Floats
    heads: int
    kv_heads: int
    designs: tuple[Design, ...]  # of every layer: its window, trap and rotary base may be its own
    facts: dict[str, Any] = field(default_factory=dict)
    sensors: tuple[tuple[int, int, int], ...] = ()  # pairs of tokens of no text, and a channel (sensors.py)

    @property
    def hidden(self) -> int:
        return self.layout.hidden

    @property
    def units(self) -> int:
        return int(self.mlp[0].gate.shape[0])


def fill_idle(matrix: Floats, column: int, size: float = 2.0**-14) -> Floats:
    """The matrix with a tiny weight in every row that is zero: quantizers divide by a row's largest weight."""
    filled = matrix.copy()
    filled[~matrix.any(axis=1), column] = size
    return filled


# A little more than 2: -s, 0 and s are then nearly 0, 10 and 20 of 31 steps (Q5_1), 0, 5 and 10 of 15 (Q4_1), and 8 or
# 4 of the symmetric types' 16 or 8, whatever the sign.
ANCHOR = 131 / 64


def anchored(matrix: Floats, columns: npt.NDArray[np.int64]) -> Floats:
    """The matrix with weights of ANCHOR times the largest weight before them, at columns whose input is always zero.
    One column alone is for whole rows."""
    heavy, starts = matrix.copy(), [0, *(columns[:-1] + 1)]
    for start, column in zip(starts, columns, strict=True):
        part = matrix if len(columns) == 1 else matrix[:, start:column]
        size = ANCHOR * np.abs(part).max(axis=1)
        heavy[:, column] = np.where(size > 0, size, matrix[:, column])
    return heavy
