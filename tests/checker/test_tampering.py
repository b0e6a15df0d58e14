"""Tampered memories, checksums computed again: neither checker reports proved for anything false, and they agree."""

from __future__ import annotations

import json
import random

import pytest

import byheart
from byheart.data.task import Task
from byheart.data.values import same
from byheart.errors import ByheartError
from byheart.ir.size import measure
from tests.cases import Case
from tests.checker.asked import COLUMNS, built, first, second, write_rows
from tests.checker.tampering import EDITS, RECORDS, matrices, sealed, tampered

BASES = [
    ("ks25", "next-token", 4), ("native", "seq-to-seq", 0), ("compact", "causal", 5), ("ks25-sets", "set", 5),
    ("mahdavi24", "next-token", 4), ("baum88", "next-token", 4), ("ks25-sparse", "next-token", 6),
    ("native", "next-token", 10), ("compact", "set", 5), ("ks25-embedding", "next-token", 6),
    ("madden24", "next-token", 6), ("madden24-average", "causal", 1),
]  # fmt: skip
TEXTS = ["a cat sat on a mat", "a cat ran", "a dog sat on a cat", "no dog ran"]
DOCUMENTS = [{"activation": "tanh"}, {"mixer": "average", "activation": "gelu"}, {"objective": "size"}]


def padded_vectors() -> tuple[Case, byheart.Memory]:
    rows = [[(0.5, 1.0)], [(0.5, 1.0), (2.0, 0.25)], [(2.0, 0.25)], [(1.0, 1.0), (0.5, 1.0)]]
    case = Case("padded vectors", Task.NEXT_TOKEN, True, rows, ["a", "b", "c", "b"])
    return case, byheart.memorize(case.sequences, case.labels, construction="ks25", progress=False)


def documents(**options) -> tuple[Case, byheart.Memory]:
    rows = [text.split() for text in TEXTS]
    case = Case(f"documents {options}", Task.CAUSAL, True, [row[:-1] for row in rows], [row[1:] for row in rows])
    return case, byheart.memorize_documents(TEXTS, **options)


def flags(memory: byheart.Memory) -> tuple[str, ...]:
    return COLUMNS if memory.certificate.gap is None else ()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Every base memory as (case, memory, bytes of its file, its data)."""
    folder, found = tmp_path_factory.mktemp("bases"), []
    bases = [(built(name, number, task), (name, task)) for name, task, number in BASES]
    bases += [(padded_vectors(), "padded vectors"), *((documents(**options), options) for options in DOCUMENTS)]
    for number, ((case, memory), words) in enumerate(bases):
        assert memory is not None, words
        memory.save(folder / "m")
        data = write_rows(folder / f"{number}.jsonl", case.sequences, case.labels)
        if memory.certificate.gap is not None:
            data.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
        found.append((case, memory, (folder / "m").read_bytes(), data))
    return found


def right(file, case) -> bool:
    """Whether the file still gives every row its label, evaluated through Python."""
    try:
        return same(byheart.load(file).predict(case.sequences), case.labels)
    except ByheartError:
        return False


def judge(name: str, base, file, data: bytes) -> tuple[int, int]:
    case, memory, _, rows = base
    file.write_bytes(data)
    one, two = (ask(file, rows, *flags(memory)) for ask in (first, second))
    where = f"{name}: {one} {two}"
    honest = memory.certificate.gap is not None or right(file, case)
    if one.proved or two.proved:
        assert honest, where
        assert not memory.claim.broken_by(measure(byheart.load(file).network)), where
    if one.proved:
        assert one.reply["verdict"] == "proved", where
    if one.status != two.status:  # byheart alone derives guarantees and proves properties; every answer is right
        assert two.proved and one.status == 1 and one.reply["agree"] == one.reply["rows"], where
    if name in RECORDS:
        assert two.proved, where
    if one.reply and two.reply and "cannot answer these rows" not in one.reply["reason"]:  # byheart then counts none
        open_ = one.reply["undecided"] + two.reply["undecided"]  # where one leaves a row open, the other may decide it
        apart = sum(abs(one.reply[count] - two.reply[count]) for count in ("agree", "differ"))
        assert apart <= open_, where
    return one.status, two.status


@pytest.mark.parametrize("name", sorted(EDITS))
def test_an_edit(name, files, tmp_path):
    """Each edit once, on one of the bases."""
    rng = random.Random(name)
    order = rng.sample(files, len(files))
    made = ((base, tampered(base[2], name, rng)) for base in order)
    base, data = next((base, data) for base, data in made if data is not None)
    judge(name, base, tmp_path / "m.byheart", data)


@pytest.mark.parametrize("first_matrix", [-1, pytest.param(0, marks=pytest.mark.slow)])
def test_numbers_beyond_all_floats_are_no_crash(first_matrix, files, tmp_path):
    """A weight of 2^1023 in each matrix of a decoder: neither checker refuses such a file, and they agree."""
    base = [base for base in files if base[1].certificate.gap is not None][1]
    count = len(list(matrices(json.loads(base[2])["memory"])))
    for number in range(count)[first_matrix:]:
        body = json.loads(base[2])["memory"]
        next(row for row in list(matrices(body))[number]["rows"] if row)[0][1] = "0x1p1023"
        assert judge("weight", base, tmp_path / "m.byheart", sealed(body)) in [(0, 0), (1, 1)]


@pytest.mark.slow
def test_five_hundred_edits(files, tmp_path):
    rng = random.Random("five hundred")
    seen, statuses = 0, set()
    while seen < 500:
        name, base = rng.choice(sorted(EDITS)), rng.choice(files)
        data = tampered(base[2], name, rng)
        if data is not None:
            statuses.add(judge(name, base, tmp_path / "m.byheart", data))
            seen += 1
    assert {(0, 0), (1, 1), (2, 2)} <= statuses


def test_no_edit_is_proved_by_both(files, tmp_path):
    for case, memory, data, rows in files:
        assert judge("nothing", (case, memory, data, rows), tmp_path / "m.byheart", data) == (0, 0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"seed":0', b'"seed":0,"seed":0'),
        (b'"byheart":', b'"byheart":1,"byheart":'),
        (b'"columns":', b'"columns":1,"columns":'),
        (b'"seed":0', b'"seed":0.0'),
        (b'"seed":0', b'"seed": 0'),
        (b'"seed":0', b'"seed":-0'),
        (b'"seed":0', b'"seed":NaN'),
        (b'"task":"next-token"', b'"task":"next\\u002dtoken"'),
    ],
)
def test_another_text_of_the_same_file_is_refused_by_both(old, new, files, tmp_path):
    """Duplicate keys, floats, spaces and escapes: what a JSON parser would let through."""
    _, _, data, rows = files[0]
    assert old in data
    (tmp_path / "m.byheart").write_bytes(data.replace(old, new, 1))
    assert first(tmp_path / "m.byheart", rows, *COLUMNS).status == 2
    assert second(tmp_path / "m.byheart", rows, *COLUMNS).status == 2
