"""The builders: one folder per theorem or family. Importing this package registers every construction.

>>> "compact" in constructions()
True
"""

import importlib
import pkgutil

from byheart.build._base import (
    NOT_ASSUMED,
    SYMBOLS,
    Construction,
    Listing,
    Option,
    Recipe,
    recipe,
    recipes,
    register,
)

for _module in pkgutil.iter_modules(__path__):
    if not _module.name.startswith("_"):
        importlib.import_module(f"{__name__}.{_module.name}")


def constructions() -> dict[str, Listing]:
    """Name -> short description, paper label, tasks and options of every construction.

    >>> constructions()["ks25"].paper
    'KS25, Theorem B.1'
    """
    return {name: recipe.listing for name, recipe in sorted(recipes(texts=None).items())}


__all__ = [
    "NOT_ASSUMED",
    "SYMBOLS",
    "Construction",
    "Listing",
    "Option",
    "Recipe",
    "constructions",
    "recipe",
    "recipes",
    "register",
]
