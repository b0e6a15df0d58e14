"""How the number behind the last block is read: as C logits or as the label itself.

>>> Reading.logits([(0, 0), (-2, -1)]).label(-5), Reading.value(-1, 4).label(3)
(1, 1)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byheart.exact import Number
from byheart.ir.layers import Affine, Matrix
from byheart.ir.network import Decode


@dataclass(frozen=True)
class Reading:
    """Rows (w, b) of the output layer; one row is the label itself, more are logits."""

    rows: tuple[tuple[Number, Number], ...]
    decode: Decode

    @staticmethod
    def logits(rows: Sequence[tuple[Number, Number]]) -> Reading:
        return Reading(tuple(rows), Decode.ARGMAX)

    @staticmethod
    def value(weight: Number, bias: Number) -> Reading:
        return Reading(((weight, bias),), Decode.VALUE)

    @property
    def parameters(self) -> int:
        return 2 * len(self.rows)

    def label(self, h: Number) -> Number | None:
        """What is read at h: the place of the largest logit (None for a tie), or the value."""
        scores = [w * h + b for w, b in self.rows]
        if self.decode is Decode.VALUE:
            return scores[0]
        top = max(scores)
        return scores.index(top) if scores.count(top) == 1 else None

    def layer(self) -> Affine:
        """The output layer."""
        return Affine(Matrix.of([{0: w} if w else {} for w, _ in self.rows], 1), tuple(b for _, b in self.rows))
