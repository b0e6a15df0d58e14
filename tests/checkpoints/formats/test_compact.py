"""The head of a compact Llama sees the wanted position, or a nearer one at the start of a text."""

import numpy as np
import pytest

from byheart.checkpoints.formats.compact import FREQUENCIES, LONGEST, SHARES, seen_place


@pytest.mark.parametrize("wanted", (0, 1, 2, 7, LONGEST))
def test_the_seen_place_has_the_largest_score(wanted):
    for position in (wanted, wanted + 1, wanted + 17):
        scores = np.cos(np.outer(np.arange(position + 1) - wanted, FREQUENCIES)) @ SHARES
        assert seen_place(position, wanted) == scores.argmax() == wanted
    if wanted > 1:
        assert seen_place(1, wanted) in (0, 1)
