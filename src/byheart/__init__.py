"""byheart compiles a data set into a small Transformer that stores it exactly, and proves it.

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
    from byheart import checkpoints as checkpoints
    from byheart import theory as theory
    from byheart.api import load as load
    from byheart.api import memorize as memorize
    from byheart.build import constructions as constructions
    from byheart.certify import Certificate as Certificate
    from byheart.certify import Verdict as Verdict
    from byheart.checkpoints.recital import RecitalMemory as RecitalMemory
    from byheart.checkpoints.recital import memorize_recital as memorize_recital
    from byheart.checkpoints.windows.controls import Controls as Controls
    from byheart.data.dataset.targets import Distribution as Distribution
    from byheart.data.read.table import Table as Table
    from byheart.data.read.table import read as read
    from byheart.data.tokens.tokenizer import Tokenizer as Tokenizer
    from byheart.data.values import UNKNOWN as UNKNOWN
    from byheart.memory import Memory as Memory
    from byheart.memory.approximate import approximate as approximate
    from byheart.memory.compare.comparison import compare as compare
    from byheart.memory.contextual import contextual_mapping as contextual_mapping
    from byheart.memory.deploy import Deployment as Deployment
    from byheart.memory.deploy import deploy as deploy
    from byheart.memory.documents import memorize_documents as memorize_documents
    from byheart.memory.text import memorize_text as memorize_text
    from byheart.report import explain as explain
    from byheart.theory import lower_bound as lower_bound

_HOMES = {
    "memorize": "byheart.api",
    "load": "byheart.api",
    "Certificate": "byheart.certify",
    "Verdict": "byheart.certify",
    "Deployment": "byheart.memory.deploy",
    "deploy": "byheart.memory.deploy",
    "memorize_documents": "byheart.memory.documents",
    "memorize_text": "byheart.memory.text",
    "memorize_recital": "byheart.checkpoints.recital",
    "RecitalMemory": "byheart.checkpoints.recital",
    "contextual_mapping": "byheart.memory.contextual",
    "Controls": "byheart.checkpoints.windows.controls",
    "Distribution": "byheart.data.dataset.targets",
    "approximate": "byheart.memory.approximate",
    "compare": "byheart.memory.compare.comparison",
    "Memory": "byheart.memory",
    "constructions": "byheart.build",
    "explain": "byheart.report",
    "lower_bound": "byheart.theory",
    "read": "byheart.data.read.table",
    "Table": "byheart.data.read.table",
    "Tokenizer": "byheart.data.tokens.tokenizer",
    "UNKNOWN": "byheart.data.values",
}
_PACKAGES = ("checkpoints", "theory")

__all__ = [
    "UNKNOWN",
    "ByheartError",
    "Certificate",
    "Controls",
    "Deployment",
    "Distribution",
    "Memory",
    "RecitalMemory",
    "Table",
    "Tokenizer",
    "Verdict",
    "approximate",
    "checkpoints",
    "compare",
    "constructions",
    "contextual_mapping",
    "deploy",
    "explain",
    "load",
    "lower_bound",
    "memorize",
    "memorize_documents",
    "memorize_recital",
    "memorize_text",
    "read",
    "theory",
]


def __getattr__(name: str) -> Any:
    """Load the public names on first use, so that `import byheart` is fast."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _PACKAGES:
        return importlib.import_module(f"byheart.{name}")
    raise AttributeError(f"module 'byheart' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
