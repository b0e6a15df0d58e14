"""Compiled code is made on first use and then kept on disk: a user who waits for it sees why."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from byheart.progress import Progress

WORDS = "building; the first time, code is compiled (some seconds)"


def first_use(construction: str, progress: Progress) -> AbstractContextManager[Any]:
    """A stage around the first building, which takes longer than all others; nothing once the code is there."""
    kernels: list[Any] = []
    if construction == "compact":
        from byheart.build.fold._trap_beam import trap_beam
        from byheart.exact.reflections import reflect

        kernels = [trap_beam(phases=False, long=False), reflect]
    else:
        from byheart.exact.limbs import execute

        kernels = [execute]
    return nullcontext() if all(map(_is_kept, kernels)) else progress.stage(WORDS)


def _is_kept(kernel: Any) -> bool:
    """Whether a file of numba's index is there; True where numba keeps nothing, because then every run waits."""
    stats = getattr(kernel, "stats", None)
    folder = getattr(stats, "cache_path", None)
    return folder is None or any(Path(folder).glob(f"*.{kernel.__name__}-*.nbi"))
