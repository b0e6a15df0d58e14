"""Writing of feature folders: the head of expected.json, the run in Transformers, the value returned.

A folder appears whole or not at all, and only after every case was correct in Transformers in three types.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from byheart.certify import Verdict
from byheart.checkpoints.engines._base import engines
from byheart.checkpoints.proof import MarginCertificate
from byheart.checkpoints.suite.cases import FORMAT, read_cases
from byheart.checkpoints.suite.runner import CORRECT, CaseResult, run_cases
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
    measured: tuple[str, ...]  # types in which Transformers returned every expected answer

    @property
    def rechecked(self) -> tuple[CaseResult, ...]:
        return ()

    def to_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder), "kind": self.kind, "arch": self.architecture, "architecture": self.architecture,
            "parameters": self.parameters, "bytes": self.size, "cases": self.cases,
            "margins": {name: dict(values) for name, values in self.margins.items()},
            "measured_in": list(self.measured),
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


def finish(
    part: Path, target: Path, content: dict[str, Any], test: str, parameters: int, *, run: bool = True
) -> FeatureFixture:
    """Write expected.json and the test, run every case in Transformers in three types, and move the folder into place.

    Args:
        part: the folder with the checkpoints.
        target: where it goes.
        content: the content of expected.json; measured margins are filled in.
        test: the text of the small test that needs no byheart.
        parameters: of the main checkpoint.
        run: whether the libraries that the cases need are installed.

    Raises:
        ExportError: Transformers returns another answer than the expected one.
    """
    kind, path = content["kind"], part / "expected.json"
    path.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
    (part / f"test_{kind}.py").write_text(test, encoding="utf-8")
    measured = []
    for dtype in TYPES if run and engines()["transformers"].version is not None else ():
        results = list(run_cases(read_cases(part), _opener(dtype)))
        wrong = next((r for r in results if r.status != CORRECT), None)
        if wrong is not None:
            raise ExportError(f"Transformers in {dtype} does not return the expected answer: {wrong.message}")
        seen = [r.margin for r in results if r.margin is not None]
        content["margins"][dtype]["measured"] = min(seen) if seen else None
        measured.append(dtype)
    content["measured_in"] = measured
    path.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
    size = sum(file.stat().st_size for file in part.rglob("*.safetensors"))
    part.rename(target)
    target.chmod(0o755)
    return FeatureFixture(
        target,
        kind,
        content["architecture"],
        parameters,
        size,
        content["margins"],
        len(content["cases"]),
        tuple(measured),
    )


def _opener(dtype: str) -> Any:
    from byheart.checkpoints.suite.adapters import engine_adapter

    return engine_adapter("transformers", dtype)
