"""The branch that mixes places: attention, a recurrent mixer, or both side by side."""

from __future__ import annotations

from byheart.checkpoints.proof.attention import attend
from byheart.checkpoints.proof.bounds import Bounds, Normed
from byheart.checkpoints.proof.config import Shape
from byheart.checkpoints.proof.copying import Copy, Reach
from byheart.checkpoints.proof.decoder import DeltaNet, Layer
from byheart.checkpoints.proof.delta_rule import delta_net
from byheart.checkpoints.proof.mamba2 import mamba2
from byheart.checkpoints.proof.storage import Storage


def mixed(n: Normed, layer: Layer, shape: Shape, reach: Reach, store: Storage) -> tuple[Bounds, list[Copy]]:
    """What the branch of one layer adds, and what its heads of attention do."""
    if layer.mixer is None:
        return attend(n, layer.attention, shape, reach, store)
    if isinstance(layer.mixer, DeltaNet):
        return delta_net(n, layer.mixer, shape.vocabulary, reach, store), []
    return mamba2(n, layer.mixer, shape.vocabulary, reach, store), []
