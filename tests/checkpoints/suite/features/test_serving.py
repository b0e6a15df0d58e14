"""Serving cases are answered by the symbolic function, and detect caches that do not branch."""

from byheart.checkpoints.suite.features.serving import serving_cases
from byheart.checkpoints.suite.runner import run_cases
from tests.checkpoints.suite.conftest import ToyEngine


class StalePrefix(ToyEngine):
    """Reuses the continuation of the first prompt with the same eight tokens at its start."""

    def __init__(self, folder):
        super().__init__(folder)
        self.kept = {}

    def generate(self, ids, n):
        return self.kept.setdefault(tuple(ids[:8]), super().generate(ids, n))[:n]


def test_a_prefix_cache_that_does_not_branch_is_detected(small_fixture):
    cases = [case for case in serving_cases(small_fixture) if "shared" in case.name]
    assert len(cases) >= 4 and all(r.status == "correct" for r in run_cases(cases, ToyEngine))
    assert any(r.status == "incorrect" for r in run_cases(cases, StalePrefix))


def test_chunks_cover_the_same_text(small_fixture):
    chunked = [case for case in serving_cases(small_fixture) if case.verb == "logits"]
    texts = {tuple(t for piece in case.content["pieces"] for t in piece) for case in chunked}
    assert len(texts) == 1 and {len(case.content["pieces"][0]) for case in chunked} >= {1, 7, 16, 64}
