"""The guarantees of the decoders of M24: the parameters of Theorems 5 and 7 for one neuron per context.

With an activation that has no limits (GELU) or neurons in their contexts' directions the dimension is found on the way,
and the smallest decoder is searched for: these guarantee no size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from byheart.data.dataset.dataset import Dataset, ordered_distributions
from byheart.errors import OptionError
from byheart.ir.decoder import Activation
from byheart.ir.size import Claim
from byheart.paper import Ref
from byheart.theory.guarantees import choice, guarantees
from byheart.theory.madden import OneLayerDecoder

CLOSED_FORM, LOW_RANK, SIZE = "closed-form", "low-rank", "size"
STEPS, DIRECTIONS, SAMPLED = FEATURES = ("steps", "directions", "sampled")
SAMPLED_DIMENSION = 16  # where none is given: that of M24's experiments
ATTENTION, AVERAGE = "attention", "average"


@guarantees("madden24")
def attention_guarantee(dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    return _guarantee(dataset, options, ATTENTION)


@guarantees("madden24-average")
def average_guarantee(dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    return _guarantee(dataset, options, AVERAGE)


def _guarantee(dataset: Dataset, options: Mapping[str, Any], default: str) -> Claim:
    mixer = choice(options, "mixer", *((ATTENTION, AVERAGE) if default == ATTENTION else (AVERAGE, ATTENTION)))
    ref = Ref("M24", "Theorem 5" if mixer == ATTENTION else "Theorem 7")
    activation = Activation.named(choice(options, "activation", *(kind.value for kind in Activation)))
    features = choice(options, "features", None, *FEATURES)
    if features is None:
        features = STEPS if activation.saturates else DIRECTIONS
    if choice(options, "objective", CLOSED_FORM, LOW_RANK, SIZE) != CLOSED_FORM or features == DIRECTIONS:
        return Claim(ref)
    contexts = ordered_distributions(dataset)
    least = SAMPLED_DIMENSION if features == SAMPLED else 1
    shape = {"d": options.get("dimension") or least, "heads": options.get("heads", 1)}
    if any(type(size) is not int or size < 1 for size in shape.values()):
        raise OptionError(f"{shape} is not a shape")
    head = max(1, shape["d"] // shape["heads"]) if features == SAMPLED else 1
    shape |= {"value_size": head, "key_size": head}
    counted = OneLayerDecoder(contexts.vocabulary_size, contexts.tokens.shape[1], contexts.count, **shape)
    whole = counted.parameters if mixer == ATTENTION else counted.averaging_parameters
    formula = "ωm + m(d+1) + 2h(d₀+d₁)d + (ω+T)d" if mixer == ATTENTION else "dω + T + dm + m + mω"
    return Claim(ref, {"parameters": whole}, {"parameters": f"{formula} with one neuron per context"})
