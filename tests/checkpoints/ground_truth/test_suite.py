"""The frozen suite: the same documents for everybody, no document in two roles."""

import hashlib

import pytest

from byheart.checkpoints.ground_truth.suite import LEVELS, records, suite_memory


def test_documents_are_frozen():
    """A change of the generator is a new SUITE_VERSION: published figures depend on these texts."""
    made = records(0, 180)
    text = "\n".join((*made.texts, *made.held_out, *made.near, *made.paraphrases, *made.background))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "1254b4cf8877ef59"


@pytest.mark.parametrize("seed", [0, 3])
def test_roles_are_disjoint(seed):
    made = records(seed, 60)
    members = set(made.texts)
    assert len(members) == 60 and not members & {*made.held_out, *made.near, *made.paraphrases, *made.background}
    assert [made.copies.count(level) for level in LEVELS] == [10] * 6
    for text, near in zip(made.texts, made.near, strict=True):
        differs = [a != b for a, b in zip(text.split(), near.split(), strict=True)]
        assert sum(differs) == 1


def test_paraphrases_have_the_same_facts():
    made = records(1, 12)
    for text, other in zip(made.texts, made.paraphrases, strict=True):
        assert sorted(w for w in text.split() if w.isdigit()) == sorted(w for w in other.split() if w.isdigit())
        assert text.split()[-7:-1] == other.split()[-7:-1]


def test_the_memory_records_every_role():
    memory = suite_memory(2, 12)
    assert {one.why for one in memory.absent} == {"held out", "corrupted", "paraphrase"}
    assert len(memory.absent) == 36 and memory.names == tuple(f"r{k}" for k in range(12))
