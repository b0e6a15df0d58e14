"""Validated, exact data: what constructions build from and certificates speak about.

>>> data = load(["ab", "ba", "b"], [0, 1, 1], task="next-token", positions=True)
>>> data.N, data.n, data.d, data.C, len(data.contexts)
(3, 2, 2, 2, 3)

The fingerprint of a data set is equal for the same task, rows and labels, whatever their order and repetition. It is a
SHA-256 over canonical bytes (sorted JSON and little-endian integers), so it is the same on every machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from byheart.data.dataset.contexts import Classes, Contexts, find_contexts, read_labels
from byheart.data.dataset.distinct import Index, sorted_distinct_rows
from byheart.data.dataset.encoder import Encoder
from byheart.data.dataset.sequences import Floats, TokenKind, Tokens, read_tokens
from byheart.data.dataset.targets import PAD, Distribution, Distributions, Target, arrange
from byheart.data.separation import Separation, separation
from byheart.data.task import Task, as_task
from byheart.data.values import distinct, key, to_json
from byheart.data.wording import quote, quote_row
from byheart.errors import ConflictError, DataError, OptionError
from byheart.exact.budget import check_free_memory
from byheart.ir.network import Inputs

VERSION = "byheart data 1"
_CHUNK = 1 << 14  # points written out at once
_MANY = 1 << 18  # rows from which the machine's memory is looked at


def fingerprint(encoder: Encoder, inputs: Inputs, labels: Index, classes: Classes) -> str:
    """Hexadecimal SHA-256 of the data. Points must be numbered in their canonical order, as `encode` does."""
    names = [_canonical(label) for label in classes]
    rank = np.empty(len(names) + 1, dtype=np.int64)
    rank[np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)] = np.arange(len(names))
    rank[-1] = -1  # no label
    index = np.sort(inputs.index, axis=1) if encoder.task is Task.SET else inputs.index
    table = np.concatenate([index, rank[labels].reshape(len(index), -1)], axis=1)
    head = {"version": VERSION, "encoder": encoder.as_dict(), "classes": sorted(names), "shape": table.shape[1]}
    digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    digest.update(f"points over {inputs.points.denominator:x}: ".encode())
    for start in range(0, inputs.points.count, _CHUNK):
        digest.update("".join(map("{:x} ".format, inputs.points.numerators[start : start + _CHUNK].flat)).encode())
    for part in sorted_distinct_rows(table):
        digest.update(np.ascontiguousarray(part, dtype="<i8").data)
    return digest.hexdigest()


def _canonical(label: object) -> str:
    try:
        return json.dumps(to_json(label))
    except DataError:
        return f"{type(label).__qualname__} {label!r}"


def check_consistent(encoder: Encoder, inputs: Inputs, labels: Index, classes: Classes, contexts: Contexts) -> None:
    """Raise a ConflictError that names the first two rows at odds (KS25, Theorem 4.1, condition 1)."""
    of_label, flat = contexts.of_label.reshape(-1), labels.reshape(-1)
    wrong = np.flatnonzero((of_label >= 0) & (flat != contexts.label[of_label]))
    if not wrong.size:
        return
    context, width = int(of_label[wrong[0]]), labels.shape[1] if labels.ndim == 2 else 1
    one, two = int(contexts.row[context]), int(wrong[0]) // width
    lengths = _lengths(encoder, inputs, (one, two))
    shift = [int(encoder.length - n) if encoder.task.pads else 0 for n in lengths]
    places = [int(contexts.position[context]) - shift[0], int(wrong[0]) % width - shift[1]]
    names = [
        f"row {row}" + (f", position {position}" if encoder.task.labels_per_token else "")
        for row, position in zip((one, two), places, strict=True)
    ]
    rows = encoder.decode(Inputs(inputs.points, inputs.index[[one, two]]))
    if encoder.task is Task.CAUSAL:
        rows = [row[: position + 1] for row, position in zip(rows, places, strict=True)]
    values = [quote(classes[label]) for label in (contexts.label[context], flat[wrong[0]])]
    more = len(np.unique(of_label[wrong])) - 1
    raise ConflictError(
        f"{names[0]} and {names[1]} {_sameness(encoder, rows)} but have labels {values[0]} and {values[1]}"
        + (f" (and {more} more {'context has' if more == 1 else 'contexts have'} several labels)" if more else "")
        + f"; {_remedy(encoder, rows)}",
        (one, two),
    )


def _lengths(encoder: Encoder, inputs: Inputs, rows: tuple[int, int]) -> list[int]:
    return [len(row) for row in encoder.decode(Inputs(inputs.points, inputs.index[list(rows)]))]


def _sameness(encoder: Encoder, rows: list[list[object]]) -> str:
    one, two = map(quote_row, rows)
    what = "prefix" if encoder.task is Task.CAUSAL else "tokens"
    if rows[0] == rows[1]:
        return f"hold the same {what} {one}"
    if encoder.task is Task.SET:
        return f"hold the same tokens, {one} and {two}, in another order"
    return f"hold the same {what} with the same token to label, {one} and {two}, in another order"


def _remedy(encoder: Encoder, rows: list[list[object]]) -> str:
    remedy = "relabel them, or choose which to keep with --conflicts first, majority or drop (in Python: conflicts=)"
    if rows[0] == rows[1] and not (encoder.task is Task.SEQ_TO_SEQ and not encoder.positions):
        return remedy
    if encoder.task is Task.SET:
        return f"if order matters, use task next-token with positions on; else {remedy}"
    return f"if order matters, turn positions on (--positions); else {remedy}"


@dataclass(frozen=True, eq=False)
class Dataset:
    """Validated rows. Where the target is a distribution, equal contexts may have different labels.

    Attributes:
        encoder: How tokens become inputs.
        inputs: The sequences.
        labels: (N,) class numbers, or (N, n) for one label per token, -1 where a token has none.
        classes: The class of every number.
        fingerprint: Of task, rows and labels.
        target: Whether contexts have classes or distributions.
        given: The distributions that the user gave as labels, one per sequence; `labels` then has their likeliest
            classes.
    """

    encoder: Encoder
    inputs: Inputs
    labels: Index
    classes: Classes
    fingerprint: str
    target: Target = Target.CLASS
    given: tuple[Distribution, ...] | None = None

    @property
    def N(self) -> int:
        """How many sequences there are."""
        return len(self.inputs.index)

    @property
    def n(self) -> int:
        """Length of the longest sequence."""
        return self.encoder.length

    @property
    def d(self) -> int:
        """Width of a token's input vector, with its position if positions are on."""
        return self.encoder.input_width

    @property
    def C(self) -> int:
        """How many classes there are."""
        return len(self.classes)

    @cached_property
    def contexts(self) -> Contexts:
        """The distinct contexts with their labels."""
        return find_contexts(self.encoder.task, self.encoder.positions, self.inputs.index, self.labels)

    @cached_property
    def vocabulary(self) -> tuple[Any, ...]:
        """Symbols and classes together, in their order: the tokens of a language model."""
        return distinct([*(self.encoder.symbols or ()), *self.classes])[0]

    @cached_property
    def distributions(self) -> Distributions:
        """The distribution over the vocabulary of every context (for tasks next-token and causal, with positions)."""
        return find_distributions(self)

    @cached_property
    def separation(self) -> Separation:
        """How large and how close together the points are, exactly."""
        return separation(self.inputs.points)

    def sequences(self) -> list[list[Any]]:
        """The rows as the user gave them; real numbers come back as exact ones."""
        return self.encoder.decode(self.inputs)

    def label_values(self) -> list[Any]:
        """The labels as the user gave them: one per sequence, or a list per sequence."""
        if self.labels.ndim == 1:
            return [self.classes[c] for c in self.labels.tolist()]
        return [[self.classes[c] for c in row if c >= 0] for row in self.labels.tolist()]

    def subset(self, rows: Sequence[int] | Index) -> Dataset:
        """Return the data set of some rows alone, with the symbols, length and classes that they need.

        Args:
            rows: Their numbers.

        Raises:
            DataError: There is no such row.

        >>> load(["ab", "ba", "b"], [0, 1, 1]).subset([2]).n
        1
        """
        chosen = np.asarray(rows, dtype=np.int64)
        if chosen.size and (int(chosen.min()) < 0 or int(chosen.max()) >= self.N):
            least, most = int(chosen.min()), int(chosen.max())
            raise DataError(f"rows {least} to {most} are requested, but the data set has {self.N}")
        sequences = self.encoder.decode(Inputs(self.inputs.points, self.inputs.index[chosen]))
        part = Dataset(self.encoder, self.inputs, self.labels[chosen], self.classes, "")
        labels = part.label_values() if self.given is None else [self.given[row] for row in chosen.tolist()]
        encoder = self.encoder
        return load(
            sequences,
            labels,
            task=encoder.task,
            positions=encoder.positions,
            target=self.target,
            named=encoder.named,
        )


def numbered(dataset: Dataset) -> Dataset:
    """The same rows with a number in place of every distinct vector; rows of symbols are left as they are.

    >>> numbered(load([[(0.5, 1.0), (2.0, 0.0)], [(2.0, 0.0)]], [0, 1])).sequences()
    [[0, 1], [1]]
    """
    if dataset.encoder.symbols is not None:
        return dataset
    found: dict[tuple[Any, ...], int] = {}
    rows = [[found.setdefault(tuple(token), len(found)) for token in row] for row in dataset.sequences()]
    return load(rows, dataset.label_values(), task=dataset.encoder.task, positions=dataset.encoder.positions)


def load(
    sequences: Iterable[Any],
    labels: Iterable[Any],
    *,
    task: Task | str = Task.NEXT_TOKEN,
    positions: bool = True,
    target: Target | str = Target.CLASS,
    named: bool = False,
) -> Dataset:
    """Read and check sequences with their labels.

    Args:
        sequences: Lists, tuples, strings or arrays of tokens: ints, strs, or real vectors (floats are taken exactly).
        labels: Hashable values, one per sequence, or one list per sequence where `task` labels every token.
        task: The task.
        positions: Whether positions count; a set has none.
        target: `class`, or `distribution`, which counts the labels of equal contexts. Labels that are `Distribution`s
            are targets as they are.
        named: Whether rows of numbers, some of them not whole, are symbols and not vectors.

    Returns:
        The data set.

    Raises:
        DataError: A row cannot be used; the message names it.
        ConflictError: Equal contexts have different labels and classes are the target.
    """
    if hasattr(labels, "__iter__") and not hasattr(labels, "__len__"):  # to be gone through more than once
        labels = list(labels)
    given = _given(labels)
    if given is not None or Target(target) is Target.DISTRIBUTION:
        return _with_distributions(sequences, labels, given, as_task(task), positions)
    dataset = unchecked(sequences, labels, task=task, positions=positions, named=named)
    check_consistent(dataset.encoder, dataset.inputs, dataset.labels, dataset.classes, dataset.contexts)
    return dataset


def _given(labels: Any) -> tuple[Distribution, ...] | None:
    """The labels, where they are distributions."""
    found = [label for label in labels if isinstance(label, Distribution)] if isinstance(labels, list | tuple) else []
    if found and len(found) < len(labels):
        raise DataError(f"{len(found)} of {len(labels)} labels are distributions; give one for every row, or for none")
    return tuple(found) or None


def _with_distributions(
    sequences: Iterable[Any], labels: Any, given: tuple[Distribution, ...] | None, task: Task, positions: bool
) -> Dataset:
    if task not in (Task.NEXT_TOKEN, Task.CAUSAL) or not positions or (given and task is Task.CAUSAL):
        raise OptionError("distributions are targets of the tasks next-token and causal, with positions on")
    likeliest = labels if given is None else [distribution.likeliest for distribution in given]
    dataset = unchecked(sequences, likeliest, task=task, positions=positions)
    if given is not None:  # classes that are nowhere the likeliest belong to the classes too
        classes, numbers = distinct([*likeliest, *(name for distribution in given for name in distribution.classes)])
        dataset = replace(dataset, classes=classes, labels=np.array(numbers[: len(given)], dtype=np.int64))
    dataset = replace(dataset, target=Target.DISTRIBUTION, given=given)
    head = json.dumps([dataset.encoder.as_dict(), [to_json(token) for token in dataset.vocabulary]], sort_keys=True)
    named = hashlib.sha256(f"{head} {dataset.distributions.fingerprint}".encode()).hexdigest()
    return replace(dataset, fingerprint=named)


def find_distributions(dataset: Dataset) -> Distributions:
    """Counts, or given weights, of the classes that follow each context."""
    if dataset.encoder.symbols is None or not dataset.encoder.positions:
        raise DataError("distributions are over symbols in an order; these tokens are vectors, or have no positions")
    contexts, of_label = dataset.contexts, dataset.contexts.of_label.reshape(-1)
    if dataset.given is None:
        labelled = np.flatnonzero(of_label >= 0)
        pairs, counts = np.unique(
            of_label[labelled] * dataset.C + dataset.labels.reshape(-1)[labelled], return_counts=True
        )
        context, label, weight = pairs // dataset.C, pairs % dataset.C, counts.astype(np.float64)
    else:
        context, label, weight = _given_pairs(dataset, dataset.given)
    place = {key(token): number for number, token in enumerate(dataset.vocabulary)}
    of_class = np.array([place[key(name)] for name in dataset.classes], dtype=np.int64)
    of_code = np.array([PAD, *(place[key(symbol)] for symbol in dataset.encoder.symbols), PAD], dtype=np.int64)
    codes = np.append(dataset.inputs.points.numerators[:, 0].astype(np.int64), len(of_code) - 1)  # -1: absent
    grid = of_code[codes[dataset.inputs.index[contexts.row]]]
    grid[np.arange(grid.shape[1]) > contexts.position[:, None]] = PAD
    to_the_left = np.argsort(grid == PAD, axis=1, kind="stable")  # short rows are padded in front
    return arrange(np.take_along_axis(grid, to_the_left, axis=1), context, of_class[label], weight, len(place))


def ordered_distributions(dataset: Dataset) -> Distributions:
    """`Dataset.distributions`; where the data has no positions, of its rows in their given order.

    >>> ordered_distributions(load(["ab", "ba"], [0, 1], positions=False)).count
    2
    """
    if dataset.encoder.positions or dataset.encoder.symbols is None:
        return dataset.distributions
    rows, labels, task = dataset.sequences(), dataset.label_values(), dataset.encoder.task
    return load(rows, labels, task=task, positions=True, target=Target.DISTRIBUTION).distributions


def _given_pairs(dataset: Dataset, given: tuple[Distribution, ...]) -> tuple[Index, Index, Floats]:
    number = {key(name): k for k, name in enumerate(dataset.classes)}
    contexts = dataset.contexts
    for row, context in enumerate(contexts.of_label.tolist()):
        first = int(contexts.row[context])
        if not given[row].same(given[first]):
            raise ConflictError(
                f"rows {first} and {row} hold the same tokens but have different distributions; give one of them",
                (first, row),
            )
    found = [
        (k, number[key(name)], weight)
        for k, row in enumerate(contexts.row.tolist())
        for name, weight in zip(given[row].classes, given[row].weights, strict=True)
    ]
    context, label, weights = zip(*found, strict=True)
    return np.array(context), np.array(label), np.array(weights, dtype=np.float64)


def unchecked(
    sequences: Iterable[Any],
    labels: Iterable[Any],
    *,
    task: Task | str = Task.NEXT_TOKEN,
    positions: bool = True,
    named: bool = False,
) -> Dataset:
    """`load` that lets equal contexts have different labels; nothing can be built from such a data set."""
    task = as_task(task)
    positions = bool(positions) and task is not Task.SET
    tokens = read_tokens(sequences, TokenKind.NAMES if named else TokenKind.ANY, unordered=task is Task.SET)
    if not len(tokens.lengths):
        raise DataError("there are no sequences; give at least one row")
    empty = np.flatnonzero(tokens.lengths == 0)
    if empty.size:
        raise DataError(f"row {int(empty[0])} is empty; remove it, every row needs a token")
    if len(tokens.lengths) > _MANY:
        check_free_memory(len(tokens.lengths), len(tokens.ids) // 2)  # what is read already takes the other half
    numbers, classes = read_labels(labels, tokens.lengths, task)
    encoder = Encoder.fit(tokens, task, positions)
    inputs = encoder.place(tokens)
    placed = encoder.place_labels(tokens.lengths, numbers) if task.labels_per_token else numbers
    dataset = Dataset(encoder, inputs, placed, classes, fingerprint(encoder, inputs, placed, classes))
    _refuse_twins(dataset, tokens)
    return dataset


def _refuse_twins(dataset: Dataset, tokens: Tokens) -> None:
    """Rows that differ only in how a number is written, and that have different labels.

    To a network 0.0 is -0.0 and 1 is 1.0, so it cannot store both rows. They are not a conflict between equal rows,
    which a policy may settle by leaving some out: to the user they are different rows.
    """
    if tokens.spellings is None:
        return
    contexts, labels = dataset.contexts, dataset.labels.reshape(-1)
    of_label = contexts.of_label.reshape(-1)
    width = dataset.labels.shape[1] if dataset.labels.ndim == 2 else 1
    ends = np.cumsum(tokens.lengths)
    for place in np.flatnonzero((of_label >= 0) & (labels != contexts.label[of_label])).tolist():
        context = int(of_label[place])
        one, two = int(contexts.row[context]), place // width
        spelled = [sorted(tokens.spellings[ends[row] - tokens.lengths[row] : ends[row]].tolist()) for row in (one, two)]
        if spelled[0] != spelled[1]:
            values = [quote(dataset.classes[number]) for number in (contexts.label[context], labels[place])]
            raise DataError(
                f"rows {one} and {two} differ only in how a number is written (0.0 and -0.0, or 1 and 1.0), but have "
                f"the labels {values[0]} and {values[1]}; write equal numbers alike, or give the tokens as texts"
            )
