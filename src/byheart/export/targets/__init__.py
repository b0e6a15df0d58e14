"""Where a memory can be exported to, one target per file; importing this package registers them all."""

import importlib
import pkgutil

from byheart.export.targets._base import Writer, target, targets, writer_of

for _module in pkgutil.iter_modules(__path__):
    if not _module.name.startswith("_"):
        importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["Writer", "target", "targets", "writer_of"]
