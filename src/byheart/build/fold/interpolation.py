"""One block that draws a line through every point: the smallest memory for very few ids, and the shallowest for any.

>>> blocks = interpolate([4, 7, 9], [2, 0, 1])
>>> from byheart.build.fold.block import run_blocks
>>> [run_blocks(blocks, x) for x in (4, 7, 9)]
[5, 1, 3]
"""

from __future__ import annotations

from collections.abc import Sequence

from byheart.build.fold.block import Block, Unit


def interpolate(ids: Sequence[int], labels: Sequence[int]) -> tuple[Block, ...]:
    """A block with h = x -> 2·label + 1 for ascending ids >= 0; at most one unit per id.

    Lines of slope 2S, -2S, 2S, … go through one point each, S the largest label difference; two neighbouring lines
    meet between their points, at a multiple of 1/(4S), so that the kink is a unit with integer weights. Points with
    equal labels next to each other share a level line.
    """
    pieces = _pieces(ids, labels)
    slopes, intercepts = _lines(pieces)
    units: list[Unit] = []
    first = slopes[0] - 1
    if first:
        units.append((1, 0, first))
    for before, after, cut, rest in zip(slopes, slopes[1:], intercepts, intercepts[1:], strict=False):
        change = after - before
        if change:
            sign = 1 if change > 0 else -1
            units.append((abs(change), sign * (rest - cut), sign))
    return (Block(tuple(units), intercepts[0]),)


def _pieces(ids: Sequence[int], labels: Sequence[int]) -> list[tuple[int, int, int]]:
    """(first id, last id, label) of every run of equal labels."""
    pieces: list[tuple[int, int, int]] = []
    for x, y in zip(ids, labels, strict=True):
        if pieces and pieces[-1][2] == y:
            pieces[-1] = (pieces[-1][0], x, y)
        else:
            pieces.append((x, x, y))
    return pieces


def _lines(pieces: Sequence[tuple[int, int, int]]) -> tuple[list[int], list[int]]:
    """Slope and intercept of the lines, left to right; two level neighbours get a steep line between them."""
    values = [2 * y + 1 for _, _, y in pieces]
    steep = max(values) - min(values)
    slopes: list[int] = []
    intercepts: list[int] = []

    def add(slope: int, through: int, value: int) -> None:
        slopes.append(slope)
        intercepts.append(value - slope * through)

    for k, (first, last, _) in enumerate(pieces):
        if first < last or len(pieces) == 1:
            rise = values[k] - values[k - 1] if slopes else 0
            if rise * (slopes[-1] if slopes else 1) <= 0 and slopes:
                add(rise, pieces[k - 1][1], values[k - 1])  # the line before does not lead here; this one does
            add(0, first, values[k])
        else:
            up = slopes[-1] < 0 if slopes and slopes[-1] else bool(slopes) and values[k] > values[k - 1]
            add(steep if up else -steep, first, values[k])
    return slopes, intercepts
