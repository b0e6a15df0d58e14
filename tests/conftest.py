"""What all tests share: hypothesis draws the same examples on every machine and is never hurried."""

import pytest
from hypothesis import HealthCheck, settings

from tests.corpora import TEXTS, Corpus

settings.register_profile(
    "byheart",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("byheart")


@pytest.fixture
def corpus() -> Corpus:
    return Corpus.of_texts(TEXTS)
