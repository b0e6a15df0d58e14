"""Writing of feature folders: the head of expected.json, the measured answers, the value returned.

A folder appears whole or not at all, after its answers were measured in three types: in byheart's machine, which runs
the cases that need logits and greedy decoding alone, or, with `recited`, in Transformers, which runs all of them. Cases
that differ in a number alone (K of a draft) are run once each, not in every type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from byheart.certify import Verdict
from byheart.checkpoints.engines.transformers import attention_forms
from byheart.checkpoints.proof import MarginCertificate
from byheart.checkpoints.suite.adapters import Opener, SessionAdapter, engine_adapter, open_adapter
from byheart.checkpoints.suite.cases import FORMAT, SuiteCase, read_cases
from byheart.checkpoints.suite.runner import CORRECT, SKIPPED, CaseResult, run_cases
from byheart.data.tokens.lexicon import Lexicon
from byheart.errors import ExportError

VERSION = 3
TYPES = ("float32", "bfloat16", "float16")
Margins = dict[str, dict[str, float | None]]


@dataclass(frozen=True)
class FeatureFixture:
    """A written fixture of a feature."""

    folder: Path
    kind: str
    architecture: str
    parameters: int
    size: int
    margins: Mapping[str, Mapping[str, float | None]]
    cases: int
    measured: tuple[str, ...]  # types in which cases were run
    engine: str  # that ran them

    @property
    def rechecked(self) -> tuple[CaseResult, ...]:
        return ()

    def to_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder), "kind": self.kind, "arch": self.architecture, "architecture": self.architecture,
            "parameters": self.parameters, "bytes": self.size, "cases": self.cases,
            "margins": {name: dict(values) for name, values in self.margins.items()},
            "measured_in": list(self.measured), "measured_by": self.engine,
        }  # fmt: skip


def check_folder(target: Path) -> None:
    """Raise an ExportError unless `target` can be written."""
    if target.exists():
        raise ExportError(f"{target} already exists; choose another name or remove it")
    if not target.parent.is_dir():
        raise ExportError(f"cannot write {target}: the folder {target.parent} does not exist")


def proved_margins(certificates: Sequence[MarginCertificate]) -> Margins:
    """Return per type the least margin that all certificates prove, None where one does not."""
    found: Margins = {}
    for name in TYPES:
        results = [t for c in certificates for t in c.types if t.type == name]
        proved = len(results) == len(certificates) and all(t.verdict is Verdict.PROVED for t in results)
        seen = [t.margin for t in results if t.margin is not None]
        found[name] = {"proved": min(seen) if proved and seen else None, "measured": None}
    return found


def expected_head(kind: str, architecture: str, lexicon: Lexicon, margins: Margins) -> dict[str, Any]:
    """Return the fields that every expected.json begins with."""
    roles = {"bos": lexicon.bos, "eos": lexicon.eos, "pad": lexicon.pad, "failure": lexicon.failure}
    return {
        "format": FORMAT, "version": VERSION, "kind": kind, "architecture": architecture, "tokens": roles,
        "margins": margins,
    }  # fmt: skip


@dataclass(frozen=True)
class MeasuredText:
    """A text whose tokens from `start` on must be the most likely ones, for the measured margin.

    Args:
        model: the checkpoint's folder inside of the fixture.
        ids: the text.
        start: the first position that is compared.
        adapter: a PEFT adapter's folder inside of the fixture, or None.
    """

    model: str
    ids: Sequence[int]
    start: int = 1
    adapter: str | None = None


def finish(
    part: Path,
    target: Path,
    content: dict[str, Any],
    test: str,
    parameters: int,
    *,
    recited: bool = False,
    forms: bool = False,
    runs: Callable[[SuiteCase, str], bool] = lambda case, dtype: True,
    texts: Sequence[MeasuredText] = (),
) -> FeatureFixture:
    """Write expected.json and the test, run the cases, and move the folder into place.

    A case that is not run here has an answer by the proved symbolic function; its field `measured_in` is then empty.

    Args:
        part: the folder with the checkpoints.
        target: where it goes.
        content: the content of expected.json; measured margins are filled in.
        test: the text of the small test that needs no byheart.
        parameters: of the main checkpoint.
        recited: run all cases in Transformers; else those that byheart's machine can run.
        forms: in every form of attention that Transformers has for the architecture.
        runs: (case, type) -> whether the case is run in this type.
        texts: texts for the measured margins, in all types.

    Raises:
        ExportError: a case has another answer than the expected one.
    """
    engine = "transformers" if recited else "byheart"
    kind, path = content["kind"], part / "expected.json"
    path.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
    (part / f"test_{kind}.py").write_text(test, encoding="utf-8")
    ran: dict[str, list[str]] = {case["name"] + case["do"]: [] for case in content["cases"]}
    measured = TYPES if find_spec("torch") is not None else ()
    for dtype in measured:
        cases = [case for case in read_cases(part) if runs(case, dtype)]
        settings = [{"attention": form} for form in attention_forms(part)] if forms else [{}]
        results = [r for one in settings for r in run_cases(cases, _opener(engine, dtype, one))]
        wrong = next((r for r in results if r.status not in (CORRECT, SKIPPED)), None)
        if wrong is not None:
            raise ExportError(f"{engine} in {dtype} does not return the expected answer: {wrong.message}")
        for result in results:
            if result.status == CORRECT and dtype not in ran[result.case.name + result.case.verb]:
                ran[result.case.name + result.case.verb].append(dtype)
        seen = [r.margin for r in results if r.margin is not None] + _margins(part, texts, engine, dtype)
        content["margins"][dtype]["measured"] = min(seen) if seen else None
    for case in content["cases"]:
        case["measured_in"] = ran[case["name"] + case["do"]]
    content |= {"measured_in": list(measured), "measured_by": engine}
    path.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
    size = sum(file.stat().st_size for file in part.rglob("*.safetensors"))
    part.rename(target)
    target.chmod(0o755)
    name, margins = content["architecture"], content["margins"]
    return FeatureFixture(target, kind, name, parameters, size, margins, len(content["cases"]), tuple(measured), engine)


def _margins(part: Path, texts: Sequence[MeasuredText], engine: str, dtype: str) -> list[float]:
    """The least margin of every text; with an adapter, where the engine applies adapters."""
    found = []
    for model in dict.fromkeys(text.model for text in texts):
        adapter = open_adapter(_opener(engine, dtype), part / model)
        try:
            for text in (one for one in texts if one.model == model):
                ids = list(text.ids[:-1])
                path = None if text.adapter is None else part / text.adapter
                if path is not None and not hasattr(adapter, "lora_logits"):
                    continue
                rows = adapter.logits([ids]) if path is None else adapter.lora_logits(path, ids)
                logits = np.array(rows, dtype=np.float64)[text.start - 1 :]
                places, wanted = np.arange(len(logits)), np.asarray(text.ids[text.start :])
                own = logits[places, wanted]
                logits[places, wanted] = -np.inf
                found.append(float((own - logits.max(1)).min()))
        finally:
            adapter.close()
    if found and min(found) <= 0:
        raise ExportError(f"{engine} in {dtype} prefers another token; the margin is {min(found):.3g} nats")
    return found


def _opener(engine: str, dtype: str, options: Mapping[str, str] | None = None) -> Opener:
    if engine != "byheart":
        return engine_adapter(engine, dtype, options)
    from byheart.checkpoints.suite.machine import MachineSession

    return lambda folder: SessionAdapter(folder, MachineSession(folder, dtype), dtype, ExitStack())
