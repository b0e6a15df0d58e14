"""The one numba decorator of the compiled solver: cached on disk, free of the interpreter lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compiles `function` on first use; threads run it side by side because it never holds the interpreter lock."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))
