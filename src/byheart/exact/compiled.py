"""The one numba decorator of building and exact arithmetic.

numba compiles the searches that compute weights of `compact` and `native`. It is two thirds of an installation, and
exact evaluation is plain Python without it (`engine`). So it is the extra `build`. Without it a compiled function
refuses to run, and everything that only lists or describes constructions works.

>>> has_numba() == (importlib.util.find_spec("numba") is not None)
True
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import Any

from byheart.errors import MissingLibraryError

_MISSING = (
    "computing these weights needs numba, which is not installed: pip install 'byheart[build]' "
    "(loading, predicting, verifying and lookups work without it)"
)


@cache
def has_numba() -> bool:
    """Return whether numba is installed."""
    try:
        return importlib.util.find_spec("numba") is not None
    except ValueError:  # a module that is None in sys.modules
        return False


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function on first use; threads run it side by side because it never holds the interpreter lock."""
    if not has_numba():
        return _refusing(function)
    import numba

    return numba.njit(cache=True, nogil=True)(function)


def require_compiled(functions: Iterable[Any]) -> None:
    """Raise a MissingLibraryError if one of the functions cannot be compiled: before anything long begins."""
    if any(getattr(function, "refuses", False) for function in functions):
        raise MissingLibraryError(_MISSING)


def _refusing(function: Callable[..., Any]) -> Any:
    @wraps(function)
    def refuse(*arguments: Any, **keywords: Any) -> Any:
        raise MissingLibraryError(_MISSING)

    refuse.refuses = True  # type: ignore[attr-defined]
    return refuse
