"""An exact memory with a table of distributions."""

from __future__ import annotations

import numpy as np
import pytest

from byheart.certify.next_token import prove_table_gap
from byheart.compile.distribution_table import memorize_table
from byheart.data.dataset.documents import Corpus
from byheart.errors import DataError


def test_awkward_documents(corpus: Corpus) -> None:
    contexts = corpus.contexts()
    table = memorize_table(contexts, rank=4)
    assert table.certificate.verdict == "proved" and table.certificate.contexts == contexts.count
    found = table.log_probabilities([contexts.prefix(i) for i in range(contexts.count)])
    gap = contexts.cross_entropy(found) - contexts.entropy
    assert table.certificate.gap_lower <= gap + 1e-9 and gap - 1e-9 <= table.certificate.gap_upper
    assert table.parameters == table.memory.size.parameters + 4 * (len(table.coordinates) + contexts.vocabulary_size)


def test_a_wrong_answer_is_refuted(corpus: Corpus) -> None:
    contexts = corpus.contexts()
    table = memorize_table(contexts, rank=4)
    answers = contexts.classes.copy()
    answers[0] = (answers[0] + 1) % len(table.coordinates)
    assert prove_table_gap(answers, table.coordinates, table.columns, contexts).verdict == "refuted"
    with pytest.raises(DataError, match="answers for"):
        prove_table_gap(np.array([-1]), table.coordinates, table.columns, contexts)
