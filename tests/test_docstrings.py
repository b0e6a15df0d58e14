"""Every name that a package exports explains its arguments and its fields."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from enum import Enum
from typing import Any

import byheart

# What contributors call, as CONTRIBUTING.md describes.
EXTENDING = (
    "byheart.data.read.records.reader",
    "byheart.theory.guarantees.guarantees",
    "byheart.paper.implements",
    "byheart.paper.cite",
)


def exported() -> Iterator[tuple[str, object]]:
    """Functions and classes in `__all__` of a package, by the module that defines them."""
    found = pkgutil.walk_packages(byheart.__path__, "byheart.")
    names = ["byheart", *(module.name for module in found if module.ispkg)]
    for package in map(importlib.import_module, names):
        for name in getattr(package, "__all__", ()):
            item = getattr(package, name)
            if inspect.isfunction(item) or inspect.isclass(item):
                yield f"{item.__module__}.{item.__qualname__}", item
    for name in EXTENDING:
        module, _, function = name.rpartition(".")
        yield name, getattr(importlib.import_module(module), function)


def parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


def methods(kind: type) -> Iterator[tuple[str, object]]:
    fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    for name, found in vars(kind).items():
        function = getattr(found, "__func__", found)
        if not name.startswith("_") and name not in fields and inspect.isfunction(function):
            yield f"{kind.__module__}.{kind.__qualname__}.{name}", function


def test_exported_names_explain_their_arguments():
    """A function of two or more arguments has `Args:`, a dataclass `Attributes:`; everything has a docstring."""
    found = dict(exported())
    assert len(found) > 100
    silent = []
    for name, item in found.items():
        functions = list(methods(item)) if inspect.isclass(item) else [(name, item)]
        silent += [
            each
            for each, function in functions
            if not (text := inspect.getdoc(function)) or (len(parameters(function)) > 1 and "Args:" not in text)
        ]
        if inspect.isclass(item) and not issubclass(item, Enum | BaseException):
            text = inspect.getdoc(item) or ""
            fields = dataclasses.fields(item) if dataclasses.is_dataclass(item) else ()
            silent += [f"{name}: {field.name}" for field in fields if f"{field.name}:" not in text]
    assert silent == []
