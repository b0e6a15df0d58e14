"""A decoder on balls: the network of M24, eq. (2), evaluated with enclosures of every number.

One evaluation serves both kinds of balls: `FloatBalls` (fast) and `ArbBalls` (any precision).
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from byheart.certify.balls._base import Balls
from byheart.errors import NetworkError
from byheart.ir.decoder import Average, Decoder, SelfAttention
from byheart.ir.decoder_network import AnyDecoder, TableDecoder

Ints = npt.NDArray[np.int64]
B = TypeVar("B", bound=Balls)


def logit_balls(decoder: AnyDecoder, tokens: Ints, kind: type[B]) -> B:
    """Enclosures of the logits (n, ω) of contexts of one length τ: tokens is (n, τ), without padding.

    Weights of a file may be so large that float64 overflows; such a ball has an infinite radius, so no warning.
    """
    with np.errstate(all="ignore"):
        if isinstance(decoder, TableDecoder):  # which row it is, is exact
            return kind.exact(decoder.named(tokens)).times(decoder.columns)
        return output_balls(decoder, mixed_balls(decoder, tokens, kind))


def output_balls(decoder: Decoder, mixed: B) -> B:
    """Enclosures of the logits from enclosures of the mixed vectors."""
    kind = type(mixed)
    values = (mixed.times(decoder.hidden) + kind.exact(decoder.bias[None, :])).activated(decoder.activation)
    for factor in decoder.output:
        values = values.times(factor)
    return values


def mixed_balls(decoder: Decoder, tokens: Ints, kind: type[B]) -> B:
    """Enclosures of what the reader gives for contexts of one length: (n, d)."""
    reader = decoder.reader
    length = tokens.shape[1]
    plain = kind.exact(reader.embedding[tokens])  # (n, τ, d)
    if isinstance(reader.mixer, Average):
        mixed = (plain * kind.exact(reader.mixer.positions[None, :length, None])).sum(axis=1)
    else:
        plain = plain + kind.exact(reader.mixer.positions[None, :length, :])
        mixed = _attended(reader.mixer, plain)
    return mixed + plain[:, -1, :] if reader.skip else mixed


def _attended(mixer: SelfAttention, plain: B) -> B:
    """Every head's softmax, with exponents relative to about the highest score, which keeps them small."""
    gathered: B | None = None
    row = 0
    for head in mixer.heads:
        keys, query = plain.times(head.key), plain[:, -1, :].times(head.query)
        scores = (keys * query[:, None, :]).sum(axis=2)  # (n, τ)
        # subtracting the same number from all scores changes no softmax
        highest = type(plain).exact(scores.middles().max(axis=1)[:, None])
        shares = (scores - highest).exp()
        mean = (plain * shares[:, :, None]).sum(axis=1) / shares.sum(axis=1)[:, None]
        size = head.value.shape[1]
        part = mean.times(head.value).times(mixer.output[row : row + size])
        gathered = part if gathered is None else gathered + part
        row += size
    if gathered is None:
        raise NetworkError("attention needs a head")
    return gathered
