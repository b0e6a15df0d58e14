"""Both checkers and the report's evaluator on every construction, task and kind of data."""

from __future__ import annotations

import json

import pytest

from byheart.data.task import Task
from tests.cases import cases
from tests.checker.asked import COLUMNS, built, first, page_answers, pairs, plain, second, write_rows

PAIRS = list(pairs())
CASES = {task: list(cases(task)) for task in Task}
SMALL = {task: [k for k, case in enumerate(CASES[task]) if len(case.sequences) <= 15] for task in Task}


def one_case(pair: tuple[str, str]) -> int:
    """One of the small cases for each pair, so that all of them come up somewhere."""
    numbers = SMALL[Task(pair[1])]
    return numbers[PAIRS.index(pair) % len(numbers)]


ONE = [pytest.param(*pair, one_case(pair), id=f"{'-'.join(pair)}-{one_case(pair)}") for pair in PAIRS]
EVERY = [
    pytest.param(*pair, case, marks=pytest.mark.slow, id=f"{'-'.join(pair)}-{case}-every")
    for pair in PAIRS
    for case in range(len(CASES[Task(pair[1])]))
    if case != one_case(pair)
]


@pytest.mark.parametrize(("name", "task", "number"), ONE + EVERY)
def test_all_three_agree(name, task, number, tmp_path):
    case, memory = built(name, number, task)
    if memory is None:
        pytest.skip("the construction's assumptions fail on this data")
    file, data = tmp_path / "m.byheart", write_rows(tmp_path / "rows.jsonl", case.sequences, case.labels)
    memory.save(file)
    one, two = first(file, data, *COLUMNS), second(file, data, *COLUMNS)
    assert one.proved and one.reply["verdict"] == "proved", one
    assert two.proved and two.reply["verdict"] == "answers proved", two
    assert two.reply["rows"] == two.reply["asked"] == two.reply["agree"] == len(case.sequences)
    assert two.reply["size"] == memory.size.as_dict()
    questions = [json.dumps(plain(row)) for row in case.sequences[:6]]
    expected = [[str(x) for x in (label if isinstance(label, list) else [label])] for label in case.labels]
    said = page_answers(memory, questions)
    if not said:
        assert "enclosure" in memory.certificate.arithmetic
    for answer, label in zip(said, expected, strict=False):
        assert answer == label


@pytest.mark.parametrize(("name", "task"), PAIRS[::3])
def test_one_other_label_is_found_by_both(name, task, tmp_path):
    case, memory = built(name, one_case((name, task)), task)
    if memory is None:
        pytest.skip("the construction's assumptions fail on this data")
    labels = json.loads(json.dumps(case.labels))
    place = len(labels) // 2
    if isinstance(labels[place], list):
        labels[place][-1] = "another"
    else:
        labels[place] = "another"
    file, data = tmp_path / "m.byheart", write_rows(tmp_path / "rows.jsonl", case.sequences, labels)
    memory.save(file)
    one, two = first(file, data, *COLUMNS), second(file, data, *COLUMNS)
    assert one.status == two.status == 1
    assert two.reply["verdict"] == "refuted" and two.reply["differ"] == 1
    assert two.reply["agree"] == len(labels) - 1 and f"line {place + 1}" in two.reply["reason"]
