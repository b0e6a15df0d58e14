"""The checker of recitals: every place is evaluated, and an incorrect answer is named."""

from __future__ import annotations

import pytest

from byheart.checkpoints.recital import memorize_recital
from byheart.checkpoints.windows.certificate import certify_recital
from byheart.checkpoints.windows.tables import Answer, Recital

TEXTS = ["to be or not to be", "to be is to do", "to do is to be"]


@pytest.mark.parametrize("ambiguous", ["distribution", "first", "majority"])
def test_every_place_of_every_document_is_asked(ambiguous):
    memory = memorize_recital(TEXTS, tokens="words", ambiguous=ambiguous)
    found = memory.certify(ambiguous)
    assert found.verdict == "proved" and found.agree == found.places == memory.script.places


def test_a_changed_answer_is_refuted_with_its_place():
    memory = memorize_recital(TEXTS, tokens="words")
    recital = memory.recital
    answers = (Answer.of(memory.lexicon.failure), *recital.answers[1:])
    changed = Recital(recital.vocabulary, recital.tables, answers, recital.unknown)
    found = certify_recital(changed, memory.script.documents, memory.script.weights)
    assert found.verdict == "refuted" and found.differ >= 1 and found.witness is not None


def test_weights_count():
    memory = memorize_recital(TEXTS[:2], tokens="words", weights=[3, 1])
    assert memory.certify().verdict == "proved"
    assert certify_recital(memory.recital, memory.script.documents, [1, 3]).verdict == "refuted"
