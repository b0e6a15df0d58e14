"""The guarantees of all constructions, as numbers computed before anything is built.

A guarantee is a function of the data and the construction's options alone: N, n, d, C, the task, how long the numbers
are and how far apart. Builders state it, and `verify` derives it again from the given data, so no file can
change it. Where there is no such function, or a file has options that it never has, the guarantee is open, not kept.

    >>> from byheart.data.dataset.dataset import load
    >>> claim = guarantee("nilsson65", load(["ab", "ba", "bb"], [0, 1, 1]), {})
    >>> claim.bounds["width"]
    2
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

from byheart.data.dataset.dataset import Dataset
from byheart.errors import OptionError
from byheart.ir.size import Claim

GuaranteeOf = Callable[[Dataset, Mapping[str, Any]], Claim]

_GUARANTEES: dict[str, GuaranteeOf] = {}


def guarantees(construction: str) -> Callable[[GuaranteeOf], GuaranteeOf]:
    """Register the decorated function as the guarantee of `construction`: (data set, resolved options) -> claim."""

    def add(function: GuaranteeOf) -> GuaranteeOf:
        _GUARANTEES[construction] = function
        return function

    return add


def is_guaranteed(construction: str) -> bool:
    """Whether a loaded module computes the construction's guarantee."""
    return construction in _GUARANTEES


def guarantee(construction: str, dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    """Return the construction's guarantee for this data; an OptionError if it is unknown or excludes such options."""
    if construction not in _GUARANTEES:
        raise OptionError(f"the guarantee of the construction {construction!r} is unknown here")
    return _GUARANTEES[construction](dataset, options)


def choice(options: Mapping[str, Any], name: str, *values: Any) -> Any:
    """The option's value, which must be one of these; the first where it is not given."""
    value = options.get(name, values[0])
    if not any(type(value) is type(known) and value == known for known in values):
        raise OptionError(f"option {name}={value!r} is not one of {', '.join(map(str, values))}")
    return value


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
