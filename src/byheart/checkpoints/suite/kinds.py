"""The kinds of fixtures: a name, one line of help, and the function that writes the folder.

A kind is registered where it is written; `kinds` imports the modules on first use, so listing the command line's help
loads none of them.

    @register_kind("lora", "a base checkpoint and PEFT adapters with exact answers")
    def write_lora(architecture, folder, *, dtype="bfloat16", progress=SILENT, **options): ...
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from byheart.checkpoints.hosts._base import host
from byheart.errors import OptionError

Writer = Callable[..., Any]

MODULES = (
    "byheart.checkpoints.suite.features.recital",
    "byheart.checkpoints.suite.features.lora",
    "byheart.checkpoints.suite.features.draft",
    "byheart.checkpoints.suite.features.chat",
    "byheart.checkpoints.suite.features.ranked",
    "byheart.checkpoints.suite.features.recall",
    "byheart.checkpoints.suite.features.numerics",
    "byheart.checkpoints.suite.features.mtp",
)


@dataclass(frozen=True)
class FixtureKind:
    """A kind; `write(architecture, folder, *, dtype, progress, **options)` returns a value with `to_json`."""

    name: str
    summary: str
    write: Writer

    @property
    def options(self) -> frozenset[str]:
        """The writer's keywords, without the fields of the shape."""
        return frozenset(inspect.signature(self.write).parameters)


_KINDS: dict[str, FixtureKind] = {}


def register_kind(name: str, summary: str, *, decoders: bool = True) -> Callable[[Writer], Writer]:
    """Register the decorated writer as kind `name`; where it is about `decoders`, it refuses other architectures."""

    def add(writer: Writer) -> Writer:
        @functools.wraps(writer)
        def checked(architecture: str, *args: Any, **options: Any) -> Any:
            if decoders and host(architecture).task != "causal":
                raise OptionError(f"--kind {name} is about decoders; {architecture} has --kind recital")
            return writer(architecture, *args, **options)

        _KINDS[name] = FixtureKind(name, summary, checked)
        return checked

    return add


def kinds() -> dict[str, FixtureKind]:
    """Return name -> kind, for every module of MODULES."""
    for module in MODULES:
        importlib.import_module(module)
    return dict(_KINDS)
