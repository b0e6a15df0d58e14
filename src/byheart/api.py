"""The public entry points: one `memorize` and one `load` for every kind of memory.

Tables, sequences and documents become a `Memory`; texts for stock checkpoints (`construction="recital"`) become a
`RecitalMemory`. Both have `certificate`, `predict`, `generate`, `verify`, `export` and `save`. `load` also opens
the artifacts that still hold such a memory: a recital's checkpoint folder, and an ONNX model of `byheart deploy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from byheart.errors import FileFormatError, OptionError
from byheart.exact.budget import Budget
from byheart.memory import memory_file
from byheart.memory.memorize import memorize as memorize_rows
from byheart.memory.memory import Memory
from byheart.progress import Progress

RECITAL = "recital"
# A recital's file starts with its format, so its first bytes identify it.
_RECITAL_START = b'{"format":"byheart recital'


def memorize(
    sequences: Any,
    labels: Sequence[Any] | None = None,
    *,
    label: str | None = None,
    task: str | None = None,
    construction: str = "compact",
    positions: bool = True,
    conflicts: str = "error",
    missing: str = "error",
    seed: int = 0,
    progress: bool | Progress = True,
    **options: Any,
) -> Any:
    """Compute a network that maps every sequence to its label, and certify it.

    Memories of a table (a frame and `label`, the result of `byheart.read`, or rows of texts, decimals and other cells
    with `labels`) refuse rows outside it, by `abstain_bits=16` where the construction has this option; `abstain_bits=0`
    omits it. Rows of whole numbers or of vectors are the sequences of the theorems: other sequences get some label.

    Args:
        sequences: Rows of tokens, texts, a data frame, or the result of `byheart.read`. For `construction="recital"`,
            one text or a list of documents.
        labels: One label per sequence (per token for `seq-to-seq`). Documents have no labels.
        label: The label's column, if `sequences` is a data frame.
        task: `next-token` (default), `seq-to-seq`, `set` or `causal`.
        construction: A name from `byheart.constructions()`.
        positions: Whether a symbol is a token together with its position.
        conflicts: Policy for equal inputs with different labels: `error`, `first`, `majority` or `drop`.
        missing: Policy for None and NaN: `error`, `drop` or `label`.
        seed: Seed of every random choice.
        progress: Whether to draw progress, or an object that receives it.
        **options: Options of the construction, and `executor` and `resume` for every construction from rows; for
            `recital` also the fields of `Controls`, such as `held_out` and `corrupted`.

    Returns:
        A `Memory`, or a `RecitalMemory` for `construction="recital"`.

    Raises:
        DataError: If rows contradict each other or cannot be read.
        OptionError: If an option has no meaning for the construction.

    >>> memorize(["cat", "dog"], ["meow", "woof"], construction="ks25", progress=False).predict(["dog"])
    ['woof']
    >>> memorize("to be or not to be", construction="recital", tokens="words").generate("to be or")
    ' not to be'
    """
    if construction != RECITAL:
        memory: Memory = memorize_rows(
            sequences,
            labels,
            label=label,
            task=task,
            construction=construction,
            positions=positions,
            conflicts=conflicts,
            missing=missing,
            seed=seed,
            progress=progress,
            **options,
        )
        return memory
    # Checkpoints are another part of byheart: a table needs none of it.
    from byheart.checkpoints.recital import memorize_recital
    from byheart.checkpoints.windows.controls import Controls

    given = {part.name: options.pop(part.name) for part in fields(Controls) if part.name in options}
    if given:
        options["controls"] = Controls(**{"seed": seed, **given})
    if labels is not None or label is not None:
        raise OptionError("a recital continues texts and takes no labels; pass one text or a list of documents")
    if task not in (None, "causal"):
        raise OptionError(f"a recital continues texts, so its task is causal, not {task!r}")
    return memorize_recital(sequences, **options)


def load(path: str | Path, *, budget: Budget | None = memory_file.DEFAULT) -> Any:
    """Open any file that byheart saved.

    Args:
        path: A file written by `save` or by `byheart memorize`; the checkpoint folder of a recital; an ONNX model that
            `byheart deploy` wrote.
        budget: Limit on the work that evaluating the file may cost; None sets no limit.

    Returns:
        A `Memory`, a `RecitalMemory`, or for an ONNX model a `DeployedModel` with `predict` and `verify`. A folder
        is read from its recital.json alone: `byheart verify DIR` proves its tensors.

    Raises:
        FileFormatError: If the file or folder is damaged or foreign.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "text.byheart"
    >>> memorize("a rose is a rose", construction="recital", tokens="words").save(file)
    >>> load(file).generate("a rose is")
    ' a rose'
    """
    path = Path(path)
    if path.is_dir():
        return _load_folder(path)
    try:
        with path.open("rb") as file:
            start = file.read(len(_RECITAL_START))
    except OSError as error:
        raise FileFormatError(f"{path} cannot be read: {error.strerror}") from None
    if start == _RECITAL_START:
        from byheart.checkpoints.recital import RecitalMemory

        return RecitalMemory.load(path)
    if path.suffix.lower() == ".onnx":
        from byheart.memory.deployed import DeployedModel

        return DeployedModel.load(path)
    return memory_file.load(path, budget=budget)


def _load_folder(path: Path) -> Any:
    if not (path / "recital.json").is_file():
        raise FileFormatError(
            f"{path} has no recital.json; load it with its engine, or prove it with `byheart verify {path}`"
        )
    from byheart.checkpoints.recital import RecitalMemory

    return RecitalMemory.from_folder(path)
