"""The logits that `expected.json` ships: from byheart's own machine, or from Transformers.

The machine of named steps reads an architecture through the proof's reader. A folder of another architecture, whose
answers are measured and not proved, is read by the installed Transformers: in float64, where norms and softmax still
compute in float32, so these logits are as exact as a float32 engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.engines._base import engines
from byheart.checkpoints.formats.stock import read_decoder
from byheart.checkpoints.proof.checkpoint import open_checkpoint
from byheart.checkpoints.proof.config import Undecided

Floats = npt.NDArray[np.float64]
WIDEST = "float64"


@dataclass(frozen=True, eq=False)
class Reference:
    """An engine that computes the logits of a folder after every prefix, in a given type."""

    engine: str
    _open: Callable[[str], Callable[[Sequence[int]], Any]]

    def in_type(self, dtype: str = WIDEST) -> Callable[[Sequence[int]], Floats]:
        """Return a function from token ids to logits (prefixes, vocabulary)."""
        run = self._open(dtype)
        return lambda ids: np.asarray(run(ids), dtype=np.float64)


def machine_reads(folder: Path) -> bool:
    """Return whether byheart's machine computes the architecture of a folder."""
    try:
        open_checkpoint(folder)
    except Undecided:
        return False
    return True


def open_reference(folder: Path) -> Reference:
    """Return the machine where it reads the folder, else Transformers.

    Args:
        folder: A checkpoint folder.

    Raises:
        MissingExtraError: Neither torch nor Transformers is installed.
    """
    if not machine_reads(folder):
        return Reference(f"transformers {engines()['transformers'].version}", lambda dtype: _stock(folder, dtype))
    import torch

    from byheart.checkpoints.suite.machine import Machine, in_blocks

    decoder = read_decoder(folder)

    def opened(dtype: str) -> Callable[[Sequence[int]], Any]:
        machine = Machine(decoder, getattr(torch, dtype)).wrap("mix", in_blocks)

        def run(ids: Sequence[int]) -> Any:
            with torch.inference_mode():
                return machine.run(ids).double().numpy()

        return run

    return Reference("byheart", opened)


def _stock(folder: Path, dtype: str) -> Callable[[Sequence[int]], Any]:
    from byheart.checkpoints.engines.transformers import attention_forms, open_transformers

    return open_transformers(folder, dtype, {"attention": attention_forms(folder)[0]}).logits
