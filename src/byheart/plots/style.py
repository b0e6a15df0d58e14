"""The style of byheart's pictures: colours that colour-blind readers can distinguish, reproducible files.

Figures are built without pyplot, so nothing global changes and no window system is needed.

    >>> figure = new_figure(columns=2)
    >>> len(figure.axes)
    2
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byheart.errors import FileFormatError, MissingExtraError, OptionError
from byheart.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette without its yellow, which is too light for lines; neighbours differ in brightness too.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
SUFFIXES = (".png", ".svg", ".pdf")

STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "font.family": ["DejaVu Sans"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": "white",
    "savefig.dpi": 160,
    "svg.hashsalt": "byheart",
    "svg.fonttype": "none",
}


@contextmanager
def styled() -> Iterator[None]:
    """Apply byheart's style to everything drawn or saved inside."""
    try:
        from matplotlib import rc_context
    except ImportError:
        raise MissingExtraError("drawing a plot", "plot") from None
    with rc_context(STYLE):
        yield


def new_figure(columns: int = 1, width: float = 6.4, height: float = 4.4) -> Figure:
    """An empty figure with `columns` panels side by side, each `width` by `height` inches."""
    with styled():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width * columns, height), layout="constrained")
        figure.subplots(1, columns)
        return figure


def label_axes(axes: Axes, title: str, x: str, y: str, *, log: bool = True) -> None:
    """Title and names of a panel; both axes logarithmic unless stated otherwise."""
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if log:
        axes.set_xscale("log")
        axes.set_yscale("log")


def colour(index: int) -> str:
    return PALETTE[index % len(PALETTE)]


def marker(index: int) -> str:
    """When colours come round again, markers do not: no two of sixty-four lines look the same."""
    return MARKERS[(index + index // len(PALETTE)) % len(MARKERS)]


def check_target(path: str | Path) -> Path:
    """Return the path, or raise an OptionError before anything is drawn."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise OptionError(f"cannot write a plot to {str(target)!r}; end the name in {', '.join(SUFFIXES)}")
    if not target.parent.is_dir():
        raise OptionError(f"cannot write the plot {str(target)!r}: there is no folder {str(target.parent)!r}")
    return target


def save(figure: Figure, path: str | Path) -> Path:
    """Write the figure as PNG, SVG or PDF, by the name's ending; equal figures give equal bytes."""
    target = check_target(path)
    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    drawn = BytesIO()
    with styled():
        figure.savefig(drawn, format=target.suffix.lower()[1:], metadata=dates.get(target.suffix.lower()))
    try:
        write_atomically(target, drawn.getvalue())
    except FileFormatError as problem:
        raise OptionError(f"the plot is drawn, but {problem}") from None
    return target
