"""What is kept of a training run: enough to repeat it, and what came out."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from typing import Any

from byheart.errors import FileFormatError
from byheart.lab.config import Model, Training, as_plain, model_of
from byheart.lab.engines.training import Outcome
from byheart.lab.sources import ProblemSpec
from byheart.version import __version__


@dataclass(frozen=True)
class Record:
    """One finished trial. Equal configuration, seed and data give an equal outcome (but for the seconds)."""

    key: str
    problem: ProblemSpec
    fingerprint: str
    model: Model
    parameters: int
    training: Training
    engine: str
    outcome: Outcome
    versions: dict[str, str]
    machine: str

    def as_plain(self) -> dict[str, Any]:
        """Plain values for JSON; `Record.from_plain` reads them."""
        outcome = asdict(self.outcome)
        outcome["loss"] = None if outcome["loss"] == float("inf") else outcome["loss"]  # JSON has no infinity
        outcome["curve"] = [[k, *(None if v != v or abs(v) == float("inf") else v for v in point)]
                            for k, *point in outcome["curve"]]  # fmt: skip
        return {
            "key": self.key,
            "problem": asdict(self.problem),
            "fingerprint": self.fingerprint,
            "model": as_plain(self.model),
            "parameters": self.parameters,
            "training": as_plain(self.training),
            "engine": self.engine,
            "outcome": outcome,
            "versions": self.versions,
            "machine": self.machine,
        }

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> Record:
        try:
            outcome = dict(plain["outcome"])
            outcome["loss"] = float("inf") if outcome["loss"] is None else outcome["loss"]
            outcome["curve"] = tuple(
                (k, *(float("nan") if v is None else v for v in point)) for k, *point in outcome["curve"]
            )
            return Record(
                **{
                    **plain,
                    "problem": ProblemSpec(**plain["problem"]),
                    "model": model_of(plain["model"]),
                    "training": Training(**plain["training"]),
                    "outcome": Outcome(**outcome),
                }
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError(f"a record of the study cannot be read ({error})") from None


@cache
def versions() -> dict[str, str]:
    """Versions of what takes part in training."""
    found = {"byheart": __version__, "python": platform.python_version()}
    for library in ("numpy", "numba", "torch", "optuna"):
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> str:
    """The processor and its number of cores; no host name."""
    import os

    return f"{platform.machine()} {platform.system()}, {os.cpu_count()} cores"
