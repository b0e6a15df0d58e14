"""An experiment as a value: problems, sizes, number of trials, criterion of memorization.

It goes into the study as JSON, so a worker on another machine, or a later version of the program, follows the plan
even if the preset has changed since.

A `TrialRecord` is the record of one training run: enough to repeat it, and its result.
"""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from typing import Any, Literal

from byheart.errors import FileFormatError, OptionError
from byheart.lab.config import ATTENTIONS, PRECISIONS, DecoderModel, Model, Shape, Training, Uniform, as_plain, model_of
from byheart.lab.engines.training import Outcome
from byheart.lab.problem import ProblemSpec
from byheart.version import __version__

Kind = Literal["curves", "minimum", "grid"]
FORMAT = 1  # of the study; a study with a higher number was written by a newer version


@dataclass(frozen=True)
class Space:
    """The tuned parameters: the learning rate (log-uniform) and the warmup's share (uniform). Equal ends: fixed.

    grow: a network starts from that of the next smaller size, trained with the same rate and warmup from the same seed;
    the k-th learns at rate / k**calm, and again at half of that if it ended worse than it began, up to `retries` times.
    """

    rate: tuple[float, float]
    warmup: tuple[float, float] = (0.0, 0.0)
    shape: Shape = "cosine"
    decay: float = 0.0
    beta2: float = 0.999
    clip: float = 0.0
    identity: bool = False
    slowdown: float = 0.0
    token_slowdown: float = 0.0
    summed: bool = False
    precision: str = "float32"
    starts: int = 1
    grow: bool = False
    calm: float = 1.0
    retries: int = 0

    @property
    def fixed(self) -> bool:
        return self.rate[0] == self.rate[1] and self.warmup[0] == self.warmup[1]


@dataclass(frozen=True)
class Experiment:
    """One figure of a paper.

    kind: `curves` and `grid` train every size on every problem; `minimum` looks for the smallest of `sizes` that
    memorizes, by bracketing from `first`. A cell (problem, size) gets at most `trials` trials in batches of `batch`;
    in a `minimum` a cell whose batch has memorized needs no further one.
    """

    preset: str
    scale: str
    kind: Kind
    axis: str  # varies between the problems: "N" or "n"
    problems: tuple[ProblemSpec, ...]
    sizes: tuple[int, ...]
    epochs: int
    trials: int
    space: Space
    batch: int = 2
    model: Literal["uniform", "decoder"] = "uniform"
    loss: float = 0.01
    accuracy: bool = False
    full: bool = False  # curves are trained to the end
    first: int = 8
    seed: int = 0
    engine: str = "auto"
    variants: tuple[str, ...] = ()  # of each problem: an attention, or a precision; empty: all as in the space
    m: int = 2  # width of the stream of a uniform model; q = 4m and s = m as in the paper

    def __post_init__(self) -> None:
        if not self.problems or not self.sizes or list(self.sizes) != sorted(set(self.sizes)):
            raise OptionError(f"an experiment needs problems and ascending sizes, not {self.sizes}")
        if self.variants and len(self.variants) != len(self.problems):
            raise OptionError(f"{len(self.variants)} variants for {len(self.problems)} problems: one each, or none")
        if unknown := set(self.variants) - {*ATTENTIONS, *PRECISIONS}:
            raise OptionError(f"unknown variants {sorted(unknown)}; known: {', '.join((*ATTENTIONS, *PRECISIONS))}")
        if min(self.epochs, self.trials, self.batch) < 1:
            raise OptionError(f"epochs, trials, batch = {self.epochs}, {self.trials}, {self.batch}: at least 1 each")

    def model_of(self, size: int, problem: int = 0) -> Model:
        if self.model == "decoder":
            return DecoderModel(size)
        attention = self.variant(problem) if self.variant(problem) in ATTENTIONS else "uniform"
        return Uniform(size, self.m, 4 * self.m, self.m, attention=attention)

    def variant(self, problem: int) -> str:
        return self.variants[problem] if self.variants else ""

    def title(self, problem: int) -> str:
        """The problem's name in tables, with its distinguishing settings."""
        variant = self.variant(problem)
        return self.problems[problem].name + (f", {variant}" if variant else "")

    def place(self, problem: int) -> int:
        """The x coordinate of a problem."""
        spec = self.problems[problem]
        return spec.N if self.axis == "N" else spec.n

    @property
    def name(self) -> str:
        """Readable, and different for different experiments: a study of this name contains only this experiment."""
        return f"byheart-{self.preset}-{self.scale}-{self.digest[:8]}"

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.as_plain(), sort_keys=True).encode()).hexdigest()

    def as_plain(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> Experiment:
        """Read the output of `as_plain`; unknown or missing fields are a FileFormatError."""
        try:
            space: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plain["space"].items()}
            return Experiment(
                **{
                    **plain,
                    "problems": tuple(ProblemSpec(**spec) for spec in plain["problems"]),
                    "sizes": tuple(plain["sizes"]),
                    "variants": tuple(plain.get("variants", ())),
                    "space": Space(**space),
                }
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise FileFormatError(f"the study's plan cannot be read ({error}); it was not written by byheart") from None


@dataclass(frozen=True)
class TrialRecord:
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
    def from_plain(plain: dict[str, Any]) -> TrialRecord:
        try:
            outcome = dict(plain["outcome"])
            outcome["loss"] = float("inf") if outcome["loss"] is None else outcome["loss"]
            outcome["curve"] = tuple(
                (k, *(float("nan") if v is None else v for v in point)) for k, *point in outcome["curve"]
            )
            return TrialRecord(
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
    """Versions of the libraries that take part in training."""
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
