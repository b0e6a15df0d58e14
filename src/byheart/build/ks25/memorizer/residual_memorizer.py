"""The memorizer, whole or in pieces, made of blocks with skip connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byheart.build.ks25.memorizer.key_groups import Fields
from byheart.build.ks25.memorizer.memorizer import Table, bits_promised
from byheart.build.ks25.memorizer.residual_lookup import lookup_blocks, start_shift
from byheart.build.ks25.memorizer.residual_scan import DENSE, scan_blocks, scan_depth
from byheart.build.ks25.memorizer.residual_stream import STREAM, TRAJECTORIES, blocks, cleared
from byheart.build.shared.promise import Gadget, Promise
from byheart.build.shared.wires import Block, Effect
from byheart.exact import Number
from byheart.paper import Ref, implements


def memorizer_blocks(
    pieces: Sequence[Table],
    hidden: int = DENSE,
    effects: tuple[Effect, ...] = (),
    shift: Mapping[str, Number] | None = None,
) -> list[Block]:
    """Start, look up and scan for each piece in turn; `effects` and `shift` join the very first block."""
    steps: list[Block] = []
    for piece in pieces:
        if steps:
            steps.append(Block(cleared(*TRAJECTORIES), start_shift(piece.fields)))
        else:
            steps.append(Block(effects, {**start_shift(piece.fields), **(shift or {})}))
        steps += lookup_blocks(piece.groups, piece.fields)
        steps += scan_blocks(piece.fields, hidden)
    return steps or [Block(effects, dict(shift or {}))]


def residual_depth(groups: int, fields: Fields, hidden: int = DENSE) -> int:
    """Blocks of one piece: 1 + m + K·max(rho, c) + 3."""
    return 1 + groups + scan_depth(fields, hidden)


@implements(
    Ref("KS25", "Lemma C.1"),
    statement="With skip connections: 1 + m + K·max(rho, c) + 3 blocks of width 14.",
    test="tests/build/ks25/memorizer/test_residual_memorizer.py",
)
@implements(
    Ref("KS25", "Lemma F.1"),
    statement="With skip connections: pieces in a row share x and y, and the trajectories are cleared between them.",
    test="tests/build/ks25/memorizer/test_residual_memorizer.py",
)
def residual_memorizer(table: Table, piece: int | None = None, hidden: int = DENSE) -> Gadget:
    """Adds to y the label of the key ⌊x⌋ (0 off the keys); with `piece`, in pieces of that many keys.

    The stream starts as (x, 0, …, 0). Cost: width 14 (or 12, see `residual_scan`), 1 + m + K·max(rho, c) + 3 blocks per
    piece, K·max(rho, c) + rho bits.

    >>> residual_memorizer(Table((2, 5, 8), (1, 3, 2), Fields(entries=2, key_bits=4, label_bits=2))).promise
    Promise(width=14, depth=14, bits=12)
    """
    pieces = table.pieces(piece or max(1, len(table.keys)))
    depth = sum(residual_depth(part.group_count, table.fields, hidden) for part in pieces)
    promise = Promise(width=hidden, depth=max(1, depth), bits=bits_promised(table.fields))
    return Gadget(blocks(memorizer_blocks(pieces, hidden)), STREAM, STREAM, promise)
