"""Data sets: contexts against a naive oracle, conflicts, labels, fingerprints, subsets."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.data import Task
from byheart.data.dataset import contexts as contexts_module
from byheart.data.dataset.dataset import Dataset, load
from byheart.errors import ConflictError, DataError, OptionError

TASKS = st.sampled_from(list(Task))
PINNED = "ef5d9aefe89e53afc802a4a7268b567b8b2e8aee080b847b0bad53f69919d9d4"


def naive_contexts(data: Dataset) -> list[tuple[Any, int]]:
    """(context, label) of every label, one row after the other, from the decoded definition alone."""
    found: list[tuple[Any, int]] = []
    for row, labels in zip(data.inputs.index.tolist(), data.labels.tolist(), strict=True):
        points = [i for i in row if i >= 0]
        whole = frozenset(Counter(points).items())
        match data.encoder.task:
            case Task.NEXT_TOKEN:
                found.append(((points[-1], whole), labels))
            case Task.SET:
                found.append((whole, labels))
            case Task.SEQ_TO_SEQ:
                found += [((i, whole), label) for i, label in zip(row, labels, strict=True) if label >= 0]
            case Task.CAUSAL:
                prefixes = [frozenset(Counter(points[: k + 1]).items()) for k in range(len(points))]
                found += [((points[k], prefixes[k]), labels[k]) for k in range(len(points))]
    return found


def consistent_labels(rows: list[Any], task: Task, positions: bool, seed: int) -> list[Any]:
    """Random labels that agree on equal contexts."""
    blank = [[0] * len(row) for row in rows] if task.labels_per_token else [0] * len(rows)
    contexts = load(rows, blank, task=task, positions=positions).contexts
    values = [random.Random(seed).randrange(3) for _ in range(len(contexts))]
    if not task.labels_per_token:
        return [values[c] for c in contexts.of_label]
    return [[values[c] for c in row if c >= 0] for row in contexts.of_label.tolist()]


@given(
    st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=12), TASKS, st.booleans(), st.integers(0, 9)
)
def test_contexts_agree_with_their_definition(rows: list[str], task: Task, positions: bool, seed: int) -> None:
    data = load(rows, consistent_labels(rows, task, positions, seed), task=task, positions=positions)
    oracle, contexts = naive_contexts(data), data.contexts
    numbers = [c for c in contexts.of_label.reshape(-1).tolist() if c >= 0]
    assert len(numbers) == len(oracle)
    first_seen = list(dict.fromkeys(context for context, _ in oracle))
    assert [first_seen[c] for c in numbers] == [context for context, _ in oracle]
    assert contexts.label.tolist() == [dict(oracle)[context] for context in first_seen]
    assert contexts.count.tolist() == [Counter(context for context, _ in oracle)[c] for c in first_seen]
    assert len(contexts) == len(first_seen)
    sets = [context if task is Task.SET else context[1] for context in first_seen]
    assert len(set(contexts.multiset.tolist())) == len(set(sets)) == contexts.multisets
    assert len(set(zip(contexts.multiset.tolist(), sets, strict=True))) == len(set(sets))
    if task is Task.SET:
        assert set(contexts.point.tolist()) == {-1}
    else:
        assert contexts.point.tolist() == data.inputs.index[contexts.row, contexts.position].tolist()


def test_a_collision_of_hashes_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ["abc", "bca", "abd", "ab", "dba", "ccc"] * 2
    expected = {}
    for task in Task:
        labels = consistent_labels(rows, task, False, 1)
        expected[task] = load(rows, labels, task=task, positions=False).contexts.of_label.tolist()
    monkeypatch.setattr("byheart.data.dataset.distinct.mix", lambda bits: bits * np.uint64(0))
    monkeypatch.setattr(contexts_module, "mix", lambda bits: bits * np.uint64(0))
    for task in Task:
        labels = consistent_labels(rows, task, False, 1)
        assert load(rows, labels, task=task, positions=False).contexts.of_label.tolist() == expected[task]


def test_long_prefixes_without_positions() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 3, size=(60, 300))
    labels = np.cumsum(rows, axis=1) % 2  # depends on the multiset alone
    data = load(rows, labels, task="causal", positions=False)
    assert len(data.contexts) == len({context for context, _ in naive_contexts(data)})


CONFLICTS: list[tuple[list[Any], list[Any], dict[str, Any], str, tuple[int, int]]] = [
    (
        ["ab", "x", "ab"],
        [0, 1, 2],
        {},
        r"row 0 and row 2 hold the same tokens 'ab' but have labels 0 and 2; relabel .*drop \(in Python: conflicts=\)$",
        (0, 2),
    ),
    (
        ["abc", "bac"],
        [0, 1],
        {"positions": False},
        "'abc' and 'bac', in another order but have labels 0 and 1; .*turn positions on",
        (0, 1),
    ),
    (["ab", "ba"], ["p", "q"], {"task": "set"}, "'ab' and 'ba', in another order .*'p' and 'q'.*next-token", (0, 1)),
    (["ab", "ba", "a", "a"], [0, 1, 0, 1], {"task": "set"}, r"\(and 1 more context has several labels\)", (0, 1)),
    (
        ["abc", "a", "abd"],
        ["xyz", "x", "xQw"],
        {"task": "causal"},
        "row 0, position 1 and row 2, position 1 hold the same prefix 'ab'",
        (0, 2),
    ),
    (
        ["aa"],
        ["xy"],
        {"task": "seq-to-seq", "positions": False},
        "row 0, position 0 and row 0, position 1 .*turn positions on",
        (0, 0),
    ),
    (["abc", "c", "c"], ["xyz", "p", "q"], {"task": "seq-to-seq"}, "row 1, position 0 and row 2, position 0", (1, 2)),
    ([[[0.5, 1.0]]] * 2, [0, 1], {}, "same tokens", (0, 1)),
    ([list(range(100))] * 2, [0, 1], {}, r"\[0, 1, 2, 3, 4, 5, 6, 7 …\]", (0, 1)),
]


@pytest.mark.parametrize(("rows", "labels", "options", "message", "named"), CONFLICTS, ids=range(len(CONFLICTS)))
def test_conflicts_name_rows_and_remedy(
    rows: list[Any], labels: list[Any], options: dict[str, Any], message: str, named: tuple[int, int]
) -> None:
    with pytest.raises(ConflictError, match=message) as caught:
        load(rows, labels, **options)
    assert caught.value.rows == named


def test_consistent_without_positions() -> None:
    data = load(["abc", "bac", "cba"], [0, 0, 1], positions=False)
    assert len(data.contexts) == 2 and data.d == 1


BAD: list[tuple[Any, Any, dict[str, Any], str]] = [
    ([], [], {}, "there are no sequences"),
    (["a", ""], [0, 1], {}, "row 1 is empty"),
    ([[]], [0], {}, "row 0 is empty"),
    (["a", "b"], [0], {}, "2 sequences but 1 labels"),
    (["a"], "x", {}, "labels is the single string"),
    (["a"], 5, {}, r"labels is 5 \(int\)"),
    (["a", "b"], [0, float("nan")], {}, "row 1: the label nan is not a number"),
    (["a", "b"], [0, (1, float("nan"))], {}, "not a number"),
    (["ab"], [[0, 1]], {}, r"row 0: the label is the list \[0, 1\].*seq-to-seq or causal"),
    (["ab"], np.array([[0, 1]]), {"task": "set"}, "row 0: the label is the list"),
    (["ab"], [{}], {}, r"row 0: the label {} \(dict\) cannot be hashed"),
    (["ab"], [(1, [2])], {}, r"row 0: the label .* \(tuple\) cannot be hashed"),
    (["ab"], [0], {"task": "causal"}, "row 0: the label is 0, but causal takes a list"),
    (["ab", "c"], [[0, 1], [0, 1]], {"task": "seq-to-seq"}, "row 1 has 1 tokens but 2 labels"),
    (["ab"], [[0, [1]]], {"task": "seq-to-seq"}, r"row 0, position 1: the label \[1\]"),
    (["a", "b"], [Decimal("1"), Decimal("1.0")], {}, "equal but written differently"),
]


@pytest.mark.parametrize(("rows", "labels", "options", "message"), BAD, ids=range(len(BAD)))
def test_bad_data_is_named(rows: Any, labels: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(rows, labels, **options)


def test_unknown_task() -> None:
    with pytest.raises(OptionError, match="next-token, seq-to-seq, set, causal"):
        load(["a"], [0], task="nap")


LABELS: list[tuple[Any, tuple[Any, ...]]] = [
    (["b", "a", "b"], ("a", "b")),
    ([3, -1, 3], (-1, 3)),
    (np.array([2.5, 0.5, 2.5]), (0.5, 2.5)),
    ([True, False, True], (False, True)),
    ([(1, "x"), (0, "y"), (1, "x")], ((0, "y"), (1, "x"))),
    ([np.int64(2), 2, np.str_("b")], (2, "b")),
    ([10**6000, 0, 1], (0, 1, 10**6000)),
]


@pytest.mark.parametrize(("labels", "classes"), LABELS, ids=range(len(LABELS)))
def test_labels_of_any_type(labels: Any, classes: tuple[Any, ...]) -> None:
    data = load(["a", "b", "c"], labels)
    assert data.classes == classes
    assert data.label_values() == [x.item() if isinstance(x, np.generic) else x for x in labels]


@pytest.mark.parametrize("labels", [["a", None, 3], [frozenset("ab"), frozenset("a"), frozenset("b")]])
def test_labels_without_an_order_keep_their_fingerprint(labels: list[Any]) -> None:
    rows = ["a", "b", "c"]
    data, turned = load(rows, labels), load(rows[::-1], labels[::-1])
    assert set(data.classes) == set(labels)
    assert data.fingerprint == turned.fingerprint


def test_sizes() -> None:
    one = load(["a"], [None])
    assert (one.N, one.n, one.d, one.C, len(one.contexts)) == (1, 1, 2, 1, 1)
    assert one.separation.delta_squared is None
    ragged = load([[[0.5, 1.0]], [[1.0, 1.0], [0.5, 1.0]]], [0, 1])
    assert (ragged.N, ragged.n, ragged.d, ragged.C) == (2, 2, 3, 2)
    assert load(["ab", "ab", "ba"], [1, 1, 0]).contexts.count.tolist() == [2, 1]
    assert not load(["ab"], [0], task="set", positions=True).encoder.positions


@given(st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=8), TASKS, st.booleans(), st.randoms())
def test_fingerprints_ignore_order_and_repetition(
    rows: list[str], task: Task, positions: bool, rng: random.Random
) -> None:
    pairs = list(zip(rows, consistent_labels(rows, task, positions, 3), strict=True))
    shuffled = [*pairs, rng.choice(pairs)]
    rng.shuffle(shuffled)

    def print_of(some: list[Any]) -> str:
        return load([r for r, _ in some], [y for _, y in some], task=task, positions=positions).fingerprint

    assert print_of(pairs) == print_of(shuffled)


def test_fingerprints_see_every_difference() -> None:
    rows: list[Any] = [["a", "b"], ["b"]]
    prints = {
        load(rows, [0, 1]).fingerprint,
        load(rows, [1, 0]).fingerprint,
        load(rows, ["0", "1"]).fingerprint,
        load(rows, [0, 0]).fingerprint,
        load(rows, [0, 1], positions=False).fingerprint,
        load(rows, [0, 1], task="set").fingerprint,
        load([["a", "b"], ["a"]], [0, 1]).fingerprint,
        load([["a", "c"], ["c"]], [0, 1]).fingerprint,
        load([[0, 1], [1]], [0, 1]).fingerprint,
        load([[0.0, 1.0], [1.0]], [0, 1]).fingerprint,
        load([[0.0, 1.5], [1.5]], [0, 1]).fingerprint,
        load([[[0.0, 1.0], [1.0, 1.0]], [[1.0, 1.0]]], [0, 1]).fingerprint,
        load(rows, [[0, 1], [0]], task="causal").fingerprint,
        load(rows, [[0, 1], [0]], task="seq-to-seq").fingerprint,
    }
    assert len(prints) == 14


def test_a_fingerprint_is_the_same_everywhere() -> None:
    assert load(["ab", "b"], ["x", "y"]).fingerprint == PINNED


def test_sets_have_one_fingerprint_in_any_order() -> None:
    assert load(["ab", "cb"], [0, 1], task="set").fingerprint == load(["bc", "ba"], [1, 0], task="set").fingerprint


@given(st.lists(st.text("abcd", min_size=1, max_size=4), min_size=2, max_size=9), TASKS, st.booleans(), st.randoms())
def test_a_subset_is_what_its_rows_load_to(rows: list[str], task: Task, positions: bool, rng: random.Random) -> None:
    labels = consistent_labels(rows, task, positions, 4)
    chosen = rng.sample(range(len(rows)), rng.randrange(1, len(rows)))
    part = load(rows, labels, task=task, positions=positions).subset(chosen)
    alone = load([rows[i] for i in chosen], [labels[i] for i in chosen], task=task, positions=positions)
    assert part.fingerprint == alone.fingerprint and part.encoder == alone.encoder and part.classes == alone.classes
    assert np.array_equal(part.inputs.index, alone.inputs.index) and np.array_equal(part.labels, alone.labels)


def test_a_subset_of_vectors_drops_the_padding() -> None:
    data = load([[[0.5]], [[1.0], [2.0]], [[3.0]]], [0, 1, 0])
    part = data.subset(np.array([0, 2]))
    assert part.n == 1 and part.encoder.pad_vector is None
    with pytest.raises(DataError, match="the data set has 3"):
        data.subset([3])


@pytest.mark.slow
@pytest.mark.parametrize("task", ["next-token", "causal"])
def test_a_million_rows(task: str) -> None:
    rows = np.random.default_rng(0).integers(0, 50, size=(1_000_000, 8))
    labels = rows.sum(axis=1) % 7 if task == "next-token" else np.cumsum(rows, axis=1) % 7
    data = load(rows, labels, task=task, positions=False)
    assert data.N == 1_000_000 and len(data.contexts) > 900_000
