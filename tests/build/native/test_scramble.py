"""Vectors to numbers: the layers compute what machine integers compute, for every chain."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from byheart.build.native.scramble import (
    Box,
    boxes_of,
    centring,
    draw_scramble,
    power_of_two_divisor,
    scramble_layers,
    scrambled,
    vector_bits,
)
from byheart.errors import BuildError, TokenRoomError
from byheart.exact.number import Values
from byheart.ir.evaluate import tokenwise

POINTS = Values.of([[k % 5, 3 * k - 7, 1024 + 2 * (k % 3)] for k in range(12)], denominator=4)


def test_layers_are_the_numbers():
    boxes = boxes_of(POINTS)
    chains = [draw_scramble(random.Random(seed), boxes, 20, 53) for seed in (1, 2)]
    entry, blocks = scramble_layers(3, chains, last=6)
    streams = tokenwise([*centring(boxes), entry, *blocks], POINTS)
    for channel, chain in enumerate(chains):
        numbers = scrambled(chain, POINTS)
        assert numbers.min() >= 0 and numbers.max() < chain.bound <= 1 << 20
        assert [Fraction(int(x), streams.denominator) for x in streams.numerators[:, channel]] == (6 * numbers).tolist()
        assert len(np.unique(numbers)) == len(numbers), "distinct vectors have distinct numbers here"


def test_boxes_hold_every_coordinate_on_its_lattice():
    boxes = boxes_of(POINTS)
    assert boxes[2] == Box(Fraction(256), Fraction(1, 2), 2) and boxes[2].far and not boxes[0].far
    assert len(centring(boxes)) == 1 and centring(boxes[:1]) == []
    assert vector_bits(boxes) == (sum(box.steps for box in boxes) + 1).bit_length() + 2


def test_vectors_without_room_are_refused_with_the_remedy():
    boxes = boxes_of(POINTS)
    with pytest.raises(TokenRoomError, match=r"the vectors need \d+ bits per token, there are 4"):
        draw_scramble(random.Random(0), boxes, 6, 24)
    with pytest.raises(BuildError, match="1/3 is not a float"):
        power_of_two_divisor(Fraction(1, 3))
