"""What every construction promises, as numbers computed before anything is built.

A promise is a function of the data and the construction's options alone: N, n, d, C, the task, how long the numbers are
and how far apart. Builders state it, and `verify` derives it again from the data that it is handed, so no file can
change it. A construction without such a function promises nothing, and says so.

    >>> from byheart.data.dataset.dataset import load
    >>> claim = promise("nilsson65", load(["ab", "ba", "bb"], [0, 1, 1]), {})
    >>> claim.bounds["width"], promise("no such construction", load(["a"], [0]), {})
    (2, None)
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

from byheart.data.dataset.dataset import Dataset
from byheart.errors import OptionError
from byheart.ir.size import Claim

PromiseOf = Callable[[Dataset, Mapping[str, Any]], Claim]

_PROMISES: dict[str, PromiseOf] = {}


def promises(construction: str) -> Callable[[PromiseOf], PromiseOf]:
    """Registers the decorated function as what `construction` promises: (data set, resolved options) -> claim."""

    def add(function: PromiseOf) -> PromiseOf:
        _PROMISES[construction] = function
        return function

    return add


def promise(construction: str, dataset: Dataset, options: Mapping[str, Any]) -> Claim | None:
    """What the construction promises for this data; None where it promises nothing or has no such options."""
    if construction not in _PROMISES:
        return None
    try:
        return _PROMISES[construction](dataset, options)
    except OptionError:  # options that only a file can have
        return None


def choice(options: Mapping[str, Any], name: str, *values: Any) -> Any:
    """The option's value, which must be one of these; the first where it is not given."""
    value = options.get(name, values[0])
    if not any(type(value) is type(known) and value == known for known in values):
        raise OptionError(f"option {name}={value!r} is not one of {', '.join(map(str, values))}")
    return value


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
