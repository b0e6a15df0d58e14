"""What to say when equal contexts have different labels."""

from __future__ import annotations

import numpy as np

from byheart.data.dataset.contexts import Contexts
from byheart.data.dataset.distinct import Index
from byheart.data.dataset.encoder import Encoder
from byheart.data.dataset.labels import Classes
from byheart.data.task import Task
from byheart.data.wording import quote, quote_row
from byheart.errors import ConflictError
from byheart.ir.inputs import Inputs


def check_consistent(encoder: Encoder, inputs: Inputs, labels: Index, classes: Classes, contexts: Contexts) -> None:
    """Raises a ConflictError that names the first two rows at odds (KS25, Theorem 4.1, condition 1)."""
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
    remedy = "relabel them, or keep some of them: --conflicts first, majority or drop"
    if rows[0] == rows[1] and not (encoder.task is Task.SEQ_TO_SEQ and not encoder.positions):
        return remedy
    if encoder.task is Task.SET:
        return f"if order matters, use task next-token with positions on; else {remedy}"
    return f"if order matters, turn positions on (--positions); else {remedy}"
