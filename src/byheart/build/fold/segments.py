"""Segments of the ids, solved in parallel through any executor, joined, and kept in a journal for a resumed build.

The division depends on the data and the plan only, and each segment has a separate seed: the lines are the same with
any executor and any number of workers, interrupted or not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from byheart.build.fold.search import GroupError, Line, Segment, Solved, solve_segment
from byheart.errors import DataError
from byheart.progress import Stage

# Attempts to join two segments. Tuned by hand.
JOINT_SEEDS = 4
LEAST_GROUPS = 12  # of a segment
# Of the journal.
FORMAT = 1


@dataclass(frozen=True)
class Journal:
    """A file with a line for every solved part, written as it is solved; `key` identifies the build."""

    path: Path
    key: str

    @staticmethod
    def of(path: str | Path, whole: Segment, cuts: Sequence[int]) -> Journal:
        if Path(path).exists() and not is_journal(path):
            raise DataError(f"{path} does not hold parts of a build; give --resume another name")
        digest = hashlib.sha256()
        facts = (FORMAT, whole.method, whole.frame, whole.beam, whole.size, whole.seed, tuple(cuts))
        digest.update(repr(facts).encode())
        for x in whole.ids:
            digest.update(f"{x},".encode())
        digest.update(whole.labels.tobytes())
        return Journal(Path(path), digest.hexdigest())

    def parts(self) -> dict[str, Solved]:
        """Read the stored parts of this build; skip a line whose write was interrupted."""
        found: dict[str, Solved] = {}
        if not self.path.exists():
            return found
        for text in filter(None, self.path.read_text().splitlines()):
            try:
                entry = json.loads(text)
                if entry["key"] == self.key:
                    lines = tuple(Line(*(int(v, 16) for v in row)) for row in entry["lines"])
                    found[entry["part"]] = Solved(lines, entry["failed"], entry["refused"])
            except (ValueError, KeyError, TypeError):
                continue
        return found

    def write(self, part: str, solved: Solved) -> None:
        lines = [[hex(v) for v in (n.slope, n.constant, n.first, n.last, n.count)] for n in solved.lines]
        entry = {"key": self.key, "part": part, "lines": lines, "failed": solved.failed, "refused": solved.refused}
        try:
            with self.path.open("a") as file:
                file.write("\n" + json.dumps(entry) + "\n")  # an interrupted write stays on a separate line
        except OSError as error:
            raise DataError(
                f"cannot keep the journal {self.path}: {error.strerror}; give resume= another file"
            ) from None


def is_journal(path: str | Path) -> bool:
    """Whether a file is a journal, or empty: its first line that is not blank names a build."""
    try:
        with Path(path).open() as file:
            first = next(filter(str.strip, file), "")
    except (OSError, UnicodeDecodeError):
        return False
    return not first or first.startswith('{"key": "')


def cut(ids: Sequence[int], count: int, group: int) -> list[int]:
    """Where segments start: after the widest gap near each k/count of the ids."""
    total = len(ids)
    cuts = [0]
    for k in range(1, count):
        a = max(total * k // count, cuts[-1] + 4)
        b = min(total - 4, a + group)
        if a < b:
            cuts.append(max(range(a, b), key=lambda j: ids[j] - ids[j - 1]))
    return cuts


def solve_all(
    whole: Segment, count: int, executor: Executor | None, stage: Stage, resume: str | Path | None = None
) -> Solved:
    """The lines of all ids, in `count` segments at most, from left to right."""
    cuts = cut(whole.ids, count, whole.size)
    journal = None if resume is None else Journal.of(resume, whole, cuts)
    ends = [*cuts[1:], len(whole.ids)]
    parts = [
        replace(whole, ids=whole.ids[a:b], labels=whole.labels[a:b], seed=(*whole.seed, k), joined=b < len(whole.ids))
        for k, (a, b) in enumerate(zip(cuts, ends, strict=True))
    ]
    solved = _map(solve_segment, parts, "segment", executor, stage, journal)
    joints = [_joint(part, here, after) for part, here, after in zip(parts, solved, solved[1:], strict=False)]
    joined = _map(solve_joint, joints, "joint", executor, stage, journal)
    lines: list[Line] = []
    for k, part in enumerate(solved):
        lines.extend(part.lines)
        if k < len(joined):
            lines.extend(joined[k].lines)
    every = [*solved, *joined]
    return Solved(tuple(lines), sum(s.failed for s in every), sum(s.refused for s in every))


def _joint(part: Segment, here: Solved, after: Solved) -> Segment:
    """Return the rest of a segment, between its last line and the first of the next."""
    done = sum(line.count for line in here.lines)
    sizes = [line.count for line in here.lines[1:]] or [part.size]
    return replace(
        part,
        ids=part.ids[done:],
        labels=part.labels[done:],
        joined=False,
        size=max(2, sum(sizes) // len(sizes)),
        before=here.lines[-1],
        after=after.lines[0],
        odd=len(here.lines) % 2 == 1,
        seed=(*part.seed, 1),
    )


def solve_joint(joint: Segment) -> Solved:
    """Groups that lead from one segment's last line to the next one's first."""
    for k in range(JOINT_SEEDS):
        try:
            return solve_segment(replace(joint, seed=(*joint.seed, k)))
        except GroupError:
            continue
    raise GroupError("two segments of the label memory could not be joined")


def _map(
    task: Callable[[Segment], Solved],
    parts: Sequence[Segment],
    name: str,
    executor: Executor | None,
    stage: Stage,
    journal: Journal | None,
) -> list[Solved]:
    """Run `task` on all parts, in order; parts in the journal are not solved again."""
    found: dict[int, Solved] = {}
    if journal is not None:
        kept = journal.parts()
        found = {k: kept[f"{name} {k}"] for k in range(len(parts)) if f"{name} {k}" in kept}

    def take(k: int, solved: Solved) -> None:
        found[k] = solved
        stage.advance(sum(line.count for line in solved.lines))
        if journal is not None:
            journal.write(f"{name} {k}", solved)

    missing = [k for k in range(len(parts)) if k not in found]
    for solved in found.values():
        stage.advance(sum(line.count for line in solved.lines))
    if executor is None or len(missing) < 2:
        for k in missing:
            take(k, task(parts[k]))
        return [found[k] for k in range(len(parts))]
    futures: dict[Any, int] = {executor.submit(task, parts[k]): k for k in missing}
    try:
        for done in as_completed(futures):
            take(futures[done], done.result())
    except BaseException:  # an interrupt too: no further part is started
        for future in futures:
            future.cancel()
        raise
    return [found[k] for k in range(len(parts))]
