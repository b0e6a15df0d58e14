"""The figures of the papers as experiments, one paper per file; importing this package registers them all."""

import importlib
import pkgutil

from byheart.lab.presets._base import LADDER, PRESETS, SCALES, TUNED, Preset, experiment_of, preset

for _module in pkgutil.iter_modules(__path__):
    if not _module.name.startswith("_"):
        importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["LADDER", "PRESETS", "SCALES", "TUNED", "Preset", "experiment_of", "preset"]
