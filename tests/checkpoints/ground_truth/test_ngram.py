"""The counted distribution against a naive one of twenty lines."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.checkpoints.ground_truth.ngram import NgramModel, contexts_of
from byheart.errors import DataError

SIZE, LENGTHS, MU = 5, (1, 2, 4), (0.5, 2.0, 3.0)


def naive(documents, weights, base, ids):
    """p after every prefix, by the recursion itself."""
    found = []
    for t in range(len(ids)):
        p = np.exp(base)
        for level, length in enumerate(LENGTHS):
            context = [ids[max(0, t - o)] for o in range(length)]
            count = np.zeros(len(base))
            for document, weight in zip(documents, weights, strict=True):
                for s in range(len(document) - 1):
                    if [document[max(0, s - o)] for o in range(length)] == context:
                        count[document[s + 1]] += weight[level]
            if count.sum() > 0:
                p = (count + MU[level] * p) / (count.sum() + MU[level])
        found.append(np.log(p))
    return np.array(found)


tokens = st.integers(0, SIZE - 1)
document = st.lists(tokens, min_size=2, max_size=9).map(tuple)


@settings(max_examples=60, deadline=None)
@given(st.lists(document, min_size=1, max_size=5), document, st.integers(0, 99))
def test_equals_the_recursion(documents, asked, seed):
    rng = np.random.default_rng(seed)
    weights = rng.exponential(size=(len(documents), len(LENGTHS)))
    weights[0, 1:] = 0  # a background document
    base = np.log(rng.dirichlet(np.ones(SIZE)))
    model = NgramModel.count(documents, weights, base, LENGTHS, MU)
    for ids in (asked, documents[-1]):
        assert model.log_probs(ids) == pytest.approx(naive(documents, weights, base, ids), abs=1e-9)


def test_contexts_are_those_of_the_documents():
    documents = [(0, 1, 2, 3), (0, 1, 2, 4)]
    model = NgramModel.count(documents, np.ones((2, 3)), np.log(np.full(5, 0.2)), LENGTHS, MU)
    assert {tuple(row) for row in model.contexts(1).tolist()} == {(0, 0), (1, 0), (2, 1)}
    assert model.rules == 9 and model.entries == 12
    rows = model.rows(contexts_of((0, 1, 2), 4))
    assert [model.contexts(k)[rows[k]].tolist() for k in range(3)][2][2] == [2, 1, 0, 0]


def test_longer_contexts_need_shorter_ones():
    with pytest.raises(DataError, match="shorter"):
        NgramModel.count([(0, 1)], np.array([[0.0, 1.0, 1.0]]), np.log(np.full(2, 0.5)), LENGTHS, MU)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.integers(0, SIZE - 1), min_size=2, max_size=9), min_size=1, max_size=5), st.integers(0, 99))
def test_own_tokens_need_no_sum_over_the_vocabulary(documents, seed):
    """The recursion at the own token alone equals the normalised logits, for counted and for other documents."""
    rng = np.random.default_rng(seed)
    base = np.log(rng.dirichlet(np.ones(SIZE)))
    model = NgramModel.count(documents, rng.random((len(documents), 3)) + 0.1, base, LENGTHS, MU)
    others = [tuple(rng.integers(0, SIZE, 6)) for _ in range(2)]
    for ids, own in zip([*documents, *others], model.own([*documents, *others]), strict=True):
        assert own == pytest.approx(model.log_probs(ids[:-1])[np.arange(len(ids) - 1), np.asarray(ids[1:])])
