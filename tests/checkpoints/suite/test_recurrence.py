"""The machine's recurrences against the same ones written step by step, from a state that is not empty."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from byheart.checkpoints.suite.recurrence import RecurrentSteps  # noqa: E402

HEADS, PLACES, KEY, VALUE = 3, 9, 4, 5


def machine() -> RecurrentSteps:
    found = RecurrentSteps()
    found.dtype = found.wide = torch.float64
    return found


def sampled(*shape: int):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def test_the_delta_rule_of_a_piece_is_that_of_single_steps() -> None:
    steps = machine()
    q, k = (steps.unit_length(sampled(HEADS, PLACES, KEY + extra)[..., :KEY]) for extra in (0, 1))
    v, state = sampled(HEADS, PLACES, VALUE), sampled(HEADS, KEY, VALUE)
    decay, share = -sampled(HEADS, PLACES).abs(), torch.sigmoid(sampled(HEADS, PLACES + 1)[:, :-1])
    out, left = steps.delta_rule(q, k, v, decay, share, state)
    for t in range(PLACES):
        state = decay[:, t].exp()[:, None, None] * state
        read = (k[:, t, None] @ state)[:, 0]
        state = state + share[:, t, None, None] * k[:, t, :, None] * (v[:, t] - read)[:, None]
        assert torch.allclose(out[:, t], (q[:, t, None] @ state)[:, 0])
    assert torch.allclose(left, state)


def test_the_scan_of_a_piece_is_that_of_single_steps() -> None:
    x, b, c = sampled(HEADS, PLACES, VALUE), sampled(HEADS, PLACES, KEY), sampled(HEADS, PLACES, KEY + 1)[..., :KEY]
    step, rate, state = sampled(HEADS, PLACES).abs(), sampled(HEADS).abs(), sampled(HEADS, VALUE, KEY)
    out, left = machine().scan(x, b, c, step, rate, state)
    for t in range(PLACES):
        state = (-rate * step[:, t]).exp()[:, None, None] * state
        state = state + step[:, t, None, None] * x[:, t, :, None] * b[:, t, None, :]
        assert torch.allclose(out[:, t], (state @ c[:, t, :, None])[..., 0])
    assert torch.allclose(left, state)
