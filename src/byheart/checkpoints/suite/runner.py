"""Runs cases in an engine: one function per verb, one result per case.

A result counts tokens (or rows of logits): how many were compared, how many were correct up to the first difference,
the least margin where the engine shows one, and the first incorrect answer with its place. A verb that the adapter does
not have is `skipped`; an exception of the engine is `error`, which is a failure.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.suite.adapters import open_adapter
from byheart.checkpoints.suite.cases import SuiteCase, first_difference, read_cases
from byheart.errors import ByheartError
from byheart.progress import SILENT, Progress

CORRECT, INCORRECT, SKIPPED, ERROR = "correct", "incorrect", "skipped", "error"
COARSE = "a cache in 4 bits, or products in 8 bits, turn sensors without a fault: --coarse skips these cases"


@dataclass(frozen=True)
class FirstIncorrect:
    """The first incorrect answer of a case: where it occurs, the returned and the expected value."""

    where: str
    found: str
    wanted: str

    def __str__(self) -> str:
        return f"{self.where}: {self.found} instead of {self.wanted}"


@dataclass(frozen=True)
class CaseResult:
    """The outcome of one case."""

    case: SuiteCase
    status: str
    compared: int = 0
    correct: int = 0
    margin: float | None = None
    first: FirstIncorrect | None = None
    reason: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return self.status in (CORRECT, SKIPPED)

    @property
    def message(self) -> str:
        """One line about the outcome."""
        if self.first is not None:
            return f"{self.case.name}: {self.first}" + (f" ({self.reason})" if self.reason else "")
        return f"{self.case.name}: {self.reason or self.status}"

    def to_json(self) -> dict[str, Any]:
        first = self.first and {"where": self.first.where, "found": self.first.found, "expected": self.first.wanted}
        return {
            "id": self.case.id, "kind": self.case.kind, "arch": self.case.architecture, "name": self.case.name,
            "do": self.case.verb, "status": self.status, "compared": self.compared, "correct": self.correct,
            "margin": self.margin, "first_incorrect": first, "reason": self.reason, "seconds": round(self.seconds, 3),
        }  # fmt: skip


@dataclass
class _Tally:
    """Counts of one case while it is compared."""

    compared: int = 0
    correct: int = 0
    margin: float | None = None
    first: FirstIncorrect | None = None
    note: str = ""  # what a correct answer reveals

    def ids(self, case: SuiteCase, label: str, answer: Any, wanted: Sequence[int], text: str | None = None) -> None:
        """Compare a continuation: ids by ids, a text by the expected text."""
        found = getattr(answer, "ids", answer)
        if isinstance(found, str):
            expected = text if text is not None else decode(case.model, wanted)
            self.value(label, found, expected, len(wanted))
            return
        got, right = [int(t) for t in found], [int(t) for t in wanted]
        place = first_difference(got, right)
        same = len(right) if place is None else min(place, len(right))
        self.compared, self.correct = self.compared + len(right), self.correct + same
        if place is not None and same == len(right):  # tokens after the last expected one
            self.correct -= 1
        gaps = list(getattr(answer, "margins", ()))[:same]
        # At a branch of weighted documents the margin is the ratio of their weights; it is no measure of the engine.
        if gaps and not case.content.get("branches"):
            self.margin = min([*gaps, math.inf if self.margin is None else self.margin])
        if place is not None and self.first is None:
            shown = [_token(case.model, ids[place]) if place < len(ids) else "nothing" for ids in (got, right)]
            self.first = FirstIncorrect(f"{label}token {place} of {len(right)}", *shown)

    def value(self, label: str, found: Any, wanted: Any, weight: int = 1) -> None:
        """Compare a value as a whole; of two texts, the first character that differs is named."""
        self.compared += weight
        if found == wanted:
            self.correct += weight
        elif self.first is None:
            if isinstance(found, str) and isinstance(wanted, str):
                place = first_difference([ord(c) for c in found], [ord(c) for c in wanted]) or 0
                parts = [repr(text[place : place + 24]) for text in (found, wanted)]
                self.first = FirstIncorrect(f"{label}character {place}", *parts)
            else:
                self.first = FirstIncorrect(label.rstrip(", ") or "value", repr(found)[:200], repr(wanted)[:200])

    def members(self, label: str, found: Iterable[int], allowed: Sequence[int], names: Callable[[int], str]) -> None:
        """Compare samples with the set of tokens that may occur."""
        for token in found:
            self.compared += 1
            if int(token) in allowed:
                self.correct += 1
            elif self.first is None:
                self.first = FirstIncorrect(label, names(int(token)), f"one of {', '.join(map(names, allowed))}")


METHODS = {"numerics": "generate"}  # verbs that call a method of another name
TYPE_NAMES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
Check = Callable[[SuiteCase, Any, _Tally], str | None]
_CHECKS: dict[str, Check] = {}


def _check(verb: str) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        _CHECKS[verb] = check
        return check

    return add


def run_case(case: SuiteCase, adapter: Any) -> CaseResult:
    """Run one case.

    Args:
        case: a case of `read_cases`.
        adapter: an object with the method that the case names; see `EngineAdapter`.

    Returns:
        The result; exceptions of the engine become a result with the status `error`.
    """
    started, tally = time.perf_counter(), _Tally()
    if getattr(adapter, METHODS.get(case.verb, case.verb), None) is None and case.verb != "batch":
        return CaseResult(case, SKIPPED, reason=f"the adapter has no method {case.verb}")
    try:
        reason = _CHECKS[case.verb](case, adapter, tally)
    except ByheartError as error:
        return CaseResult(case, SKIPPED, reason=str(error), seconds=time.perf_counter() - started)
    except Exception as error:  # whatever an engine raises is its failure, not ours
        words = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return CaseResult(case, ERROR, reason=words, seconds=time.perf_counter() - started)
    seconds = time.perf_counter() - started
    if reason is not None:
        return CaseResult(case, SKIPPED, reason=reason, seconds=seconds)
    status = CORRECT if tally.first is None and tally.correct == tally.compared else INCORRECT
    note = COARSE if case.sensor and status == INCORRECT else tally.note
    return CaseResult(case, status, tally.compared, tally.correct, tally.margin, tally.first, note, seconds)


def run_cases(cases: Sequence[SuiteCase], opener: Any, progress: Progress = SILENT) -> Iterator[CaseResult]:
    """Run cases, opening every checkpoint once.

    Args:
        cases: cases of one or several folders.
        opener: folder -> adapter, or the name of an engine.
        progress: counts the cases.

    Yields:
        One result per case, in order of the folders.
    """
    by_model: dict[Path, list[SuiteCase]] = {}
    for case in cases:
        by_model.setdefault(case.model, []).append(case)
    with progress.stage("running cases", total=len(cases)) as stage:
        for model, those in by_model.items():
            try:
                adapter = open_adapter(opener, model)
            except Exception as error:  # an engine that cannot open a stock folder fails all of its cases
                words = f"the engine could not open {model.name}: {type(error).__name__}: {error}"
                status = SKIPPED if isinstance(error, ByheartError) else ERROR
                yield from (CaseResult(case, status, reason=words) for case in those)
                stage.advance(len(those))
                continue
            try:
                for case in those:
                    yield run_case(case, adapter)
                    stage.advance(1)
            finally:
                close = getattr(adapter, "close", None)
                if callable(close):
                    close()


@_check("generate")
def _generate(case: SuiteCase, adapter: Any, tally: _Tally) -> None:
    wanted = case.content["continuation_ids"]
    answer = adapter.generate(list(case.content["ids"]), case.content.get("count", len(wanted)))
    tally.ids(case, "", answer, wanted, case.content.get("continuation"))


@_check("batch")
def _batch(case: SuiteCase, adapter: Any, tally: _Tally) -> str | None:
    if not callable(getattr(adapter, "batch", None)):
        return "the adapter has no method batch"
    rows = adapter.batch([list(ids) for ids in case.content["ids"]], case.content["count"])
    for row, (answer, wanted) in enumerate(zip(rows, case.content["continuation_ids"], strict=True)):
        tally.ids(case, f"row {row}, ", answer, wanted)
    return None


@_check("logits")
def _logits(case: SuiteCase, adapter: Any, tally: _Tally) -> str | None:
    found = adapter.logits([list(piece) for piece in case.content["pieces"]])
    if found is None:
        return "the engine does not return the logits of a text in pieces"
    _compare_logits(case, adapter, found, tally)
    return None


@_check("lora_logits")
def _lora_logits(case: SuiteCase, adapter: Any, tally: _Tally) -> None:
    ids = [token for piece in case.content["pieces"] for token in piece]
    _compare_logits(case, adapter, adapter.lora_logits(case.folder / case.content["adapter"], ids), tally)


def _compare_logits(case: SuiteCase, adapter: Any, found: Any, tally: _Tally) -> None:
    """The most likely token after every prefix, and its logit within the tolerance of the adapter's type."""
    content = case.content
    logits, tokens = np.asarray(found, dtype=np.float64), np.asarray(content["tokens"])
    tolerance = content.get("tolerance", case.expected.get("tolerance", {}))
    allowed = tolerance.get(getattr(adapter, "dtype", "float32"))
    tally.compared = len(tokens)
    best = logits.argmax(1)
    own = logits[np.arange(len(tokens)), tokens[:, 0]]
    others = logits.copy()
    others[np.arange(len(tokens)), tokens[:, 0]] = -np.inf
    # The proved margin is about memorized windows; after noise the failure token wins by less, so it does not count.
    memorized = tokens[:, 0] != case.expected.get("tokens", {}).get("failure", -1)
    gaps = np.nan_to_num(own - others.max(1), nan=-np.inf)[memorized]
    tally.margin = float(gaps.min()) if len(gaps) else None
    wrong = best != tokens[:, 0]
    far = np.zeros(len(tokens), dtype=bool)
    if allowed is not None and "logits" in content:
        shown_logits = np.take_along_axis(logits, tokens, 1)
        off = np.nan_to_num(np.abs(shown_logits - np.asarray(content["logits"])).max(1), nan=np.inf)
        far = off > allowed
    tally.correct = int((~wrong & ~far).sum())
    if wrong.any():
        at = int(wrong.argmax())
        shown = [_token(case.model, int(t)) for t in (best[at], tokens[at, 0])]
        tally.first = FirstIncorrect(f"after prefix {at + 1} of {len(tokens)}", *shown)
    elif far.any():
        at = int(far.argmax())
        tally.first = FirstIncorrect(
            f"logit after prefix {at + 1}", f"{off[at]:.3g} nats off", f"at most {allowed:.3g} in {adapter.dtype}"
        )


@_check("lora")
def _lora(case: SuiteCase, adapter: Any, tally: _Tally) -> str | None:
    content = case.content
    path = None if content["adapter"] is None else case.folder / content["adapter"]
    wanted = content["continuation_ids"]
    if content.get("merged"):
        if getattr(adapter, "lora_merged", None) is None:
            return "the adapter has no method lora_merged"
        answer = adapter.lora_merged(path, list(content["ids"]), len(wanted))
    else:
        answer = adapter.lora(path, list(content["ids"]), len(wanted))
    tally.ids(case, "", answer, wanted, content.get("continuation"))
    return None


@_check("lora_batch")
def _lora_batch(case: SuiteCase, adapter: Any, tally: _Tally) -> None:
    content = case.content
    paths = [None if name is None else case.folder / name for name in content["adapters"]]
    rows = adapter.lora_batch(paths, [list(ids) for ids in content["ids"]], content["count"])
    for row, (answer, wanted) in enumerate(zip(rows, content["continuation_ids"], strict=True)):
        tally.ids(case, f"row {row} ({content['adapters'][row] or 'base'}), ", answer, wanted)


def _steps(case: SuiteCase, answer: Any, tally: _Tally) -> None:
    """The text, and the counts of every step where the engine returns them."""
    text, *counts = answer if isinstance(answer, tuple) else (answer,)
    content = case.content
    tally.ids(case, "", text, content["continuation_ids"], content.get("continuation"))
    for name, found in zip(("drafted", "accepted"), counts, strict=False):
        if found is not None:
            wanted = content[name]
            place = first_difference(list(found)[: len(wanted)], wanted)
            label = f"{name} tokens of step {place}" if place is not None else name
            tally.value(label, tuple(found)[: len(wanted)], tuple(wanted), len(wanted))


@_check("draft")
def _draft(case: SuiteCase, adapter: Any, tally: _Tally) -> None:
    content = case.content
    answer = adapter.draft(case.folder / content["draft"], list(content["ids"]), content["count"], content["k"])
    _steps(case, answer, tally)


@_check("draft_sampled")
def _draft_sampled(case: SuiteCase, adapter: Any, tally: _Tally) -> None:
    content = case.content
    path, ids = case.folder / content["draft"], list(content["ids"])
    _steps(case, adapter.draft_sampled(path, ids, content["count"], content["k"], content["temperature"]), tally)


@_check("lookup")
def _lookup(case: SuiteCase, adapter: Any, tally: _Tally) -> None:
    content = case.content
    _steps(case, adapter.lookup(list(content["ids"]), content["count"], content["k"], content["ngram"]), tally)


@_check("mtp")
def _mtp(case: SuiteCase, adapter: Any, tally: _Tally) -> None:
    _steps(case, adapter.mtp(list(case.content["ids"]), case.content["count"]), tally)


@_check("chat")
def _chat(case: SuiteCase, adapter: Any, tally: _Tally) -> None:
    content = case.content
    tally.value("", adapter.chat(content["messages"], content.get("tools"), content.get("stop", [])), content["answer"])


@_check("streamed")
def _streamed(case: SuiteCase, adapter: Any, tally: _Tally) -> None:
    content = case.content
    pieces = adapter.streamed(content["messages"], content.get("tools"), content.get("stop", []))
    pieces = [pieces] if isinstance(pieces, str) else list(pieces)
    broken = [k for k, piece in enumerate(pieces) if "\ufffd" in piece]
    tally.value("pieces that end inside a character", broken, [])
    tally.value("", "".join(pieces), content["answer"])


@_check("schema")
def _schema(case: SuiteCase, adapter: Any, tally: _Tally) -> None:
    content = case.content
    wanted = content["continuation_ids"]
    answer = adapter.schema(list(content["ids"]), len(wanted), content["schema"])
    tally.ids(case, "", answer, wanted, content.get("continuation"))


@_check("penalized")
def _penalized(case: SuiteCase, adapter: Any, tally: _Tally) -> None:
    content = case.content
    wanted = content["continuation_ids"]
    answer = adapter.penalized(list(content["ids"]), len(wanted), content["settings"])
    tally.ids(case, "", answer, wanted, content.get("continuation"))


@_check("constrained")
def _constrained(case: SuiteCase, adapter: Any, tally: _Tally) -> None:
    content = case.content
    wanted = content["continuation_ids"]
    answer = adapter.constrained(list(content["ids"]), len(wanted), content["pattern"])
    tally.ids(case, "", answer, wanted, content.get("continuation"))


@_check("logprobs")
def _logprobs(case: SuiteCase, adapter: Any, tally: _Tally) -> None:
    top = case.content["top"]
    found = adapter.logprobs(list(case.content["ids"]), len(top))
    tally.ids(case, "rank ", [t for t, _ in found], [t for t, _ in top])
    allowed = case.content["tolerance"].get(getattr(adapter, "dtype", "float32"))
    for rank, ((_, got), (_, wanted)) in enumerate(zip(found, top, strict=False)):
        if allowed is not None:
            close = abs(got - wanted) <= allowed
            shown = wanted if close else got
            tally.value(f"log-probability of rank {rank}", round(shown, 6), round(wanted, 6))


@_check("beams")
def _beams(case: SuiteCase, adapter: Any, tally: _Tally) -> None:
    content = case.content
    found = adapter.beams(list(content["ids"]), content["count"], content["width"])
    for beam, (answer, wanted) in enumerate(zip(found, content["sequences"], strict=False)):
        tally.ids(case, f"beam {beam}, ", answer, wanted)
    tally.value("number of beams", len(found), len(content["sequences"]))


@_check("sample")
def _sample(case: SuiteCase, adapter: Any, tally: _Tally) -> None:
    content = case.content
    found = adapter.sample(list(content["ids"]), content["draws"], content["settings"])
    tally.members("a sample", found, content["allowed"], lambda token: _token(case.model, token))
    missing = sorted(set(content["allowed"]) - {int(t) for t in found})
    shown = [_token(case.model, t) for t in missing]
    tally.value(f"tokens that never occur in {content['draws']} samples", shown, [])


@_check("masked")
def _masked(case: SuiteCase, adapter: Any, tally: _Tally) -> None:
    found = adapter.masked(case.content["ids"], case.content.get("token_types"))
    _compare_logits(case, adapter, np.concatenate([np.asarray(rows) for rows in found]), tally)


@_check("translated")
def _translated(case: SuiteCase, adapter: Any, tally: _Tally) -> None:
    content = case.content
    rows = adapter.translated(content["encoder_ids"], content["count"])
    for row, (answer, wanted) in enumerate(zip(rows, content["continuation_ids"], strict=True)):
        tally.ids(case, f"row {row}, ", answer, wanted)


@_check("translated_logits")
def _translated_logits(case: SuiteCase, adapter: Any, tally: _Tally) -> None:
    found = adapter.translated_logits(case.content["encoder_ids"], case.content["pieces"])
    _compare_logits(case, adapter, found, tally)


@_check("pictured")
def _pictured(case: SuiteCase, adapter: Any, tally: _Tally) -> None:
    content = case.content
    paths = [case.folder / name for name in content["pictures"]]
    answer = adapter.pictured(paths, content["ids"], len(content["continuation_ids"]))
    tally.ids(case, "", answer, content["continuation_ids"], content.get("continuation"))


@_check("pictured_logits")
def _pictured_logits(case: SuiteCase, adapter: Any, tally: _Tally) -> None:
    paths = [case.folder / name for name in case.content["pictures"]]
    _compare_logits(case, adapter, adapter.pictured_logits(paths, case.content["ids"]), tally)


@_check("numerics")
def _numerics(case: SuiteCase, adapter: Any, tally: _Tally) -> str | None:
    """Any answer of the probe is correct; the note states which one it was."""
    content = case.content
    dtype = getattr(adapter, "dtype", content["dtype"])
    if (
        TYPE_NAMES.get(dtype, dtype) in ("float32", "bfloat16", "float16")
        and TYPE_NAMES.get(dtype, dtype) != content["dtype"]
    ):
        return f"a probe of {content['dtype']}; the engine computes in {dtype}"
    answer = adapter.generate(list(content["ids"]), 1)
    found = getattr(answer, "ids", answer)
    if isinstance(found, str):
        found = [token for token in map(int, content["answers"]) if decode(case.model, [token]) == found]
    names = {int(token): name for token, name in content["answers"].items()}
    tally.members("the probe's token", list(found)[:1] or [-1], list(names), lambda token: _token(case.model, token))
    if tally.first is None:
        tally.note = names[int(found[0])] + (" (indicative)" if content["indicative"] else "")
    return None


@lru_cache(maxsize=8)
def _tokenizer(folder: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def decode(folder: Path, ids: Sequence[int]) -> str:
    """Return the text of token ids by the folder's tokenizer, special tokens skipped."""
    return str(_tokenizer(folder).decode([int(t) for t in ids], skip_special_tokens=True))


def _token(folder: Path, token: int) -> str:
    """A token as its number and its name."""
    try:
        name = _tokenizer(folder).id_to_token(token)
    except Exception:  # a missing tokenizer must not hide the incorrect token
        name = None
    return str(token) if name is None else f"{token} ({name!r})"


@dataclass(frozen=True)
class SuiteRow:
    """One line of the table: kind, architecture and type."""

    kind: str
    architecture: str
    dtype: str
    results: tuple[CaseResult, ...]
    margins: Mapping[str, float | None]

    @property
    def ran(self) -> tuple[CaseResult, ...]:
        return tuple(r for r in self.results if r.status != SKIPPED)

    @property
    def correct(self) -> int:
        return sum(r.status == CORRECT for r in self.results)

    @property
    def margin(self) -> float | None:
        """The least margin that the engine showed."""
        seen = [r.margin for r in self.ran if r.margin is not None]
        return min(seen) if seen else None

    @property
    def verdict(self) -> str:
        if not self.ran:
            return SKIPPED
        return CORRECT if self.correct == len(self.ran) else INCORRECT

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind, "arch": self.architecture, "dtype": self.dtype, "cases": len(self.ran),
            "skipped": len(self.results) - len(self.ran), "correct": self.correct, "margin": self.margin,
            "proved_margin": self.margins.get("proved"), "verdict": self.verdict,
            "results": [r.to_json() for r in self.results],
        }  # fmt: skip


@dataclass(frozen=True)
class SuiteReport:
    """All rows of a run."""

    engine: str
    version: str
    rows: tuple[SuiteRow, ...]
    seconds: float

    @property
    def verdict(self) -> str:
        """`correct` if cases ran and all were correct; `skipped` if not one case ran."""
        ran = [row.verdict for row in self.rows if row.verdict != SKIPPED]
        return SKIPPED if not ran else CORRECT if all(v == CORRECT for v in ran) else INCORRECT

    @property
    def results(self) -> tuple[tuple[SuiteRow, CaseResult], ...]:
        return tuple((row, result) for row in self.rows for result in row.results)

    def to_json(self) -> dict[str, Any]:
        return {
            "engine": self.engine, "version": self.version, "verdict": self.verdict,
            "seconds": round(self.seconds, 3), "rows": [row.to_json() for row in self.rows],
        }  # fmt: skip


def all_cases(folder: str | Path) -> tuple[SuiteCase, ...]:
    """Return the cases of a folder, and the serving cases where it is a recital."""
    from byheart.checkpoints.suite.features.serving import serving_cases

    own = read_cases(folder)
    if not own or own[0].kind != "recital" or own[0].expected.get("task", "causal") != "causal":
        return own
    return (*own, *serving_cases(folder))


def run_suite(
    folders: Sequence[Path],
    opener: Callable[[str], Any],
    types: Sequence[str],
    *,
    engine: str,
    version: str = "",
    only: str = "",
    coarse: bool = False,
    progress: Progress = SILENT,
) -> SuiteReport:
    """Run every case of every folder in every type.

    Args:
        folders: fixture folders of any kind.
        opener: type -> (folder -> adapter).
        types: the types to run in.
        engine: the engine's name for the report.
        version: its version.
        only: run the cases with this text in their id.
        coarse: skip sensors, for engines whose cache, weights or products have few bits.
        progress: counts the cases.

    Returns:
        The report, one row per folder and type.
    """
    started, rows = time.perf_counter(), []
    groups: dict[tuple[Path, str], list[SuiteCase]] = {}
    for folder in folders:
        for case in all_cases(folder):
            if only in case.id and not (coarse and case.sensor):
                groups.setdefault((folder, case.kind), []).append(case)
    for (_, kind), cases in groups.items():
        for dtype in types:
            results = tuple(run_cases(cases, opener(dtype), progress))
            margins = cases[0].margins.get(dtype, {})
            rows.append(SuiteRow(kind, cases[0].architecture, dtype, results, margins))
    return SuiteReport(engine, version, tuple(rows), time.perf_counter() - started)
