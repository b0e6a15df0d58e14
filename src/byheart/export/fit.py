"""Does a network fit a float type? Every weight, and every value that any input can reach, in any order."""

from __future__ import annotations

from dataclasses import dataclass

from byheart.certify.any_order.input_facts import facts_of
from byheart.certify.any_order.lattice import FORMATS
from byheart.certify.any_order.proof import ASSUMED, AnyOrder, prove_any_order
from byheart.data.dataset.encoder import Encoder
from byheart.errors import ExportError, OptionError
from byheart.ir.network import Inputs, Network
from byheart.progress import SILENT, Progress

DTYPES = ("float32", "float64")  # smallest first


@dataclass(frozen=True)
class Fit:
    """The proof for the float type that was asked for, and for every other type in which the same weights are exact."""

    proof: AnyOrder
    others: tuple[AnyOrder, ...] = ()

    @property
    def types(self) -> tuple[str, ...]:
        """The float types that the weights may be cast to."""
        return (self.proof.dtype, *(other.dtype for other in self.others))

    def as_dict(self) -> dict[str, str]:
        """What is proved, by float type, and what of the engine is assumed."""
        return {**{p.dtype: p.sentence() for p in (self.proof, *self.others)}, "assumed of the engine": ASSUMED}


def check_fit(
    network: Network, encoder: Encoder, inputs: Inputs | None, dtype: str, progress: Progress = SILENT
) -> Fit:
    """The proof that `dtype` evaluates `network` exactly; an ExportError names the smallest type that would.

    Symbols are known from the encoder; a network of vectors is proved for the box of `inputs`.
    """
    if dtype not in FORMATS:
        raise OptionError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    if inputs is None and encoder.symbols is None:
        raise ExportError("a memory of vectors is proved for the vectors of its data only; give the data with --data")
    facts = facts_of(encoder, inputs)
    found = prove_any_order(network, facts, dtype, progress)
    others = [prove_any_order(network, facts, other) for other in DTYPES if other != dtype]
    if found.proved:
        return Fit(found, tuple(other for other in others if other.proved))
    reason = found.sentence()
    for other in others:
        if other.proved and DTYPES.index(other.dtype) > DTYPES.index(dtype):
            larger = other.dtype
            raise ExportError(f"this memory does not fit {dtype}: {reason}; it fits {larger}: ask for dtype {larger}")
    raise ExportError(
        f"this memory fits no float type (asked: {dtype}): {reason}; "
        f"memorize the data with construction native and dtype={dtype}, which is made for it"
    )
