"""Proving a saved memory against data: same rows, same labels, and every answer right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from byheart.certify import Certificate, Verdict, Witness, certify
from byheart.compile.memory import Memory
from byheart.data.dataset.dataset import Dataset
from byheart.data.dataset.settle import settle
from byheart.errors import DataError
from byheart.progress import SILENT, Progress


def verify_rows(
    memory: Memory, sequences: Sequence[Any], labels: Sequence[Any], progress: Progress = SILENT
) -> Certificate:
    """A new certificate for `memory` on these rows; refuted when the rows are not those that it was made of."""
    policy = memory.selection.conflicts
    settled = settle(sequences, labels, task=memory.task, positions=memory.encoder.positions, policy=policy)
    dataset = settled.dataset
    if settled.left_out:
        gone = set(settled.left_out)
        sequences = [row for number, row in enumerate(sequences) if number not in gone]
    if dataset.fingerprint == memory.certificate.fingerprint:
        return certify(memory.network, dataset, memory.claim, progress)
    return _differs(memory, dataset, sequences, progress)


def _differs(memory: Memory, dataset: Dataset, sequences: Sequence[Any], progress: Progress) -> Certificate:
    """Why the data is not the memorized data, naming a row where one can be named."""
    stale = replace(
        memory.certificate, verdict=Verdict.REFUTED, rows=dataset.N, fingerprint=dataset.fingerprint, proofs={}
    )
    try:
        found = memory.predict(sequences, progress)
    except DataError as error:
        return replace(stale, reason=f"this is not the memorized data: {error}")
    for row, (answer, expected) in enumerate(zip(found, dataset.label_values(), strict=True)):
        if answer != expected:
            witness = _witness(memory, row, expected, answer)
            reason = f"this is not the memorized data: row {row} is labelled {expected!r}, the memory says {answer!r}"
            return replace(stale, reason=reason, witness=witness)
    return replace(
        stale,
        reason=f"this is not the memorized data: its {dataset.N} rows get the right labels, but the fingerprint "
        f"differs from that of the {memory.certificate.rows} memorized rows (rows are missing or were added)",
    )


def _witness(memory: Memory, row: int, expected: Any, answer: Any) -> Witness:
    index = {label: k for k, label in enumerate(memory.classes)}
    position = None
    if memory.task.labels_per_token:
        position = next(k for k, (e, a) in enumerate(zip(expected, answer, strict=True)) if e != a)
        expected, answer = expected[position], answer[position]
    return Witness(row, position, index.get(expected, -1), index.get(answer, -1))
