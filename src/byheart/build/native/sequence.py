"""The layers that bring a sequence together: attention with zero scores, the snap, and the gated prefix sum."""

from __future__ import annotations

from collections.abc import Sequence

from byheart.build.native.block import Unit, residual
from byheart.build.native.floats import FloatType
from byheart.exact import Number, dyadic
from byheart.ir.layers import Attention, Head, Kind, Matrix, Pattern, Residual
from byheart.paper import Ref, implements


def mean_attention(
    width: int, pattern: Pattern, reads: Sequence[int], writes: Sequence[int], weight: Number
) -> Attention:
    """Softmax attention with W_K = W_Q = 0: channel writes[i] += weight · mean of channel reads[i]."""
    size = len(reads)
    value = Matrix.of([{channel: weight} for channel in reads], width)
    places = {channel: i for i, channel in enumerate(writes)}
    output = Matrix.of([{places[c]: 1} if c in places else {} for c in range(width)], size)
    nothing = Matrix.zero(1, width)
    return Attention(Kind.SOFTMAX, pattern, (Head(value, output, nothing, nothing),))


def attention_parameters(width: int, chains: int) -> int:
    """Entries of W_V, W_O (one row or column per chain) and W_K, W_Q (one row each)."""
    return 2 * width * chains + 2 * width


@implements(
    Ref("byheart", "snap"),
    statement="adding and subtracting 1.5·2^(mantissa-1) units rounds a float to its lattice and is 0 in exact numbers",
    test="tests/certify/any_order/test_proof.py",
)
def snap_blocks(width: int, kind: FloatType, channels: Sequence[int], scale: int) -> list[Residual]:
    """Two blocks of nothing but a bias: floats near a multiple of 2^scale become that multiple."""
    much = dyadic(3, kind.mantissa - 2 + scale)
    return [residual(width, [], {channel: sign * much for channel in channels}) for sign in (1, -1)]


@implements(
    Ref("byheart", "prefix sum"),
    statement="k times the mean of k tokens is their sum: k's bits, known from the position, gate shifted copies of it",
    test="tests/build/native/test_construction.py",
)
def prefix_sum_blocks(
    width: int, length: int, counter: int, means: Sequence[int], sums: Sequence[int], bound: int
) -> list[Residual]:
    """sums[i] += p·means[i] for the whole number p <= length in channel `counter`; both are cleared afterwards.

    With p < 2^(i+1): relu(a + B(p − 2^i)) − B·relu(p − 2^i) is a where p >= 2^i and 0 elsewhere (0 <= a < B = `bound`),
    and p −= 2^i·(relu(p − 2^i + 1) − relu(p − 2^i)) strips the bit.
    """
    blocks = []
    for i in range(length.bit_length() - 1, -1, -1):
        bit = 1 << i
        units = [
            Unit({mean: 1, counter: bound}, -bound * bit, {total: bit}) for mean, total in zip(means, sums, strict=True)
        ]
        above: dict[int, Number] = {total: -bit * bound for total in sums}
        units.append(Unit({counter: 1}, -bit, {**above, counter: bit}))
        units.append(Unit({counter: 1}, 1 - bit, {counter: -bit}))
        if i == 0:
            units += [Unit({mean: 1}, 0, {mean: -1}) for mean in means]
        blocks.append(residual(width, units))
    return blocks
