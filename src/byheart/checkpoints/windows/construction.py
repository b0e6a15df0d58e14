"""From a script to its recital, with a report of what was decided and what was not.

>>> built = build_recital(Script(((1, 5, 6, 5, 7, 2),)), vocabulary=8, unknown=0)
>>> built.recital.recite([1], limit=9, stop=2), built.schedule
([5, 6, 5, 7, 2], ((0, 1, 2, 3),))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from byheart.build._base import Option, register
from byheart.checkpoints.windows.far import USUAL, FarPlaces
from byheart.checkpoints.windows.goals import (
    Ambiguous,
    Goals,
    full_windows,
    goals_of,
    shortest_rules,
    sparse_rules,
    with_far_places,
)
from byheart.checkpoints.windows.schedule import (
    LONGEST_OFFSET,
    Schedule,
    choose_places,
    choose_schedule,
    collision,
    merged_goals,
    states_after,
)
from byheart.checkpoints.windows.tables import Recital, WindowTable
from byheart.data.task import Task
from byheart.data.tokens.script import Script
from byheart.errors import OptionError
from byheart.paper import Ref
from byheart.progress import timed

FORMS = ("auto", "sparse", "windows", "rules", "full")


@dataclass(frozen=True, eq=False)
class BuiltRecital:
    """A recital and how it was built.

    Attributes:
        recital: The function in symbols.
        script: The documents.
        form: The form of its tables.
        ambiguous: Prefixes that have several continuations.
        overruled: Places that are not answered by their own continuation.
        merged: Places whose window equals one with another continuation.
    """

    recital: Recital
    script: Script
    form: str
    ambiguous: int  # prefixes that have several continuations
    overruled: int  # places that are not answered by their own continuation
    merged: int  # places whose window equals one with another continuation

    @property
    def schedule(self) -> Schedule:
        return tuple(table.offsets for table in self.recital.tables)

    def summary(self) -> dict[str, Any]:
        """Return the numbers that reports print."""
        return {
            "form": self.form,
            "documents": len(self.script.documents),
            "places": self.script.places,
            "span": self.recital.span,
            "offsets": [list(offsets) for offsets in self.schedule],
            "windows": [len(table.windows) for table in self.recital.tables],
            "ambiguous": self.ambiguous,
            "overruled": self.overruled,
            "merged": self.merged,
            "distributions": len(self.recital.mixed),
        }


@register(
    "recital",
    summary="a text as a small stock checkpoint (Llama, Qwen, GPT-2, …) whose correct token wins by a proved margin",
    description="Tables of windows become the units of a stock decoder: every memorized window is continued greedily, "
    "in any engine that runs the architecture. Use it to test an engine, or to locate the unit that stores a text.",
    ref=Ref("byheart", "recital"),
    tasks=(Task.CAUSAL,),
    options=(
        Option(
            "form",
            str,
            "auto",
            "sparse (auto): a few places that decide; windows: chained tables; rules: shortest suffixes; full: whole "
            "windows",
            FORMS,
        ),
        Option(
            "ambiguous",
            str,
            Ambiguous.DISTRIBUTION.value,
            "what a prefix with several continuations answers",
            tuple(choice.value for choice in Ambiguous),
        ),
        Option("unknown", str, "failure", "what windows answer that are in no document", ("failure", "eos")),
        Option("merge", bool, False, "places that no window distinguishes share their distribution"),
    ),
    texts=True,
)
@timed("building recital")
def build_recital(
    script: Script,
    vocabulary: int,
    unknown: int,
    *,
    form: str = "auto",
    ambiguous: str | Ambiguous = Ambiguous.DISTRIBUTION,
    merge: bool = False,
    longest_offset: int = LONGEST_OFFSET,
    schedule: Schedule | None = None,
    far: Sequence[int] = (),
    places: FarPlaces = USUAL,
) -> BuiltRecital:
    """Build the recital of a script; windows that are not in it answer `unknown`.

    Args:
        script: The documents as token ids.
        vocabulary: The number of tokens.
        unknown: The token that windows outside the script answer.
        form: `sparse` (one row per window of the newest places and, where these do not decide, of a few far ones; also
            called `auto`), `windows` (chained tables that fix every token of the span), `rules` (one row per shortest
            suffix that decides the continuation) or `full` (one row per window of the least length that decides
            everywhere).
        ambiguous: What a prefix with several continuations answers.
        merge: Give places that differ only beyond the reach the distribution of their common window.
        longest_offset: The largest offset of chained tables.
        schedule: The offsets of every table, instead of choosing them.
        far: Distances that parts of the documents shall depend on, whether they need them or not (`with_far_places`).
        places: What the table of the form `sparse` may look at; with `first`, another table comes before it.

    Returns:
        The recital and its counts.

    Raises:
        OptionError: If `form` or `ambiguous` is unknown.
        DataError: If places differ only beyond the reach; the message names them.
    """
    if form not in FORMS:
        raise OptionError(f"form {form!r} is not one of {', '.join(FORMS)}")
    if ambiguous not in list(Ambiguous):
        raise OptionError(f"ambiguous {ambiguous!r} is not one of {', '.join(Ambiguous)}")
    if form == "auto":
        form = "windows" if schedule else "sparse"
    goals, merged = goals_of(script, Ambiguous(ambiguous)), 0
    if merge:
        goals, merged = merged_goals(script, goals, longest_offset, form == "sparse")
    if form == "windows":
        tables = _chained(script, goals, schedule or choose_schedule(script, goals, vocabulary, longest_offset))
    elif form == "sparse":
        tables = _sparse(script, goals, places)
    else:
        tables = (shortest_rules(script, goals) if form == "rules" else full_windows(script, goals),)
    recital = Recital(vocabulary, tables, goals.answers, unknown)
    if far:
        read = np.concatenate([recital.states(document[:-1])[-1] for document in script.documents])
        tables = (*tables[:-1], with_far_places(script, tables[-1], read, far))
        recital = Recital(vocabulary, tables, goals.answers, unknown)
    return BuiltRecital(recital, script, form, goals.ambiguous, goals.overruled, merged)


def _sparse(script: Script, goals: Goals, places: FarPlaces) -> tuple[WindowTable, ...]:
    """One table of few places, which reads tokens, or the states of a table of near windows."""
    if not places.first:
        chosen = choose_places(script, goals, places)
        return (sparse_rules(script, goals, chosen.offsets, places.least, chosen.rests),)
    found = states_after(script, script.tokens, places.first)
    windows = np.stack([script.tokens[script.back(found.first, offset)] for offset in places.first], axis=1)
    parts = np.split(found.of_place, script.starts[1:-1])
    # The states in place of the tokens; the last of every document is never looked at.
    states = Script(tuple((*part.tolist(), 0) for part in parts))
    chosen = choose_places(states, goals, places)
    last = sparse_rules(states, goals, chosen.offsets, min(places.least, len(chosen.offsets)), chosen.rests)
    return (WindowTable(places.first, windows, np.arange(1, found.count + 1)), last)


def _chained(script: Script, goals: Goals, schedule: Schedule) -> tuple[WindowTable, ...]:
    tables, symbols = [], script.tokens
    for depth, offsets in enumerate(schedule):
        found = states_after(script, symbols, offsets)
        windows = np.stack([symbols[script.back(found.first, offset)] for offset in offsets], axis=1)
        last = depth == len(schedule) - 1
        tables.append(
            WindowTable(offsets, windows, goals.of_place[found.first] if last else np.arange(1, found.count + 1))
        )
        symbols = found.of_place
    pair = collision(symbols, goals)
    if pair is not None:
        where = f"{script.place(pair[0])} and {script.place(pair[1])}"
        raise OptionError(
            f"the offsets {schedule} cannot separate {where}, which have different continuations; use more offsets"
        )
    return tuple(tables)
