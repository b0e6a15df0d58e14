"""Rules for how a branch reads the stream and what is added to it: no norm before it, a norm after it, a multiplier.

*No norm* (OLMo-2): the branch reads the stream itself, which is kept in float32 or stored as the stream is.

*A norm after the branch* (OLMo-2, Gemma 3): the factor is bounded by the energy of the branch's output over all
inputs. That is narrow where the branch also writes large constants (hosts/ballast.py), and sound everywhere.

*A multiplier* (Granite): an engine multiplies by the float32 number, and the product is kept or stored; or it rounds
the number to its type, and stores the product.

Cost: one pass over the bounds per rule.
"""

from __future__ import annotations

import numpy as np

from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.bounds import Bounds, Normed, SymbolPart, either
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.decoder import Linear, Norm
from byheart.checkpoints.proof.storage import Storage, finite


def read_by_branch(stream: Bounds, norm: Norm | None, store: Storage, stored: bool) -> Normed:
    """The branch's input: the normed stream, or the stream itself where no norm precedes the branch."""
    if norm is not None:
        return stream.norm(norm, store, stored)
    return Normed(stream, None if stored else stream, (1.0, 1.0), None)


def added_by_branch(out: Bounds, norm: Norm | None, scale: float, store: Storage, stored: bool) -> Bounds:
    """What a branch adds to the stream: its output after its norm and its multiplier, where it has them."""
    if norm is not None:
        out = out.norm(norm, store, stored).whole.store(store)
    return multiplied(out, scale, store)


def multiplied(field: Bounds, scale: float, store: Storage) -> Bounds:
    """The field times a number of config.json."""
    if scale == 1:
        return field
    finite("a product with a multiplier", field.largest() * scale, store.largest)
    exact, slack = float(np.float32(scale)), rounding.multiplier(scale)
    kept = field.times(exact - slack, exact + slack).store(store)
    short = float(store.nearest(np.full(1, scale))[0])
    if short == exact:
        return kept
    return either(kept, _certainly_stored(field.times(short, short), store))


def _certainly_stored(field: Bounds, store: Storage) -> Bounds:
    """A tensor that is stored in the type: as `Bounds.store`, without the engines that keep it in float32."""
    field, count = field.store(None), field.owners()
    slack = np.where(count > 1, rounding.shared_store(field.largest(), store), 0.0)
    low, high = store.rounded(field.lo, field.hi)
    lo = np.where(count > 1, field.lo - slack, low)
    hi = np.where(count > 1, field.hi + slack, high)
    parts = []
    for part in field.parts:
        single = count[part.channels] == 1
        low, high = store.rounded(part.lo, part.hi)
        parts.append(
            SymbolPart(part.key, part.channels, np.where(single, low, part.lo), np.where(single, high, part.hi))
        )
    return Bounds(lo, hi, tuple(parts))


def scaled_head(head: Linear, scale: float) -> Linear:
    """The head with its logits divided by a number: exact for powers of two, undecided otherwise."""
    if scale == 1:
        return head
    if head.adapter is not None:
        raise Undecided(f"{head.name}: an adapter of a head whose logits are divided by {scale!r}")
    if np.log2(scale) != np.rint(np.log2(scale)):
        raise Undecided(f"logits are divided by {scale!r}, which is not a power of two")
    return Linear(head.name, head.weight / scale, None if head.bias is None else head.bias / scale)
