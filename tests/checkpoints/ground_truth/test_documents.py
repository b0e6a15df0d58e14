"""Distances name the type and the places they were measured at."""

from byheart.checkpoints.ground_truth.documents import Counted, Distance


def test_a_distance_is_a_sentence():
    found = str(Distance(0.00123, 4.5e-7, 1234, "bfloat16"))
    assert found == "measured in bfloat16 at 1,234 places: at most 1.2e-03 nats per log-probability, KL at most 4.5e-07"


def test_documents_are_members_unless_they_say_otherwise():
    assert Counted("r", (1, 2), 3, (0.5,)).role == "member"
