"""A small recital fixture and a toy engine, shared by the tests of the suite's shell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from byheart.checkpoints.engines.queries import read_queries
from byheart.checkpoints.suite.cases import cached_fixture

TEXT = "The lamp is lit. Who keeps the lamp? I keep the lamp, and the lamp keeps me."


class ToyEngine:
    """An engine that evaluates the symbolic function; `fault` breaks one thing."""

    fault: str | None = None

    def __init__(self, folder: Path) -> None:
        self.asked = read_queries(folder)

    def _next(self, ids: list[int]) -> int:
        return int(self.asked.recital.next_tokens(ids)[-1])

    def generate(self, ids, n):
        said = []
        for _ in range(n):
            said.append(self._next([*ids, *said]))
            if said[-1] == self.asked.eos:
                break
        return said

    def batch(self, prompts, n):
        rows = [self.generate(ids, n) for ids in prompts]
        return rows[::-1] if self.fault == "rows" else rows

    def logits(self, pieces):
        tokens = self.asked.recital.next_tokens([t for piece in pieces for t in piece])
        return 24.0 * np.eye(self.asked.recital.vocabulary)[tokens]

    dtype = "symbolic"


@pytest.fixture(scope="session")
def small_cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def small_fixture(small_cache) -> Path:
    return cached_fixture("recital", "llama", root=small_cache, text=TEXT, tokens="characters", reach=256)
