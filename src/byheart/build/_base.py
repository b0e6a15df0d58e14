"""What a construction is: a name, a theorem, tasks, options, a promise, and a builder from data to network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from byheart.data.dataset.dataset import Dataset
from byheart.data.dataset.targets import Target
from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.ir.decoder_network import AnyNetwork
from byheart.paper import Ref
from byheart.progress import Progress
from byheart.theory.promises import PromiseOf, promises

SYMBOLS = "tokens are symbols"  # assumed by constructions that look token ids up in a table
NOT_ASSUMED = "not true of this data, and not assumed:"  # how a note begins that waives a theorem's assumption


@dataclass(frozen=True)
class Construction:
    """What a builder returns: a network, the options as they turned out, and what people should know about the build.

    `facts` are numbers about the build (a condition number, a rank) that are shown and not kept in the file.

    What its theorem promises is not the builder's to say: `byheart.theory.promises` computes it from data and options.
    """

    network: AnyNetwork
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Option:
    """One option of a construction: its default, the values it takes (None: any of the type), and its meaning."""

    name: str
    type: type
    default: Any
    help: str
    choices: tuple[Any, ...] | None = None
    optional: bool = False  # None is a value too

    def parse(self, value: Any) -> Any:
        """`value` as this option's type; strings from the command line are converted."""
        if value is None or (self.optional and value == "none"):
            if self.optional:
                return None
            raise OptionError(f"option {self.name} needs a value: {self.help}")
        try:
            parsed = _boolean(value) if self.type is bool else self.type(value)
        except (TypeError, ValueError):
            raise OptionError(
                f"option {self.name}={value!r} is not of type {self.type.__name__}: {self.help}"
            ) from None
        if self.choices is not None and parsed not in self.choices:
            raise OptionError(f"option {self.name}={value!r} is not one of {', '.join(map(str, self.choices))}")
        return parsed


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if str(value).lower() not in known:
        raise ValueError(value)
    return known[str(value).lower()]


@dataclass(frozen=True)
class Listing:
    """What people see of a construction."""

    summary: str
    paper: str
    tasks: tuple[str, ...]
    options: dict[str, str]  # name -> default and meaning
    words: str = ""  # what it does and when to take it


Builder = Callable[..., Construction]  # (dataset, *, seed, progress, **options)


@dataclass(frozen=True)
class Recipe:
    """A registered construction."""

    name: str
    summary: str
    ref: Ref
    tasks: tuple[Task, ...]
    options: tuple[Option, ...]
    builder: Builder
    assumptions: tuple[str, ...] = ()  # about the data; where one fails, building raises an AssumptionError
    words: str = ""  # what it does and when to take it, a paragraph for people
    formula: str = ""  # the name of the upper bound in `byheart.theory` that predicts its size, if there is one
    order: int = 1000  # its place in tables: the rows of KS25's Table 1 first
    distributions: bool = False  # whether targets may be distributions; documents are then its data

    @property
    def listing(self) -> Listing:
        options = {option.name: f"{option.default}: {option.help}" for option in self.options}
        return Listing(self.summary, str(self.ref), tuple(task.value for task in self.tasks), options, self.words)

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All options with defaults filled in; an OptionError names an unknown one and lists the known."""
        known = {option.name: option for option in self.options}
        for name in given:
            if name not in known:
                raise OptionError(f"{self.name} has no option {name!r}; it has: {', '.join(known) or 'none'}")
        return {name: option.parse(given[name]) if name in given else option.default for name, option in known.items()}

    def build(self, dataset: Dataset, *, seed: int, progress: Progress, options: Mapping[str, Any]) -> Construction:
        if dataset.encoder.task not in self.tasks:
            raise OptionError(
                f"{self.name} does not build task {dataset.encoder.task}; it builds {', '.join(self.tasks)}"
            )
        if type(seed) is not int or not 0 <= seed < 1 << 64:
            raise OptionError(f"seed={seed!r} is not a whole number from 0 to 2^64 - 1")
        if dataset.target is Target.DISTRIBUTION and not self.distributions:
            able = ", ".join(name for name, other in recipes().items() if other.distributions)
            raise OptionError(f"{self.name} stores one label per context, not distributions; those are for {able}")
        return self.builder(dataset, seed=seed, progress=progress, **self.resolve(options))


@dataclass(frozen=True)
class Neighbour:
    """A construction whose result is not a memory of a data set, and where it is built."""

    name: str
    summary: str
    ref: Ref
    door: str  # the command and the function that build it
    words: str = ""

    @property
    def listing(self) -> Listing:
        return Listing(self.summary, str(self.ref), (self.door,), {}, self.words)


_RECIPES: dict[str, Recipe] = {}
_NEIGHBOURS: dict[str, Neighbour] = {}


def register(
    name: str,
    *,
    summary: str,
    ref: Ref,
    tasks: tuple[Task, ...],
    options: tuple[Option, ...] = (),
    assumptions: tuple[str, ...] = (),
    words: str = "",
    formula: str = "",
    order: int = 1000,
    promise: PromiseOf | None = None,
    distributions: bool = False,
) -> Callable[[Builder], Builder]:
    """Registers the decorated builder as construction `name`. Registering is testing: the suite builds them all.

    This is the only list that names a construction: tables, pages, predictions and the report read it. `promise` is for
    a construction that brings its own; those of the papers are in `byheart.theory.promises`.
    """

    def add(builder: Builder) -> Builder:
        if name in _RECIPES:
            raise OptionError(f"construction {name!r} is registered twice")
        if promise is not None:
            promises(name)(promise)
        _RECIPES[name] = Recipe(
            name, summary, ref, tasks, options, builder, assumptions, words or summary, formula, order, distributions
        )
        return builder

    return add


def announce(name: str, *, summary: str, ref: Ref, door: str, words: str = "") -> None:
    """Makes a construction known that has a door of its own, so that asking for it here leads there."""
    _NEIGHBOURS[name] = Neighbour(name, summary, ref, door, words or summary)


def neighbours() -> dict[str, Neighbour]:
    """Name -> what is built elsewhere."""
    return dict(_NEIGHBOURS)


def recipes() -> dict[str, Recipe]:
    """Name -> recipe of every registered construction, in the order of tables."""
    return dict(sorted(_RECIPES.items(), key=lambda item: (item[1].order, item[0])))


def recipe(name: str) -> Recipe:
    if name in _NEIGHBOURS:
        raise OptionError(f"{name} is not a memory of labels or distributions; build it with {_NEIGHBOURS[name].door}")
    if name not in _RECIPES:
        raise OptionError(f"unknown construction {name!r}; known: {', '.join(sorted(_RECIPES))}")
    return _RECIPES[name]
