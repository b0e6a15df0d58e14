"""What a stock checkpoint computes, as a value: one description for ten architectures, read from a folder.

Everything that architectures spell differently is settled: norm weights are factors (Gemma's 1 is added), matrices are
(out, in) (GPT-2's are turned), fused projections are apart, positions are one table or one rotation.

    h_0     = scale * embedding[token] (+ positions[t])
    h_{l+1} = h_l + attention(norm h_l), then + mlp(norm of that)      or, in parallel, of h_l
    logits  = head(norm h_last)

The parts are the checker's own (`checkpoints.proof`): its settings (`Shape`), its layers, its reader of names and
shapes. So what is converted is what is proved: a setting that would change the mathematics and that the proof does not
support is refused here too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.proof.checkpoint import open_checkpoint
from byheart.checkpoints.proof.config import Rotary, Shape, Undecided
from byheart.checkpoints.proof.decoder import Layer, Linear, Norm, TensorReader
from byheart.checkpoints.proof.storage import STORAGES
from byheart.errors import FileFormatError, OptionError

Floats32 = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class StockDecoder:
    """A whole network, in float32: its settings and its tensors by role."""

    shape: Shape
    embedding: Floats32  # (vocabulary, hidden)
    positions: Floats32 | None  # (shape.positions, hidden), already shifted: row t belongs to position t
    layers: tuple[Layer, ...]
    final_norm: Norm
    head: Linear  # where it is tied, its weight is `embedding` itself

    @property
    def embedding_scale(self) -> float:
        """What token vectors are multiplied by: Gemma's root of the hidden size, as engines compute it in float32."""
        root = float(np.float32(math.sqrt(self.shape.hidden)))
        return root if self.shape.root_scaled else self.shape.embedding_scale

    @property
    def score_scale(self) -> float:
        return self.shape.scale


class _Float32Reader(TensorReader):
    """The checker computes in float64; networks are converted and run in float32, which holds every stored type."""

    def tensor(self, name: str, *shape: int, matrix: bool = False, transposed: bool = False) -> Floats32:
        values: Floats32 = super().tensor(name, *shape, matrix=matrix, transposed=transposed).astype(np.float32)
        return values


def read_decoder(folder: str | Path) -> StockDecoder:
    """What the checkpoint in a folder computes; its numbers are widened to float32, which loses nothing."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileFormatError(f"{folder} is not a folder; a checkpoint is a folder with config.json and tensors")
    try:
        checkpoint = open_checkpoint(folder)
        shape, reader = checkpoint.shape, _Float32Reader(checkpoint, STORAGES["float32"], None)
        embedding, positions = reader.embedding()
        layers = tuple(reader.layer(index) for index in range(shape.layers))
        head = Linear("head", embedding, None) if shape.tied else reader.head()
        return StockDecoder(shape, embedding, positions, layers, reader.final_norm(), head)
    except Undecided as error:
        raise OptionError(f"{folder}: {error}") from error


def frequencies(rotary: Rotary) -> Floats32:
    """theta^(-2 i / dims), computed as the engines do, in float32: dimension i turns with dimension i + dims / 2.

    >>> frequencies(Rotary(theta=100.0, dims=4))
    array([1. , 0.1], dtype=float32)
    """
    if rotary.scaling is not None:
        return np.asarray(rotary.frequencies, dtype=np.float32)
    steps = np.arange(0, rotary.dims, 2, dtype=np.float32) / np.float32(rotary.dims)
    return (1.0 / (np.float32(rotary.theta) ** steps)).astype(np.float32)
