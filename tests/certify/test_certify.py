"""The checker must refuse: a weight pushed, a label swapped, a claim falsified, a byte of the file changed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from click.testing import CliRunner

import byheart
from byheart.build import recipes
from byheart.certify import certify
from byheart.cli import commands
from byheart.data.dataset.dataset import load
from byheart.data.task import Task
from byheart.errors import FileFormatError
from byheart.memory.memory_file import any_network_from_json, any_network_to_json
from tests.cases import cases

NAMES = sorted(recipes())


@pytest.fixture(scope="module")
def memories():
    built = {}
    for name in NAMES:
        case = list(cases(Task(recipes()[name].tasks[0])))[3]
        built[name] = (
            case,
            byheart.memorize(
                case.sequences, case.labels, task=case.task, construction=name, positions=case.positions, progress=False
            ),
        )
    return built


@pytest.mark.parametrize("name", NAMES)
def test_one_wrong_label_is_refuted_with_its_row(memories, name):
    _, memory = memories[name]
    dataset = memory.dataset
    labels = dataset.labels.copy()
    place = (2,) if labels.ndim == 1 else tuple(int(v[0]) for v in (labels >= 0).nonzero())
    labels[place] = (labels[place] + 1) % dataset.C
    certificate = certify(memory.network, replace(dataset, labels=labels), memory.claim)
    assert certificate.verdict == "refuted"
    assert certificate.witness.row == place[0] and certificate.witness.expected == labels[place]


@pytest.mark.parametrize("name", NAMES)
def test_a_falsified_claim_is_refuted(memories, name):
    _, memory = memories[name]
    for field, bound in memory.claim.bounds.items():
        measured = memory.size.as_dict()[field]
        if measured == 0:
            continue
        false = replace(memory.claim, bounds={**memory.claim.bounds, field: measured - 1})
        certificate = certify(memory.network, memory.dataset, false)
        assert certificate.verdict == "refuted" and field in certificate.reason
        assert bound >= measured


@pytest.mark.parametrize("name", NAMES)
def test_changed_weights_are_refuted_or_change_nothing(memories, name):
    """Some weights act only off the data; most must matter, and none may leave an incorrect answer proved."""
    case, memory = memories[name]
    rng = random.Random(name)
    document = any_network_to_json(memory.network)
    cells = [row for matrix in _matrices(document) for row in matrix["rows"] if row]
    refuted = 0
    for _ in range(12):
        row = rng.choice(cells)
        cell = rng.choice(row)
        before, whole = cell[1], list(row)
        cell[1] = rng.choice([7, -3, "0x1p60", 0])
        row[:] = [kept for kept in row if kept[1] != 0]  # zeros are not stored
        network = any_network_from_json(document)
        certificate = certify(network, memory.dataset, memory.claim)
        answers = replace(memory, network=network).predict(case.sequences)
        assert (certificate.verdict == "proved") <= (answers == case.labels)
        refuted += certificate.verdict != "proved"
        row[:], cell[1] = whole, before
    assert refuted >= 4


def _matrices(part):
    """Every matrix in a network's JSON, wherever it is."""
    if isinstance(part, dict) and set(part) == {"columns", "rows"}:
        return [part]
    parts = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return [matrix for inner in parts for matrix in _matrices(inner)]


@pytest.mark.parametrize("name", NAMES)
def test_no_changed_byte_goes_unnoticed(memories, name, tmp_path):
    _, memory = memories[name]
    path = tmp_path / "m.byheart"
    memory.save(path)
    data = path.read_bytes()
    rng = random.Random(name)
    places = [0, 1, len(data) - 1, *(rng.randrange(len(data)) for _ in range(25))]
    for place in places:
        changed = bytearray(data)
        changed[place] = changed[place] ^ (1 << rng.randrange(7)) or 1
        path.write_bytes(bytes(changed))
        with pytest.raises(FileFormatError):
            byheart.load(path)
    for stop in (0, 1, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:stop])
        with pytest.raises(FileFormatError):
            byheart.load(path)


def test_the_command_line_reports_a_damaged_file_in_one_line(memories, tmp_path):
    _, memory = next(iter(memories.values()))
    path = tmp_path / "m.byheart"
    memory.save(path)
    path.write_bytes(path.read_bytes().replace(b'"seed":0', b'"seed":1'))
    result = CliRunner().invoke(commands, ["predict", str(path), "abc"])
    assert isinstance(result.exception, FileFormatError) and "checksum" in str(result.exception)


def test_labels_of_the_dataset_are_what_was_given(memories):
    for case, memory in memories.values():
        again = load(case.sequences, case.labels, task=case.task, positions=case.positions)
        assert again.fingerprint == memory.certificate.fingerprint


def test_the_scope_in_words_counts_what_is_undecided():
    certificate = byheart.memorize(["a", "b", "c"], [0, 1, 1], construction="ks25", progress=False).certificate
    part = replace(certificate, rows=4, agree=1, differ=1, left_out={"conflicts=drop": 1})
    assert part.undecided == 1
    assert part.count_words == "4 rows, 3 evaluated, 1 agree, 1 differ, 1 undecided, 1 skipped (1 conflicts=drop)"
