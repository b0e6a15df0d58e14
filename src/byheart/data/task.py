"""What is memorized: one label per sequence, per token, per set, or per prefix."""

from __future__ import annotations

from enum import StrEnum

from byheart.errors import OptionError


class Task(StrEnum):
    """The four tasks."""

    NEXT_TOKEN = "next-token"  # one label per sequence, read at the last token
    SEQ_TO_SEQ = "seq-to-seq"  # one label per token
    SET = "set"  # one label per multiset; order never matters, lengths may differ
    CAUSAL = "causal"  # one label per prefix

    @property
    def labels_per_token(self) -> bool:
        return self in (Task.SEQ_TO_SEQ, Task.CAUSAL)

    @property
    def pads(self) -> bool:
        """Whether short rows are padded on the left (otherwise their missing tokens are absent at the end)."""
        return self in (Task.NEXT_TOKEN, Task.SEQ_TO_SEQ)


def as_task(task: Task | str) -> Task:
    """Find the task of a name.

    Args:
        task: A name, or the task itself.

    Raises:
        OptionError: The name is unknown.

    >>> as_task("set") is Task.SET
    True
    """
    try:
        return Task(task)
    except ValueError:
        raise OptionError(f"unknown task {task!r}; tasks are {', '.join(Task)}") from None
