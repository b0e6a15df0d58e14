"""The checker on Definition 4.1: it proves what holds, and names the tokens where a changed network does not."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest

import byheart
from byheart.certify.certificate import Verdict
from byheart.certify.contextual import ContextCertificate, certify_contexts
from byheart.data.dataset.dataset import Dataset, load
from byheart.errors import DataError
from byheart.exact.number import as_fraction, from_fraction
from byheart.ir.layers import Affine, Matrix, Pool
from byheart.ir.network import Decode, Network, Read, Readout

WORDS = ["listen", "silent", "stale", "tiles"]


def dataset(rows: list) -> Dataset:
    return load(rows, [[0] * len(row) for row in rows], task="seq-to-seq", positions=False)


def network() -> Network:
    return byheart.contextual_mapping(WORDS).network


Row = list[Fraction]


def last_rows(net: Network) -> tuple[Row, Row]:
    """Weights and bias of the last layer's outputs, the context id and the sequence id."""
    last = net.layers[-1]
    assert isinstance(last, Affine)
    bias = last.bias or (0, 0)
    one, two = ([*map(as_fraction, row), as_fraction(b)] for row, b in zip(last.weight.dense(), bias, strict=True))
    return one, two


def with_rows(net: Network, *rows: Row) -> Network:
    numbers = [[from_fraction(value) for value in row] for row in rows]
    last = Affine(Matrix.of_dense([row[:-1] for row in numbers]), tuple(row[-1] for row in numbers))
    return replace(net, layers=(*net.layers[:-1], last), readout=replace(net.readout, classes=len(rows)))


def constant(like: Row, value: int) -> Row:
    return [*(Fraction(0) for _ in like[:-1]), Fraction(value)]


def test_proved_with_what_it_has() -> None:
    found = certify_contexts(network(), dataset(WORDS))
    assert found.verdict is Verdict.PROVED and found.witness is None
    assert (found.rows, found.tokens, found.contexts, found.multisets) == (4, 22, 16, 3)
    assert found.r == max(abs(id) for row in found.context_ids for id in row)
    line = sorted({id for row in found.context_ids for id in row})
    assert len(line) == 16 and found.delta == min(b - a for a, b in pairwise(line))
    assert json.loads(json.dumps(found.as_dict()))["verdict"] == "proved"
    assert "proved" in found._repr_html_()


def test_claims_are_compared() -> None:
    """r and δ exactly as they are hold, and not a hair more."""
    net, data = network(), dataset(WORDS)
    found = certify_contexts(net, data)
    assert found.r is not None and found.delta is not None
    hair = Fraction(1, 10**30)
    assert certify_contexts(net, data, r=found.r, delta=found.delta).verdict is Verdict.PROVED
    large = certify_contexts(net, data, r=found.r - hair)
    assert large.verdict is Verdict.REFUTED and "larger than r" in large.reason
    assert large.witness is not None and abs(large.witness.id) == found.r and large.witness.other_row is None
    near = certify_contexts(net, data, delta=found.delta + hair)
    assert near.verdict is Verdict.REFUTED and "less than δ apart" in near.reason
    assert near.witness is not None and near.witness.other_id is not None
    assert near.witness.other_id - near.witness.id == found.delta
    assert json.loads(json.dumps(near.as_dict()))["witness"]["row"] == near.witness.row
    assert certify_contexts(net, data, delta=Fraction(0)).verdict is Verdict.REFUTED


def refuted(found: ContextCertificate, words: str) -> None:
    assert found.verdict is Verdict.REFUTED and words in found.reason, found.reason
    assert found.witness is not None and found.witness.other_id == found.witness.id


def test_a_changed_weight_that_merges_two_contexts_is_refuted() -> None:
    """Without its weight on the sequence id, the context id is the token's alone: the l of listen is that of stale."""
    net, data = network(), dataset(WORDS)
    context, sequence = last_rows(net)
    merged = 0
    for place in range(len(context) - 1):
        if context[place]:
            less = [Fraction(0) if k == place else weight for k, weight in enumerate(context)]
            found = certify_contexts(with_rows(net, less, sequence), data)
            refuted(found, "have different contexts but the same id")
            merged += 1
    assert merged == 2  # of the token and of the sequence id: neither alone is enough


def test_one_merged_pair_among_all_is_found() -> None:
    """The weight that makes exactly two contexts one, and leaves all others apart."""
    net, data = network(), dataset(WORDS)
    (context, sequence), found = last_rows(net), certify_contexts(net, data)
    sums, of = found.sequence_ids, found.context_ids
    # id + t·(sequence id): t moves the contexts of one multiset as a whole; the least t at which two contexts meet
    pairs = [
        (b - a) / (sums[i] - sums[j])
        for i in range(4) for j in range(4) if sums[i] != sums[j]
        for a in of[i] for b in of[j]
    ]  # fmt: skip
    step = min(t for t in pairs if t > 0)
    p, q = step.numerator, step.denominator  # weights are dyadic, so the ids are scaled by q

    def moved(p: int, q: int) -> Network:
        return with_rows(net, [q * one + p * other for one, other in zip(context, sequence, strict=True)], sequence)

    refuted(certify_contexts(moved(p, q), data), "have different contexts but the same id")
    assert certify_contexts(moved(p, 2 * q), data).verdict is Verdict.PROVED


def test_sequence_ids_are_read_at_every_token() -> None:
    """A sequence id that is right at the first token of each row and elsewhere not: only the first was read once."""
    net, data = network(), dataset(WORDS)
    context, sequence = last_rows(net)
    swapped = certify_contexts(with_rows(net, context, context), data)  # returns the context id instead
    assert swapped.verdict is Verdict.REFUTED and "have one multiset but different sequence ids" in swapped.reason
    flat = certify_contexts(with_rows(net, context, constant(sequence, 5)), data)
    refuted(flat, "have different multisets but the same sequence id")


def test_places_are_those_of_the_given_rows() -> None:
    """Short rows are padded on the left; a witness counts tokens as they were given."""
    rows = ["abcdef", "bc"]
    net, data = byheart.contextual_mapping(rows).network, dataset(rows)
    context, sequence = last_rows(net)
    flat = certify_contexts(with_rows(net, constant(context, 1), sequence), data)
    assert flat.witness is not None and (flat.witness.other_row, flat.witness.other_position) == (0, 1)
    assert [len(row) for row in certify_contexts(net, data).context_ids] == [6, 2]


def test_what_cannot_be_asked() -> None:
    other = load(WORDS, list(range(4)), task="next-token")
    with pytest.raises(DataError, match="next-token; every token needs a context"):
        certify_contexts(network(), other)
    wide = dataset([[(0.5, 1.0)], [(1.0, 2.0)]])
    found = certify_contexts(network(), wide)
    assert found.verdict is Verdict.REFUTED and "cannot answer" in found.reason and found.r is None
    ks24 = byheart.memorize(WORDS, [list(word) for word in WORDS], task="seq-to-seq", construction="ks24",
                            positions=False, progress=False)  # fmt: skip
    assert certify_contexts(ks24.network, dataset(WORDS)).verdict is Verdict.UNDECIDED


def test_ids_may_be_negative_and_sequence_ids_may_be_absent() -> None:
    net, data = network(), dataset(WORDS)
    context, sequence = last_rows(net)
    plain = certify_contexts(net, data)
    turned = certify_contexts(with_rows(net, [-x for x in context], sequence), data)
    assert turned.verdict is Verdict.PROVED and turned.r == plain.r
    alone = certify_contexts(with_rows(net, context), data)
    assert alone.verdict is Verdict.PROVED and alone.sequence_ids == () and alone.context_ids == plain.context_ids


def of_numbers(*numbers: int) -> tuple[Network, Dataset]:
    """Rows of one token each, whose context id and sequence id are the token's own number."""
    last = Affine(Matrix.of_dense([[1], [1]]))
    return Network((last,), Read.EACH, Readout(Decode.ARGMAX, 2)), dataset([[(float(x),)] for x in numbers])


@pytest.mark.parametrize("numbers", [(1, 9, 17, 18), (1, 2, 12, 30), (-18, -17, -9, -1), (-60, -9, 10, 11)])
def test_the_closest_pair_and_the_largest_id_are_named_wherever_they_stand(numbers: tuple[int, ...]) -> None:
    net, data = of_numbers(*numbers)
    found = certify_contexts(net, data)
    assert (found.r, found.delta) == (max(map(abs, numbers)), 1)
    near, large = certify_contexts(net, data, delta=Fraction(3, 2)), certify_contexts(net, data, r=found.r - 1)
    assert near.witness is not None and near.witness.other_id is not None and large.witness is not None
    assert (near.verdict, large.verdict) == (Verdict.REFUTED, Verdict.REFUTED)
    assert near.witness.other_id - near.witness.id == 1 and abs(large.witness.id) == found.r


def test_bounds_are_compared_exactly_at_their_ends() -> None:
    net, data = of_numbers(1, 2)
    for delta, verdict in ((Fraction(1, 2), Verdict.PROVED), (Fraction(-1, 2), Verdict.REFUTED), (1, Verdict.PROVED)):
        assert certify_contexts(net, data, delta=Fraction(delta)).verdict is verdict
    alone = certify_contexts(*of_numbers(7), delta=Fraction(10**9))  # no second context is too close
    assert alone.verdict is Verdict.PROVED and alone.delta == 10**9


def test_a_network_with_another_number_of_answers_is_refuted() -> None:
    net, data = of_numbers(1, 2)
    pooled = replace(net, layers=(*net.layers, Pool(2)), read=Read.POOLED)
    found = certify_contexts(pooled, dataset([[(1.0,), (2.0,)], [(3.0,), (4.0,)]]))
    assert found.verdict is Verdict.REFUTED and "it answers (2, 1), the tokens are (2, 2)" in found.reason
    silent = replace(net, layers=(Affine(Matrix.zero(0, 1)),), readout=Readout(Decode.ARGMAX, 0))
    assert "it has no output" in certify_contexts(silent, data).reason
