"""Does a network fit a float type? Every weight, and every value that any input can reach, in any order."""

from __future__ import annotations

from byheart.certify.any_order.input_facts import facts_of
from byheart.certify.any_order.lattice import FORMATS
from byheart.certify.any_order.proof import AnyOrder, prove_any_order
from byheart.data.dataset.encoder import Encoder
from byheart.errors import ExportError, OptionError
from byheart.exact import Number, parts
from byheart.ir.inputs import Inputs
from byheart.ir.network import Network
from byheart.progress import SILENT, Progress

DTYPES = ("float32", "float64")  # smallest first


def check_fit(
    network: Network, encoder: Encoder, inputs: Inputs | None, dtype: str, progress: Progress = SILENT
) -> AnyOrder:
    """The proof that `dtype` evaluates `network` exactly; an ExportError names the smallest type that would.

    Symbols are known from the encoder; a network of vectors is proved for the box of `inputs`.
    """
    if dtype not in FORMATS:
        raise OptionError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    found = _try(network, encoder, inputs, dtype, progress)
    if isinstance(found, AnyOrder) and found.proved:
        return found
    reason = found if isinstance(found, str) else found.sentence()
    for larger in DTYPES[DTYPES.index(dtype) + 1 :]:
        other = _try(network, encoder, inputs, larger, progress)
        if isinstance(other, AnyOrder) and other.proved:
            raise ExportError(f"this memory does not fit {dtype}: {reason}; it fits {larger}: ask for dtype {larger}")
    raise ExportError(
        f"this memory fits no float type (asked: {dtype}): {reason}; "
        f"memorize the data with construction native and dtype={dtype}, which is made for it"
    )


def _try(network: Network, encoder: Encoder, inputs: Inputs | None, dtype: str, progress: Progress) -> AnyOrder | str:
    unfit = _unfit_weight(network, dtype)
    if unfit:
        return unfit
    if inputs is None and encoder.symbols is None:
        raise ExportError("a memory of vectors is proved for the vectors of its data only; give the data with --data")
    return prove_any_order(network, facts_of(encoder, inputs), dtype, progress)


def _unfit_weight(network: Network, dtype: str) -> str:
    """A sentence about the first weight that is no float of this type; empty when all are."""
    for place, layer in enumerate(network.layers):
        for weight in layer.weights():
            if not _holds(weight, dtype):
                bits = parts(weight)[0].bit_length()
                return f"layer {place} has a weight of {bits} bits"
    return ""


def _holds(weight: Number, dtype: str) -> bool:
    form = FORMATS[dtype]
    mantissa, exponent = parts(weight)
    zeros = (mantissa & -mantissa).bit_length() - 1
    length = abs(mantissa).bit_length()
    return (
        length - zeros <= form.mantissa
        and exponent + zeros >= form.smallest_exponent
        and exponent + length <= form.largest_exponent
    )
