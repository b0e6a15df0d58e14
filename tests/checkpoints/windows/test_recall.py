"""The recall function against a naive one, and the codes of its keys."""

from __future__ import annotations

import numpy as np
import pytest

from byheart.checkpoints.windows.recall import VOCABULARY, RecallFunction, key_code
from byheart.errors import DataError, OptionError


def naive(ids: list[int], length: int) -> int:
    """Look at every place, first to last."""
    wanted = [ids[max(len(ids) - 1 - k, 0)] for k in range(length)]
    for i in range(1, len(ids)):
        if ids[i] != 1 and [ids[max(i - 1 - k, 0)] for k in range(length)] == wanted:
            return ids[i]
    return 0


@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("symbols", [1, 2, 5, 40])
def test_answers_are_those_of_a_naive_search(length: int, symbols: int) -> None:
    rng = np.random.default_rng([length, symbols])
    ids = [1, *rng.integers(0, symbols, 120).tolist()]
    found = RecallFunction(length).answers(ids)
    assert found == [naive(ids[: t + 1], length) for t in range(len(ids))]


def test_a_window_as_long_as_the_text_changes_nothing() -> None:
    ids = [1, *np.random.default_rng(0).integers(4, 12, 100).tolist()]
    assert RecallFunction(window=200).answers(ids) == RecallFunction().answers(ids)


def test_a_window_has_at_most_one_fresh_holder() -> None:
    """The first holder leaves the window; then a later one, which did not see it, becomes fresh."""
    window = 16
    rng = np.random.default_rng(3)
    ids = [1 if t % 8 == 0 else int(rng.integers(4, 7)) for t in range(400)]
    found = RecallFunction(1, window=window).answers(ids)
    for t in range(len(ids)):
        seen = [i for i in range(max(t - window + 1, 1), t + 1) if ids[i] != 1 and ids[i - 1] == ids[t]]
        assert found[t] in {0, *(ids[i] for i in seen)}
    assert len(set(found)) > 2


def test_decoding_copies_until_the_end_token() -> None:
    ids = [1, 9, 8, 7, 6, 2, 30, 9, 8]
    assert RecallFunction().continuation(ids, 10) == [7, 6, 2]
    assert RecallFunction().continuation([1, 5, 6], 3) == RecallFunction().answers([1, 5, 6, 0, 0])[2:]


def test_bad_sequences_are_refused() -> None:
    with pytest.raises(DataError, match="begins with BOS"):
        RecallFunction().answers([5, 6])
    with pytest.raises(DataError, match="not one of 256"):
        RecallFunction().answers([1, 300])
    with pytest.raises(DataError, match="must hold one"):
        RecallFunction(window=8).answers([1, *[5] * 20])
    with pytest.raises(OptionError, match="1 or 2 tokens"):
        RecallFunction(3)


@pytest.mark.parametrize("length", [1, 2])
def test_codes_are_linear_and_far_apart(length: int) -> None:
    code = key_code(length)
    weights = code.differences().sum(1)
    assert len(weights) == VOCABULARY**length - 1 and weights.min() == code.distance == 8
    products = {tuple(code.newer[3] * word) for word in code.newer}
    assert products == {tuple(word) for word in code.newer}
    apart = [(code.newer[0] != word).sum() for word in code.newer[1:]]
    assert min(apart) == code.spread
