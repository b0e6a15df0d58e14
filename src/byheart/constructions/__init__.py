"""One theorem per file; importing this package registers them all."""

import importlib
import pkgutil
import sys
import types

from byheart.constructions._base import (
    NOT_ASSUMED,
    SYMBOLS,
    Construction,
    Listing,
    Neighbour,
    Option,
    Recipe,
    neighbours,
    recipe,
    recipes,
    register,
)

for _module in pkgutil.iter_modules(__path__):
    if not _module.name.startswith("_"):
        importlib.import_module(f"{__name__}.{_module.name}")

__all__ = [
    "NOT_ASSUMED",
    "SYMBOLS",
    "Construction",
    "Listing",
    "Neighbour",
    "Option",
    "Recipe",
    "neighbours",
    "recipe",
    "recipes",
    "register",
]


class _Room(types.ModuleType):
    """`byheart.constructions` is this package and, called, the list of what is registered."""

    def __call__(self) -> dict[str, Listing]:
        """Name -> short description, paper label, tasks and options of every construction."""
        return {name: r.listing for name, r in sorted(recipes().items())}


sys.modules[__name__].__class__ = _Room
