"""One pass over the layers of a network: a rule for each kind of layer, in one domain.

A domain is how the streams of numbers are represented: exact numbers (`evaluate`), balls (`enclose`), floats
(`floats`), lattices that hold every float an engine may compute (`certify.any_order.proof`), modules
(`export.targets.torch`) or nodes of a graph (`export.targets.onnx`). A domain is a subclass with a method per kind of
layer that it has a rule for; every other kind is refused with its name. A new kind of layer is added here, and then to
the domains that need it.

>>> from byheart.ir.layers import Matrix
>>> class Widths(LayerWalk[int]):
...     def affine(self, layer: Affine) -> int:
...         return layer.width_out
>>> Widths().apply(Affine(Matrix.of([{0: 2}], 1)))
1
>>> Widths().apply(Pool(1))
Traceback (most recent call last):
    ...
byheart.errors.NetworkError: Widths has no rule for a Pool layer
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NoReturn, TypeVar

from byheart.errors import NetworkError
from byheart.ir.layers import (
    Affine,
    Attention,
    Embedding,
    Flatten,
    GlobalToken,
    Layer,
    Pool,
    Residual,
    SequenceLayer,
    Threshold,
)

R = TypeVar("R")

# kind of layer -> the method with its rule
RULES: dict[type[Layer], str] = {
    Embedding: "embedding",
    Affine: "affine",
    Threshold: "threshold",
    Residual: "residual",
    Attention: "attention",
    Pool: "pool",
    Flatten: "flatten",
    GlobalToken: "global_token",
}


class LayerWalk(Generic[R]):
    """Rules for layers, one method each; `apply` and `over` are final.

    Attributes:
        last: Whether no layer that follows looks at whole sequences, so that only the tokens that are read matter.
    """

    last = False

    def over(self, layers: Sequence[Layer]) -> list[R]:
        """Apply the rules for layers in their order.

        Args:
            layers: The layers of a network, or the rest of them.

        Returns:
            What the rules return.
        """
        mixers = [place for place, layer in enumerate(layers) if isinstance(layer, SequenceLayer)]
        found = []
        for place, layer in enumerate(layers):
            self.last = not mixers or place >= mixers[-1]
            found.append(self.apply(layer))
        return found

    def apply(self, layer: Layer) -> R:
        """Apply the rule for a layer.

        Args:
            layer: The next layer of the network.

        Returns:
            What the rule returns; domains that keep the stream themselves return None.

        Raises:
            NetworkError: The domain has no rule for this kind of layer.
        """
        found: R = getattr(self, RULES[type(layer)])(layer)
        return found

    def refuse(self, layer: Layer) -> NoReturn:
        """Raise the error about a layer without a rule; domains override it to name the remedy."""
        raise NetworkError(f"{type(self).__name__.strip('_')} has no rule for a {type(layer).__name__} layer")

    def embedding(self, layer: Embedding) -> R:
        self.refuse(layer)

    def affine(self, layer: Affine) -> R:
        self.refuse(layer)

    def threshold(self, layer: Threshold) -> R:
        self.refuse(layer)

    def residual(self, layer: Residual) -> R:
        self.refuse(layer)

    def attention(self, layer: Attention) -> R:
        self.refuse(layer)

    def pool(self, layer: Pool) -> R:
        self.refuse(layer)

    def flatten(self, layer: Flatten) -> R:
        self.refuse(layer)

    def global_token(self, layer: GlobalToken) -> R:
        self.refuse(layer)
