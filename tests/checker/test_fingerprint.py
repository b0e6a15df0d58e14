"""The fingerprint of data, computed from docs/file-format.md, by hand."""

from __future__ import annotations

import hashlib
import json
import struct
from fractions import Fraction
from typing import Any

import pytest

from byheart.data.dataset.dataset import load
from byheart.data.task import Task
from tests.cases import cases


def by_the_page(encoder: dict[str, Any], sequences: list[Any], labels: list[Any]) -> str:
    """For symbols that are plain integers or texts, and vectors of doubles."""
    n, pads = encoder["length"], encoder["task"] in ("next-token", "seq-to-seq")
    symbols = encoder["symbols"]

    def point(token: Any) -> tuple[Fraction, ...]:
        if symbols is not None:
            return (Fraction(1 + next(k for k, s in enumerate(symbols) if s == token and type(s) is type(token))),)
        return tuple(map(Fraction, token))

    if symbols is None:
        pad = tuple(Fraction(m) * Fraction(2) ** e for m, e in encoder["pad_vector"] or [])
    else:
        pad = (Fraction(0),)
    rows = []
    for row in sequences:
        points = [pad] * (n - len(row) if pads else 0) + [point(token) for token in row]
        places = [(k,) if encoder["positions"] else () for k in range(len(points))]
        rows.append([(p != pad, p, place) for p, place in zip(points, places, strict=True)])  # the padding first
    points = sorted({p for row in rows for p in row})
    number = {p: k for k, p in enumerate(points)}
    names = {json.dumps(c) for row in labels for c in (row if isinstance(row, list) else [row])}
    rank = {name: k for k, name in enumerate(sorted(names))}
    table = []
    for row, given in zip(rows, labels, strict=True):
        numbers = [number[p] for p in row] + [-1] * (n - len(row))
        numbers = sorted(numbers) if encoder["task"] == "set" else numbers
        if isinstance(given, list):
            ranks = [rank[json.dumps(c)] for c in given]
            empty = [-1] * (n - len(ranks))
            ranks = empty + ranks if pads else ranks + empty
        else:
            ranks = [rank[json.dumps(given)]]
        table.append(tuple(numbers + ranks))
    head = {"classes": sorted(names), "encoder": encoder, "shape": len(table[0]), "version": "byheart data 1"}
    flat = [x for _, p, place in points for x in (*p, *place)]
    den = max(Fraction(x).denominator for x in flat)
    text = f"points over {den:x}: " + "".join(f"{int(x * den):x} " for x in flat)
    packed = b"".join(struct.pack(f"<{len(row)}q", *row) for row in sorted(set(table)))
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode() + text.encode() + packed).hexdigest()


@pytest.mark.parametrize("task", list(Task))
def test_the_page_says_how_it_is_computed(task):
    for case in cases(task):
        data = load(case.sequences, case.labels, task=case.task, positions=case.positions)
        assert by_the_page(data.encoder.as_dict(), case.sequences, case.labels) == data.fingerprint, str(case)


def test_padded_vectors():
    rows = [[(0.5, -1.25)], [(0.5, -1.25), (3.0, 0.0)], [(3.0, 0.0)]]
    for positions in (False, True):
        data = load(rows, ["a", "b", "c"], positions=positions)
        assert data.encoder.pad_vector is not None
        assert by_the_page(data.encoder.as_dict(), rows, ["a", "b", "c"]) == data.fingerprint
