"""Rows proved by floats: only where these were proved to be exact, and then with the answers of exact integers."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from byheart.certify import certify, checker
from byheart.certify.any_order.lattice import facts_of
from byheart.certify.any_order.proof import prove_any_order
from byheart.data.dataset.dataset import load
from byheart.errors import NetworkError
from byheart.ir.evaluate import answers
from byheart.ir.floats import answers_in_floats, evaluates
from byheart.ir.layers import GlobalToken, Matrix, Residual
from byheart.ir.network import Inputs, Network
from byheart.memory import memorize_dataset
from tests.build.native.data import dataset
from tests.certify.any_order.edits import edited

KINDS = [("next-token", True), ("next-token", False), ("seq-to-seq", True), ("set", False), ("causal", True)]


def memory(task: str = "next-token", positions: bool = True, dtype: str = "float64", rows: int = 40):
    rng = random.Random(f"{task} {positions} {rows}")
    given = {tuple(rng.randrange(9) for _ in range(5)) for _ in range(rows)}
    given = list({tuple(sorted(row)): row for row in given}.values())
    per_token = task in ("seq-to-seq", "causal")
    labels: dict = {}
    answer = [[labels.setdefault((k, row[: k + 1]), rng.randrange(3)) for k in range(5)] for row in given]
    if task == "seq-to-seq":
        answer = [[rng.randrange(3) for _ in row] for row in given]
    data = load(given, answer if per_token else [row[-1] for row in answer], task=task, positions=positions)
    return memorize_dataset(data, construction="native", progress=False, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("task", "positions"), KINDS)
def test_floats_answer_as_exact_integers_do(task, positions, dtype):
    built = memory(task, positions, dtype)
    inputs = built.dataset.inputs
    assert built.certificate.verdict == "proved"
    assert np.array_equal(answers_in_floats(built.network, inputs, dtype), answers(built.network, inputs))


def test_blocks_that_read_one_number_are_evaluated_once_per_number(monkeypatch):
    """Also where the channels are not zero that they add to, which nothing does in a memory of ours."""
    from byheart.ir import floats

    built = memory(rows=60)
    inputs, layers = built.dataset.inputs, built.network.layers
    monkeypatch.setattr(floats, "WIDE", 2)
    monkeypatch.setattr(floats, "CHUNK", 16)
    looked_up: list[int] = []
    values = floats._Lookup._values
    monkeypatch.setattr(floats._Lookup, "_values", lambda self, *a: looked_up.append(a[0]) or values(self, *a))
    for place in (k for k, layer in enumerate(layers) if isinstance(layer, Residual)):
        width = layers[place].width_in
        something = Residual(Matrix.zero(0, width), (), Matrix.zero(width, 0), (0,) * (width - 1) + (2,))
        more = (*layers[:place], something, *layers[place:])
        for network in (built.network, replace(built.network, layers=more, stages=())):
            assert np.array_equal(answers_in_floats(network, inputs), answers(network, inputs))
    assert looked_up


def test_floats_answer_as_exact_integers_do_wherever_edits_are_still_proved():
    """Edits change the function; as long as the proof holds, floats must follow."""
    built = memory()
    facts, inputs, proved = facts_of(built.encoder, built.dataset.inputs), built.dataset.inputs, 0
    for seed in range(14):
        _, network = edited(built.network, random.Random(seed))
        if evaluates(network) and prove_any_order(network, facts).proved:
            proved += 1
            assert np.array_equal(answers_in_floats(network, inputs), answers(network, inputs))
    assert proved > 2


def test_a_wide_selector_is_looked_up_by_bucket():
    """Enough rows for buckets, whose numbers are whole: the table of a block gives what its units give."""
    built = memorize_dataset(dataset(3000, 2, 4, vocabulary=40), construction="native", progress=False)
    inputs = built.dataset.inputs
    assert np.array_equal(answers_in_floats(built.network, inputs), built.dataset.labels)
    few = Inputs(inputs.points, inputs.index[:3])  # too few rows for a table
    assert np.array_equal(answers_in_floats(built.network, few), built.dataset.labels[:3])


def test_the_certificate_says_that_floats_were_used(monkeypatch):
    built = memory()
    assert built.certificate.arithmetic.startswith("exact rational numbers")
    monkeypatch.setattr(checker, "MANY", 1)
    again = certify(built.network, built.dataset, built.claim)
    assert again.verdict == "proved" and again.agree == built.dataset.N
    assert again.arithmetic.startswith("float64, which was proved to evaluate this network exactly, in any order")
    assert again.proofs == built.certificate.proofs


def spoiled(network: Network) -> Network:
    """2^70 is added and subtracted again before the answer: nothing for integers, everything for floats."""
    width = network.layers[-1].width_in
    none = Matrix.zero(0, width), (), Matrix.zero(width, 0)
    detour = [Residual(*none, (amount,) * width) for amount in (1 << 70, -(1 << 70))]
    return replace(network, layers=(*network.layers[:-1], *detour, network.layers[-1]), stages=())


def test_floats_are_not_used_where_the_proof_fails(monkeypatch):
    built = memory()
    monkeypatch.setattr(checker, "MANY", 1)
    network = spoiled(built.network)
    inputs = built.dataset.inputs
    assert np.array_equal(answers(network, inputs), built.dataset.labels)
    assert not np.array_equal(answers_in_floats(network, inputs), built.dataset.labels)
    certificate = certify(network, built.dataset, built.claim)
    assert certificate.verdict == "undecided" and certificate.agree == built.dataset.N
    assert certificate.arithmetic.startswith("exact rational numbers")


def test_a_wrong_label_is_found_in_floats(monkeypatch):
    built = memory()
    monkeypatch.setattr(checker, "MANY", 1)
    labels = built.dataset.labels.copy()
    labels[7] = (labels[7] + 1) % 3
    certificate = certify(built.network, replace(built.dataset, labels=labels), built.claim)
    assert certificate.verdict == "refuted" and certificate.differ == 1 and certificate.witness.row == 7
    assert certificate.arithmetic.startswith("float64")


def test_rows_that_the_proof_does_not_speak_of_are_not_allowed():
    data = memory("causal").dataset
    facts, points, index = facts_of(data.encoder, data.inputs), data.inputs.points, data.inputs.index
    assert facts.allow(data.inputs)
    assert not facts.allow(Inputs(points, index[:, ::-1].copy()))  # not at their places
    assert not facts.allow(Inputs(points, np.concatenate([index, index], axis=1)))  # too long
    beyond = replace(points, numerators=points.numerators + 100)
    assert not facts.allow(Inputs(beyond, index))
    assert not facts.allow(Inputs(replace(points, denominator=7), index))  # off the lattice


def test_layers_without_a_rule_are_left_to_exact_integers():
    built = memory("causal")
    layers = list(built.network.layers)
    layers.insert(1, GlobalToken((0,) * layers[0].width_out))
    network = replace(built.network, layers=tuple(layers), stages=())
    assert not evaluates(network)
    with pytest.raises(NetworkError, match="no rule"):
        answers_in_floats(network, built.dataset.inputs)
