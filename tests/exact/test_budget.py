"""Budgets: what an untrusted file, or one's own data, may need."""

from __future__ import annotations

import pytest

from byheart.errors import BudgetError
from byheart.exact.budget import PADDING, TIMES, Budget, check_free_memory, check_padding, limited


def test_padding_is_charged_by_what_a_place_takes():
    """256 bytes a place: three times PADDING places fit this budget exactly, four do not."""
    with limited(Budget(memory=256 * 3 * PADDING)):
        check_padding(3, PADDING, 10)
        with pytest.raises(BudgetError, match=r"--max-memory"):
            check_padding(4, PADDING, 10)
        check_padding(4, PADDING, 4 * PADDING // TIMES)  # as many tokens are there


def test_one_s_own_rows_have_no_budget_but_must_fit_into_memory(monkeypatch):
    check_padding(10**9, 10**9, 1)  # outside of `limited`
    monkeypatch.setattr("byheart.exact.budget.free_memory", lambda: 300 * 1000 + 40 * 5000)
    check_free_memory(1000, 5000)
    with pytest.raises(BudgetError, match="1,000 rows with 5,001 tokens"):
        check_free_memory(1000, 5001)
