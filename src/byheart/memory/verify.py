"""Proving a memory against data, queried as by a user: its own tokenizer, encoder, network and classes.

Every row of the data is a query, every answer is compared with the row's own label by type and value. What the file
records (its guarantee, its sizes, its fingerprint) is compared with what is found here and never replaces it:
the guarantee is derived again from the construction's theorem, the options and the data.

    >>> from byheart.memory.memorize import memorize
    >>> memory = memorize(["cat", "act", "dog"], [3, 1, 4], construction="ks25", progress=False)
    >>> verify_rows(memory, ["cat", "act", "dog"], [3, 1, 4]).verdict.value, verify_rows(memory, ["dog"], ["4"]).reason
    ('proved', "1 row of 1 differs, the first is row 0: it is labelled '4', which this memory never gives")
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from byheart.certify import AT_ONCE, FRACTION, UNANSWERABLE, Certificate, EvaluationPlan, Record, RowSubset, certify
from byheart.data.dataset.dataset import Dataset, load, unchecked
from byheart.data.dataset.distinct import Index
from byheart.data.dataset.settle import settle
from byheart.data.dataset.targets import Distribution, Target
from byheart.data.values import key, plain
from byheart.data.wording import quote
from byheart.errors import DataError, OptionError
from byheart.exact.budget import check_padding, limited
from byheart.ir.size import Claim, measure
from byheart.memory.memory import Memory
from byheart.progress import SILENT, Progress
from byheart.theory.guarantees import guarantee
from byheart.version import __version__


@dataclass(frozen=True)
class VerifyOptions:
    """The rows that the user skips; nothing in the file skips a row.

    max_rows: only the first rows, this many; conflicts: the policy by which contradictory rows are skipped.
    left_out: rows that were skipped while the data was read, with the reason. gap: the allowed gap of a memory of
    distributions, as a fraction of the entropy; the user sets it, like the rows.
    part: these are only some of the memorized rows, so that the guarantee about all of them cannot be compared.
    """

    max_rows: int | None = None
    conflicts: str | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    gap: float = FRACTION
    part: bool = False

    def __post_init__(self) -> None:
        if self.max_rows is not None and (type(self.max_rows) is not int or self.max_rows < 1):
            raise OptionError(f"max_rows={self.max_rows!r} is not a number of rows; write 1 or more, or omit it")
        number = isinstance(self.gap, int | float) and not isinstance(self.gap, bool)
        if not number or not 0 < self.gap < math.inf:
            raise OptionError(f"gap={self.gap!r} is not a fraction of the entropy; write a number above 0")


NONE = VerifyOptions()
NOT_ALL = "by the file's fingerprint these are not all the memorized rows, or others"
PART = "--part, in Python part=True"


@dataclass(frozen=True, eq=False)
class Checked:
    """A certificate, the guarantee it compared (None: none for these rows), and the rows as the memory takes them."""

    certificate: Certificate
    claim: Claim | None
    asked: Dataset

    def renew(self, memory: Memory) -> Memory:
        """The memory with what was found now in place of what its file records."""
        claim = self.claim or Claim(memory.claim.ref)
        return replace(memory, certificate=self.certificate, claim=claim, recorded_by="")


def verify_rows(
    memory: Memory,
    sequences: Sequence[Any],
    labels: Sequence[Any],
    progress: Progress = SILENT,
    *,
    options: VerifyOptions = NONE,
    place: Callable[[int], str] = "row {}".format,
    plan: EvaluationPlan = AT_ONCE,
) -> Certificate:
    """A new certificate for `memory` on these rows: how many there are, were evaluated, agree, differ and were skipped.

    proved only if every evaluated row gets its label and the guarantee is kept. A memory may be evaluated on a part
    of what it stores, if `options.part` is set; the certificate then states that the guarantee was not
    checked. `plan` states where rows are evaluated, and which file keeps the finished parts of an interrupted proof.
    """
    return check_rows(memory, sequences, labels, progress, options=options, place=place, plan=plan).certificate


def check_rows(
    memory: Memory,
    sequences: Sequence[Any],
    labels: Sequence[Any],
    progress: Progress = SILENT,
    *,
    options: VerifyOptions = NONE,
    place: Callable[[int], str] = "row {}".format,
    plan: EvaluationPlan = AT_ONCE,
) -> Checked:
    """`verify_rows` with what else was found on the way."""
    sequences, labels = list(memory.tokens.cut_texts(sequences)), list(labels)
    if len(sequences) != len(labels):
        raise DataError(f"there are {len(sequences):,} sequences but {len(labels):,} labels; give one label per row")
    numbers, left_out = _evaluated_rows(memory, sequences, labels, options)
    if len(numbers) < len(sequences):
        sequences, labels = [sequences[i] for i in numbers], [labels[i] for i in numbers]
    own = _as_memorized(memory, sequences, labels)
    with limited(memory.budget):
        queried, unanswerable = _questions(memory, sequences, labels, own.fingerprint)
    # A guarantee counts repeated rows, the fingerprint does not.
    complete = own.fingerprint == memory.certificate.fingerprint and memory.certificate.asked == own.N
    claim, unchecked = _guarantee(memory, own)
    if not complete and claim is not None and claim.broken_by(measure(memory.network)):
        # A network for all rows is larger than what is guaranteed for a part of them; a forged fingerprint looks alike.
        claim, unchecked = None, f"{NOT_ALL}; for a part of the memorized rows set {PART}"
    subset = RowSubset(
        numbers=np.array(numbers, dtype=np.int64),
        left_out=left_out,
        place=place,
        unanswerable=unanswerable,
        contexts=len(own.contexts),
        remarks=_remarks(memory, options, complete),
    )
    record = _record(memory, complete)
    with limited(memory.budget):
        certificate = certify(
            memory.network,
            queried,
            claim,
            progress,
            subset=subset,
            record=record,
            unchecked=unchecked,
            excused=options.part,
            fraction=options.gap,
            plan=plan,
        )
    return Checked(certificate, claim, queried)


def _guarantee(memory: Memory, own: Dataset) -> tuple[Claim | None, str]:
    """What the theorem guarantees for these rows, or why that is not known: a file can name any construction."""
    try:
        return guarantee(memory.construction, own, memory.options), ""
    except OptionError as error:
        return None, f"{error}; only the answers can be checked (set {PART} to do that)"


def _evaluated_rows(
    memory: Memory, sequences: list[Any], labels: list[Any], options: VerifyOptions
) -> tuple[Sequence[int], dict[str, int]]:
    """Which rows are evaluated, and how many are not, by the flag that skips them."""
    left_out = dict(options.left_out)
    numbers: Sequence[int] = range(len(sequences))
    if options.max_rows is not None and len(numbers) > options.max_rows:
        left_out[f"beyond --max-rows {options.max_rows}"] = len(numbers) - options.max_rows
        numbers = numbers[: options.max_rows]
    if options.conflicts not in (None, "error"):
        rows, given = [sequences[i] for i in numbers], [_fitting(sequences[i], labels[i]) for i in numbers]
        policy, task, positions = options.conflicts, memory.task, memory.encoder.positions
        named = memory.encoder.named
        settled = settle(rows, given, task=task, positions=positions, policy=policy, named=named)
        if settled.left_out:
            gone = set(settled.left_out)
            left_out[f"by --conflicts {policy}"] = len(gone)
            numbers = [number for place, number in enumerate(numbers) if place not in gone]
    return numbers, left_out


def _as_memorized(memory: Memory, sequences: list[Any], labels: list[Any]) -> Dataset:
    """The rows as `memorize` would load them: their fingerprint, and the facts that the guarantee is computed from."""
    given = [_fitting(row, label) for row, label in zip(sequences, labels, strict=True)]
    if memory.target is Target.DISTRIBUTION:
        return load(sequences, given, task=memory.task, positions=True, target=Target.DISTRIBUTION)
    encoder = memory.encoder
    return unchecked(sequences, given, task=memory.task, positions=encoder.positions, named=encoder.named)


def _fitting(row: Any, labels: Any) -> Any:
    """The labels of the tokens that are left of a row which the memory's tokenizer has truncated."""
    if isinstance(labels, list | tuple) and isinstance(row, list) and len(labels) > len(row):
        return labels[: len(row)]
    return labels


def _questions(
    memory: Memory, sequences: list[Any], labels: list[Any], fingerprint: str
) -> tuple[Dataset, dict[int, str]]:
    """Rows in the memory's own encoding, each place with its expected class; UNANSWERABLE where no answer
    of the memory can be right, with the reason."""
    classes = {key(label): number for number, label in enumerate(memory.classes)}
    unanswerable: dict[int, str] = {}
    check_padding(len(sequences), memory.encoder.length, sum(map(len, sequences)))
    try:
        inputs, known = memory.encoder.encode_known(sequences)
    except DataError as error:  # tokens of another kind altogether: nothing can be evaluated, so no row agrees
        inputs, known = memory.encoder.encode_known([[]] * len(sequences))
        unanswerable = dict.fromkeys(range(len(sequences)), f"the memory cannot take these rows: {error}")
    for row in np.flatnonzero(~known).tolist():
        if row not in unanswerable:
            unanswerable[row] = _refusal(memory, sequences[row])
    per_token = memory.task.labels_per_token
    expected = np.full((len(labels), memory.encoder.length if per_token else 1), -1, dtype=np.int64)
    for row, label in enumerate(labels):
        if row in unanswerable:
            continue
        given = list(label) if per_token else list(label.classes) if isinstance(label, Distribution) else [label]
        found = [classes.get(key(plain(one)), UNANSWERABLE) for one in given]
        if UNANSWERABLE in found:
            unanswerable[row] = (
                f"it is labelled {quote(given[found.index(UNANSWERABLE)])}, which this memory never gives"
            )
        elif isinstance(label, Distribution):
            _put(memory, expected, row, [classes[key(plain(label.likeliest))]])
        elif per_token and len(found) != len(sequences[row]):
            unanswerable[row] = (
                f"it has {len(found):,} labels, but the memory truncates rows to {len(sequences[row]):,} tokens"
            )
        else:
            _put(memory, expected, row, found)
    for row in unanswerable:
        expected[row] = -1
        expected[row, 0] = UNANSWERABLE
    placed: Index = expected if per_token else expected[:, 0]
    weights = tuple(label for label in labels if isinstance(label, Distribution)) or None
    dataset = Dataset(memory.encoder, inputs, placed, memory.classes, fingerprint, memory.target, weights)
    return dataset, unanswerable


def _put(memory: Memory, expected: Index, row: int, found: list[int]) -> None:
    """Class numbers in the places of their tokens, which are at the end of padded rows."""
    start = expected.shape[1] - len(found) if memory.task.pads else 0
    expected[row, start : start + len(found)] = found


def _refusal(memory: Memory, sequence: Any) -> str:
    """Why the memory's encoder cannot take a row."""
    try:
        memory.encoder.encode([sequence])
    except DataError as error:
        return f"the memory cannot evaluate it: {str(error).removeprefix('row 0, ').removeprefix('row 0 ')}"
    return "the memory cannot evaluate it"


def _record(memory: Memory, complete: bool) -> Record | None:
    """The file's statements; its guarantee is compared with the theorem's only for all memorized rows."""
    if not memory.recorded_by:
        return None
    foreign = "" if memory.recorded_by == __version__ else memory.recorded_by
    return Record(memory.claim, memory.certificate.size, complete, foreign)


def _remarks(memory: Memory, options: VerifyOptions, complete: bool) -> tuple[str, ...]:
    """Remarks for the reader of a verdict: are these the memorized rows, and which flags were used then?"""
    found = []
    if not complete:
        found.append(
            f"these are not exactly the {memory.certificate.asked:,} memorized rows (by the file's fingerprint and "
            "count): the verdict is about the rows that were given"
        )
    then = memory.selection
    if then.max_rows is not None and options.max_rows is None:
        rows = then.max_rows
        found.append(f"the memory was built from the first {rows:,} rows: --max-rows {rows} evaluates these")
    if then.conflicts != "error" and options.conflicts is None:
        found.append(f"rows were skipped when it was built: --conflicts {then.conflicts} skips them here too")
    made = memory.certificate.gap
    if made is not None and made.fraction > options.gap:
        found.append(f"it was built for a gap of {made.fraction:g} of the entropy: --gap {made.fraction:g} allows that")
    if memory.tokens.max_length is not None:
        length = memory.tokens.max_length
        found.append(
            f"the memory truncates every query to its first {length:,} tokens; --max-length {length} truncates DATA too"
        )
    if memory.recorded_by and memory.recorded_by != __version__:
        found.append(f"the file's own record is of {memory.recorded_by}")
    return tuple(found)
