"""Pictures: every function that draws gives back a Figure, in one style, and changes nothing global."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

pytest.importorskip("matplotlib", reason="needs byheart[plot]")

import matplotlib
from matplotlib.figure import Figure

import byheart
import byheart.plots
from byheart.plots import style
from byheart.plots.bounds import bounds_figure, growth_figure, parameters_by_count, parameters_by_length
from byheart.plots.memory import size_figure, weights_figure
from byheart.theory import Problem


@pytest.fixture(scope="module")
def memory():
    return byheart.memorize(["cat", "act", "dog"], ["a", "b", "c"], construction="ks25", progress=False)


def test_every_drawing_function_returns_a_figure():
    """Public functions of the modules that draw: figures, or numbers that figures show; no bare axes."""
    found = []
    for module in pkgutil.iter_modules(byheart.plots.__path__, "byheart.plots."):
        loaded = importlib.import_module(module.name)
        for name, function in inspect.getmembers(loaded, inspect.isfunction):
            if name.startswith("_") or function.__module__ != module.name or module.name.endswith("style"):
                continue
            given = inspect.signature(function)
            assert "Axes" not in str(given), f"{name} draws on axes of others"
            found += [name] if given.return_annotation == "Figure" else []
    assert len(found) >= 9 and all(name.endswith("figure") or name.startswith("parameters") for name in found)


def test_one_style(memory):
    before = dict(matplotlib.rcParams)
    problem = Problem("next-token", N=1000, n=8, d=2)
    for figure in (
        size_figure(memory),
        weights_figure(memory),
        bounds_figure(problem),
        parameters_by_count(problem, {"built": [(100, 2000)]}),
        parameters_by_length(problem),
        growth_figure(problem, [100, 1000], {"built": [300, 900]}),
    ):
        assert isinstance(figure, Figure)
        for axes in figure.axes:
            assert axes.get_title(loc="left") and not axes.spines["top"].get_visible()
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("ending", style.SUFFIXES)
def test_files_do_not_vary(memory, ending, tmp_path):
    one, two = (style.save(weights_figure(memory), tmp_path / f"{k}{ending}").read_bytes() for k in range(2))
    assert one == two


def test_the_sizes_are_those_of_the_memory(memory):
    texts = {text.get_text() for text in size_figure(memory).axes[0].texts}
    assert {f"{memory.size.parameters:,}", f"{memory.size.max_bits:,}"} <= texts
