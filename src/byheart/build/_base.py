"""Constructions: a name, a theorem, tasks, options, a guarantee, and a builder from data to network."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from byheart.data.dataset.dataset import Dataset
from byheart.data.dataset.targets import Target
from byheart.data.read.table import Planning
from byheart.data.task import Task
from byheart.data.tokens.tokenizer import TokenTable
from byheart.errors import OptionError
from byheart.exact.compiled import has_numba, require_compiled
from byheart.ir.decoder_network import AnyNetwork
from byheart.paper import Ref
from byheart.progress import Progress, timed
from byheart.theory.guarantees import GuaranteeOf, guarantees

SYMBOLS = "tokens are symbols"  # assumed by constructions that look token ids up in a table
NOT_ASSUMED = "not true of this data, and not assumed:"  # how a note begins that waives a theorem's assumption


@dataclass(frozen=True)
class Construction:
    """The result of a builder.

    The guarantee is not the builder's: `byheart.theory.guarantees` computes it from data and options.

    Attributes:
        network: The network.
        options: The resolved options.
        notes: Remarks about the build, for people.
        facts: Numbers about the build (a condition number, a rank) that are shown and not kept in the file.
    """

    network: AnyNetwork
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Option:
    """One option of a construction.

    Attributes:
        name: Its name, for `--option NAME=VALUE` and for keyword arguments.
        type: The type of its values.
        default: The value where the user gives none.
        help: Its meaning.
        choices: The allowed values; None allows any of the type.
        optional: Whether None is a value too.
    """

    name: str
    type: type
    default: Any
    help: str
    choices: tuple[Any, ...] | None = None
    optional: bool = False

    def parse(self, value: Any) -> Any:
        """Convert a value to this option's type.

        Args:
            value: A value of the type, or its text from the command line.

        Returns:
            The value.

        Raises:
            OptionError: The value is not of the type, or not allowed.
        """
        if value is None or (self.optional and value == "none"):
            if self.optional:
                return None
            raise OptionError(f"option {self.name} needs a value: {self.help}")
        try:
            parsed = READERS.get(self.type, self.type)(value)
        except (TypeError, ValueError, OverflowError):
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


def _whole(value: Any) -> int:
    """A whole number; nothing is truncated, and no boolean is accepted."""
    whole = int(value)
    if isinstance(value, bool) or not (isinstance(value, str) or whole == value):
        raise ValueError(value)
    return whole


READERS: dict[type, Callable[[Any], Any]] = {bool: _boolean, int: _whole}


@dataclass(frozen=True)
class Listing:
    """The public description of a construction.

    Attributes:
        summary: One line.
        paper: The theorem.
        tasks: The tasks that it builds.
        options: Name -> default and meaning.
        description: A paragraph, with its use.
    """

    summary: str
    paper: str
    tasks: tuple[str, ...]
    options: dict[str, str]
    description: str = ""


# (dataset, *, seed, progress, **options) -> Construction; with `texts`: (script, vocabulary, unknown, **options)
Builder = Callable[..., Any]
B = TypeVar("B", bound=Builder)
Plan = Callable[[TokenTable, int, int, Mapping[str, Any]], int]  # tokenization, rows, classes, options -> parameters


def _exact_kernels() -> tuple[Any, ...]:
    if not has_numba():
        return ()
    from byheart.exact.limbs import execute

    return (execute,)


@dataclass(frozen=True)
class Recipe:
    """A registered construction.

    Attributes:
        name: Its name.
        summary: One line that helps a user to choose.
        ref: The theorem.
        tasks: The tasks that it builds.
        options: Its options.
        builder: The function that builds it.
        assumptions: About the data; where one fails, building raises an AssumptionError.
        description: A paragraph, with its use.
        formula: The name of the upper bound in `byheart.theory` that predicts its size, or an empty text.
        order: Its order in tables: the rows of KS25's Table 1 first.
        distributions: Whether targets may be distributions; documents are then its data.
        texts: Whether it is built from whole texts, as a recital, and not from rows, as a network.
        floats: Whether float types hold all its numbers, so that it can be exported.
        plan: Returns how many parameters it will have, before anything is built; None where that is unknown.
        kernels: Returns the functions that a build compiles on first use.
    """

    name: str
    summary: str
    ref: Ref
    tasks: tuple[Task, ...]
    options: tuple[Option, ...]
    builder: Builder
    assumptions: tuple[str, ...] = ()
    description: str = ""
    formula: str = ""
    order: int = 1000
    distributions: bool = False
    texts: bool = False
    floats: bool = False
    plan: Plan | None = None
    kernels: Callable[[], tuple[Any, ...]] = _exact_kernels

    @property
    def listing(self) -> Listing:
        """The public description."""
        options = {option.name: f"{option.default}: {option.help}" for option in self.options}
        return Listing(self.summary, str(self.ref), tuple(task.value for task in self.tasks), options, self.description)

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Fill in the defaults of options.

        Args:
            given: The user's options, as values or texts.

        Returns:
            Every option of the construction.

        Raises:
            OptionError: An option is unknown; the message lists the known ones.
        """
        known = {option.name: option for option in self.options}
        for name in given:
            if name not in known:
                raise OptionError(f"{self.name} has no option {name!r}; it has: {', '.join(known) or 'none'}")
        return {name: option.parse(given[name]) if name in given else option.default for name, option in known.items()}

    def planning(self, given: Mapping[str, Any]) -> Planning | None:
        """Return how many parameters are planned for rows of symbols, by which `--tokens auto` chooses.

        Args:
            given: The user's options.

        Returns:
            A function of tokenization, rows and classes; None where the size is not known beforehand.

        >>> from byheart.build import recipe
        >>> plan = recipe("native").planning({})
        >>> plan(TokenTable("characters", 36, 8, 144), 40_000, 6), plan(TokenTable("words", 8000, 2, 56_000), 40_000, 6)
        (27022, 26224)
        """
        if (plan := self.plan) is None:
            return None
        chosen = {one.name: one.parse(given[one.name]) if one.name in given else one.default for one in self.options}
        return lambda table, rows, classes: plan(table, rows, classes, chosen)

    @property
    def takes_texts(self) -> OptionError:
        """The message for a user who has rows for it."""
        return OptionError(
            f"{self.name} is built from whole texts, not from rows with labels: `byheart memorize DOCS --construction "
            f"{self.name}`, or byheart.memorize_recital(texts)"
        )

    def require(self) -> None:
        """Raise a MissingLibraryError where building needs numba and numba is missing."""
        require_compiled(self.kernels())

    def build(self, dataset: Dataset, *, seed: int, progress: Progress, options: Mapping[str, Any]) -> Construction:
        """Build a network for a data set.

        Args:
            dataset: The rows.
            seed: The seed of every random choice, from 0 to 2^64 - 1.
            progress: Where to show progress.
            options: The user's options.

        Returns:
            The network with its options and notes.

        Raises:
            OptionError: The construction does not take such data, options or seed.
            BuildError: No network was found.
            MissingLibraryError: Building needs numba, which is not installed.
        """
        if self.texts:
            raise self.takes_texts
        if dataset.encoder.task not in self.tasks:
            raise OptionError(
                f"{self.name} does not build task {dataset.encoder.task}; it builds {', '.join(self.tasks)}"
            )
        if type(seed) is not int or not 0 <= seed < 1 << 64:
            raise OptionError(f"seed={seed!r} is not a whole number from 0 to 2^64 - 1")
        if dataset.target is Target.DISTRIBUTION and not self.distributions:
            able = ", ".join(name for name, other in recipes().items() if other.distributions)
            raise OptionError(f"{self.name} stores one label per context, not distributions; those are for {able}")
        self.require()
        with timed(f"building {self.name}"):
            built: Construction = self.builder(dataset, seed=seed, progress=progress, **self.resolve(options))
        return built


_RECIPES: dict[str, Recipe] = {}


def register(
    name: str,
    *,
    summary: str,
    ref: Ref,
    tasks: tuple[Task, ...],
    options: tuple[Option, ...] = (),
    assumptions: tuple[str, ...] = (),
    description: str = "",
    formula: str = "",
    order: int = 1000,
    guarantee: GuaranteeOf | None = None,
    distributions: bool = False,
    texts: bool = False,
    floats: bool = False,
    plan: Plan | None = None,
    kernels: Callable[[], tuple[Any, ...]] = _exact_kernels,
) -> Callable[[B], B]:
    """Register the decorated builder as a construction.

    Tables, pages, predictions, the report and the conformance suite read this registry.

    Args:
        name: Its name.
        summary: One line that helps a user to choose.
        ref: The theorem.
        tasks: The tasks that it builds.
        options: Its options.
        assumptions: About the data.
        description: A paragraph, with its use; by default the summary.
        formula: The name of the upper bound in `byheart.theory` that predicts its size.
        order: Its order in tables.
        guarantee: Its guarantee from data and options; those of the papers are in `byheart.theory.guarantees`.
        distributions: Whether targets may be distributions.
        texts: Whether it is built from whole texts.
        floats: Whether float types hold all its numbers.
        plan: Returns how many parameters it will have.
        kernels: Returns the functions that a build compiles on first use.

    Returns:
        The decorator, which returns the builder unchanged.

    Raises:
        OptionError: The name is taken.
    """

    def add(builder: B) -> B:
        if name in _RECIPES:
            raise OptionError(f"construction {name!r} is registered twice")
        if guarantee is not None:
            guarantees(name)(guarantee)
        _RECIPES[name] = Recipe(
            name,
            summary,
            ref,
            tasks,
            options,
            builder,
            assumptions,
            description or summary,
            formula,
            order,
            distributions,
            texts,
            floats,
            plan,
            kernels,
        )
        return builder

    return add


# Constructions of packages above this one register themselves when they are imported, so they are listed by name.
_ELSEWHERE = ("byheart.checkpoints.windows.construction",)


def recipes(texts: bool | None = False) -> dict[str, Recipe]:
    """Import and list all constructions.

    Args:
        texts: False for those from rows, True for those from whole texts, None for both.

    Returns:
        Name -> recipe, in the order of tables.
    """
    package = importlib.import_module(__package__)
    own = [f"{__package__}.{one.name}" for one in pkgutil.iter_modules(package.__path__) if one.name[0] != "_"]
    for module in (*own, *_ELSEWHERE):
        importlib.import_module(module)
    ordered = sorted(_RECIPES.items(), key=lambda item: (item[1].order, item[0]))
    return {name: found for name, found in ordered if texts in (None, found.texts)}


def recipe(name: str) -> Recipe:
    """Find one construction; other builders stay unloaded where the name determines its module.

    Args:
        name: Its name.

    Returns:
        Its recipe.

    Raises:
        OptionError: The name is unknown; the message lists the known ones.
    """
    if name not in _RECIPES:
        _load_family(name)
    if name not in _RECIPES:
        recipes()
    if name not in _RECIPES:
        raise OptionError(f"unknown construction {name!r}; known: {', '.join(sorted(_RECIPES))}")
    return _RECIPES[name]


def _load_family(name: str) -> None:
    """Import the module that is named like the construction's family (`ks25-sets` is in `ks25`), if there is one."""
    family = name.split("-")[0]
    if not family.isidentifier() or family.startswith("_"):
        return
    for module in (f"{__package__}.{family}", f"{__package__}.table1.{family}"):
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module)
            return
