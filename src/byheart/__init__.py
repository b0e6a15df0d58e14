"""byheart compiles a data set into a small Transformer that knows it by heart, exactly, and proves it.

>>> import byheart
>>> memory = byheart.memorize(["sun", "moon", "star"], ["day", "night", "night"], construction="ks25", progress=False)
>>> memory.predict(["moon"]), memory.certificate.verdict.value
(['night'], 'proved')
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from byheart.errors import ByheartError
from byheart.version import __version__ as __version__

if TYPE_CHECKING:
    from byheart import bounds as bounds
    from byheart import constructions as constructions
    from byheart.bounds import lower_bound as lower_bound
    from byheart.compiler import Memory as Memory
    from byheart.compiler import load as load
    from byheart.compiler import memorize as memorize
    from byheart.compiler.text import memorize_text as memorize_text
    from byheart.data.readers import Table as Table
    from byheart.data.readers import read as read
    from byheart.data.unknown import UNKNOWN as UNKNOWN

_HOMES = {
    "memorize": "byheart.compiler",
    "load": "byheart.compiler",
    "memorize_text": "byheart.compiler.text",
    "Memory": "byheart.compiler",
    "lower_bound": "byheart.bounds",
    "read": "byheart.data.readers",
    "Table": "byheart.data.readers",
    "UNKNOWN": "byheart.data.unknown",
}
_ROOMS = ("bounds", "constructions")

__all__ = [
    "UNKNOWN",
    "ByheartError",
    "Memory",
    "Table",
    "bounds",
    "constructions",
    "load",
    "lower_bound",
    "memorize",
    "memorize_text",
    "read",
]


def __getattr__(name: str) -> Any:
    """Loads the public names when they are first used, so that `import byheart` is quick."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"byheart.{name}")
    raise AttributeError(f"module 'byheart' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, *_ROOMS])
