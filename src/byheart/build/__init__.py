"""The builders: one folder per theorem or family. A construction is imported and registered when it is first used.

>>> "compact" in constructions()
True
"""

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


def constructions() -> dict[str, Listing]:
    """List every construction.

    Returns:
        Name -> short description, paper label, tasks and options.

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
