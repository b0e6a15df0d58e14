"""Query an engine with every test case of a folder; the result is a value.

Every prefix in one pass, greedy decoding with the cache from the start and from the middle, without the cache, in a
batch with left padding, and random text around a memorized piece. Ids and lengths are compared: a run
that stops early or emits tokens that vanish in decoded text is incorrect. Where the folder has expected.json and the
engine shows logits, these are compared, too: they show what tokens with a margin of 24 nats cannot.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.engines._base import Session, find, margins_of
from byheart.checkpoints.engines.expected import Expected, off_by, read_expected
from byheart.checkpoints.engines.queries import Prompt, Queries, read_queries, read_texts
from byheart.checkpoints.engines.threads import single_thread

# The largest total variation between what is answered and the stored distribution where several tokens may follow.
SPREAD = {"float32": 1e-3, "float16": 1e-2}
OTHER_SPREAD = 5e-2


@dataclass(frozen=True)
class Check:
    """One kind of query and its counts.

    Attributes:
        name: The kind.
        asked: The number of queries.
        right: The number of correct answers.
        margin: The least margin of the correct token in nats, negative where it does not win.
        wrong: The first incorrect answer.
    """

    name: str
    asked: int
    right: int
    margin: float | None = None  # nats; the least margin of the correct token, negative where it does not win
    wrong: str | None = None

    @property
    def passed(self) -> bool:
        return self.asked == self.right


@dataclass(frozen=True)
class Recitation:
    """The answers of an engine to all test cases of a folder.

    Attributes:
        folder: The checkpoint's folder.
        engine: The engine's name.
        version: Its installed version.
        dtype: The type that it computed in.
        options: Its options.
        checks: One entry per kind of query.
        seconds: Time of the run.
        notes: Remarks for the user.
    """

    folder: str
    engine: str
    version: str
    dtype: str
    options: Mapping[str, str]
    checks: tuple[Check, ...]
    seconds: float
    notes: tuple[str, ...] = field(default=())

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    @property
    def margin(self) -> float | None:
        """The least margin that was seen anywhere."""
        seen = [check.margin for check in self.checks if check.margin is not None]
        return min(seen) if seen else None

    @property
    def asked(self) -> int:
        return sum(check.asked for check in self.checks)

    @property
    def right(self) -> int:
        return sum(check.right for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Return the fields that `recite --json` prints."""
        shown = [
            {"name": c.name, "asked": c.asked, "right": c.right, "margin": c.margin, "wrong": c.wrong}
            for c in self.checks
        ]
        return {
            "folder": self.folder, "engine": self.engine, "version": self.version, "dtype": self.dtype,
            "options": dict(self.options), "recited": self.passed, "asked": self.asked, "right": self.right,
            "margin": self.margin, "seconds": round(self.seconds, 3), "checks": shown, "notes": list(self.notes),
        }  # fmt: skip


def recite(
    folder: str | Path,
    engine: str = "transformers",
    *,
    dtype: str | None = None,
    options: Mapping[str, str] | None = None,
    limit: int | None = None,
    queried: Queries | None = None,
    brief: bool = False,
) -> Recitation:
    """Run all test cases of a checkpoint folder in an engine, with one thread.

    Args:
        folder: A folder that byheart wrote.
        engine: The engine's name; `engines()` lists them.
        dtype: The type to compute in; the engine's first one by default.
        options: The engine's own options.
        limit: The most tokens per greedy continuation.
        queried: The folder's test cases, where they have been read already.
        brief: Run only what depends on the form of attention: every prefix, noise, and the padded batch.

    Returns:
        The checks with their counts and the least margin.
    """
    chosen = find(engine)
    kind, settings = chosen.check(dtype, options or {})
    queried = read_queries(folder) if queried is None else queried
    started = time.perf_counter()
    with single_thread(), chosen.open(Path(folder), kind, settings) as session:
        if brief:
            checks = [*passes(session, queried, kind), *_padded(session, queried)]
        else:
            checks = [*ask(session, queried, kind, limit), *_texts(session, queried, read_texts(folder, queried))]
            checks += _logits(session, Path(folder), kind)
    return Recitation(
        str(folder), engine, str(chosen.version), kind, settings, tuple(checks), time.perf_counter() - started
    )


def ask(session: Session, queried: Queries, dtype: str, limit: int | None = None) -> list[Check]:
    """All checks that the session can answer."""
    checks = passes(session, queried, dtype)
    start, middle = queried.start_prompts(limit), queried.middle_prompts(6, 24)
    checks.append(_greedy("greedy from the start", session, start))
    checks.append(_greedy("greedy from the middle", session, middle))
    checks += _padded(session, queried)
    if session.can_decode_without_cache and middle:
        short = [Prompt(p.name, p.ids, p.continuation[:8]) for p in middle[:2]]
        checks.append(_greedy("without a cache", session, short, cache=False))
    return [check for check in checks if check.asked]


def passes(session: Session, queried: Queries, dtype: str) -> list[Check]:
    """Check the answer after every prefix of every document, and of a text around noise."""
    if not session.shows_logits:
        return []
    return [check for check in (*_every_prefix(session, queried, dtype), _noise(session, queried)) if check.asked]


def _padded(session: Session, queried: Queries) -> list[Check]:
    """Prompts of unequal lengths side by side. The shortest is BOS alone: everything before it is padding."""
    prompts = queried.padded_prompts() if session.batches else []
    return [_greedy("batch of unequal lengths", session, prompts, batched=True)] if len(prompts) > 1 else []


def _texts(session: Session, queried: Queries, texts: Sequence[str]) -> list[Check]:
    """Whether the engine's own tokenizer makes the memorized ids of the texts, BOS in front."""
    total = right = 0
    wrong = None
    for text, ids in zip(texts, queried.documents, strict=True):
        found = session.tokenize(text)
        if found is None:
            return []
        same = _agree(found, ids[:-1])
        total, right = total + len(ids) - 1, right + (same if len(found) == len(ids) - 1 else min(same, len(ids) - 2))
        if found != list(ids[:-1]) and wrong is None:
            wrong = f"token {same} is {found[same] if same < len(found) else 'missing'}; {len(found)} tokens in all"
    return [Check("text to ids", total, right, None, wrong)]


def _misplaced(
    session: Session, expected: Expected, found: Mapping[str, npt.NDArray[np.float64]], allowed: float
) -> bool:
    """Whether every pass that is incorrect goes through the cache, and is correct if the engine is given positions."""
    failed = [name for name, off in found.items() if (off > allowed).any()]
    passes = {one.name: one for one in expected.passes if len(one.pieces) > 1}
    if not all(name in passes for name in failed):
        return False
    again = {name: session.placed(passes[name].pieces) for name in failed}
    return all(logits is not None and passes[name].off(logits).max() <= allowed for name, logits in again.items())


def _logits(session: Session, folder: Path, dtype: str) -> list[Check]:
    """Whether the logits are those of expected.json, up to the tolerance of the type."""
    if not session.shows_logits or not (folder / "expected.json").exists():
        return []
    expected = read_expected(folder)
    allowed = expected.tolerance.get(dtype)
    if allowed is None:
        return []
    found, wrong = off_by(session, expected), None
    for name, off in found:
        if off.max() > allowed and wrong is None:
            at = int(np.argmax(off > allowed))
            wrong = f"{name}, position {at}: off by {off[at]:.2g} nats, at most {allowed:.2g} is allowed in {dtype}"
    if wrong is not None and _misplaced(session, expected, dict(found), allowed):
        wrong += (
            "; with explicit position_ids all of these are correct: without them the engine counts positions from 0 "
            "although there is a cache"
        )
    total, right = sum(off.size for _, off in found), sum(int((off <= allowed).sum()) for _, off in found)
    return [Check("expected logits", total, right, None, wrong)]


def _every_prefix(session: Session, queried: Queries, dtype: str) -> list[Check]:
    """The answer after every prefix of every document; where several tokens may follow, their distribution."""
    total = right = spread_queried = spread_right = 0
    least, wrong, spread_wrong = np.inf, None, None
    allowed = SPREAD.get(dtype, OTHER_SPREAD)
    for piece in queried.pieces():
        logits = session.logits(piece.ids)
        answers = [queried.recital.answer(int(k)) for k in queried.recital.follow(piece.ids)]
        gaps = margins_of(logits, [answer.likeliest for answer in answers])
        for t in range(piece.first, len(answers)):
            if answers[t].single:
                total, right = total + 1, right + bool(gaps[t] > 0)
                least = min(least, gaps[t])
                if gaps[t] <= 0 and wrong is None:
                    wrong = f"position {t}: token {int(np.argmax(logits[t]))} instead of {answers[t].likeliest}"
                continue
            wanted = np.zeros(logits.shape[1])
            for token, weight in answers[t].weights:
                wanted[token] = weight / answers[t].total
            distance = 0.5 * float(np.abs(_softmax(logits[t]) - wanted).sum())
            spread_queried, spread_right = spread_queried + 1, spread_right + (distance <= allowed)
            if not distance <= allowed and spread_wrong is None:
                spread_wrong = f"position {t}: total variation {distance:.2g}, at most {allowed:.2g} is allowed"
    return [
        Check("every prefix", total, right, float(least) if total else None, wrong),
        Check("distributions", spread_queried, spread_right, None, spread_wrong),
    ]


def _softmax(row: Any) -> Any:
    wide = row.astype(np.float64)
    powers = np.exp(wide - wide.max())
    return powers / powers.sum()


def _noise(session: Session, queried: Queries) -> Check:
    """Random text around a memorized piece: the answer is known there too."""
    ids = queried.noisy()
    logits = session.logits(ids)
    answers = [queried.recital.answer(int(k)) for k in queried.recital.follow(ids)]
    single = [t for t, answer in enumerate(answers) if answer.single]
    gaps = margins_of(logits[single], [answers[t].likeliest for t in single])
    wrong = [t for t, gap in zip(single, gaps, strict=True) if gap <= 0]
    report = None
    if wrong:
        t = wrong[0]
        report = f"position {t}: token {int(np.argmax(logits[t]))} instead of {answers[t].likeliest}"
    return Check("text around noise", len(single), len(single) - len(wrong), float(gaps.min()), report)


def _greedy(
    name: str, session: Session, prompts: Sequence[Prompt], *, batched: bool = False, cache: bool = True
) -> Check:
    """Continuations token by token; what is missing at the end counts as incorrect."""
    total = right = 0
    least, wrong = np.inf, None
    for group in [list(prompts)] if batched else [[prompt] for prompt in prompts]:
        count = max(len(prompt.continuation) for prompt in group) if group else 0
        for prompt, reply in zip(
            group, session.generate([p.ids for p in group], count, cache=cache) if group else [], strict=True
        ):
            wanted = prompt.continuation
            same = _agree(reply.ids, wanted)
            total, right = total + len(wanted), right + same
            least = min([least, *reply.margins[:same]])
            if same < len(wanted) and wrong is None:
                found = reply.ids[same] if same < len(reply.ids) else "nothing"
                wrong = f"{prompt.name}: token {same} of the continuation is {found} instead of {wanted[same]}"
    return Check(name, total, right, float(least) if np.isfinite(least) else None, wrong)


def _agree(reply: Sequence[int], wanted: Sequence[int]) -> int:
    """How many tokens agree before the first difference."""
    for k, (a, b) in enumerate(zip(reply, wanted, strict=False)):
        if a != b:
            return k
    return min(len(reply), len(wanted))
