"""What all pictures share: colours, the look of axes and titles, and writing the file."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import MissingDependencyError
from ...files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, GRID, BOUND = "#1b2a34", "#dfe5e8", "#c8402f"
BLUES = ["#1f5f7a", "#2f7f97", "#27708a", "#4593a8"]
AMBERS = ["#d98e2b", "#e8ab55", "#dd9a3e", "#efbd74"]
DASHES = (0, (5, 2))


def require_matplotlib() -> None:
    """Raise `MissingDependencyError` unless pictures can be drawn. Imports nothing."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingDependencyError(
            "matplotlib is not installed; expected for pictures: pip install 'stowplan[plot]'"
        )


def style_axes(axes: Axes) -> None:
    """Give axes the grid, ticks and spines of all pictures."""
    axes.set_axisbelow(True)
    axes.grid(color=GRID, linewidth=0.6)
    axes.tick_params(colors=INK, length=3, labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def write_title(axes: Axes, title: str, figures: str, height: float) -> None:
    """Write the title above axes, and a line of figures below it, at a height in units of the axes."""
    axes.set_title(title, loc="left", color=INK, fontsize=14, fontweight="bold", pad=26)
    axes.text(0, height, figures, transform=axes.transAxes, color=INK, fontsize=10)


def save_figure(
    path: str | os.PathLike[str], size: tuple[float, float], draw: Callable[[Figure], None]
) -> None:
    """Draw a figure and write it, atomically.

    Parameters
    ----------
    path
        The file; replaced if it exists. SVG if it ends in ``.svg``, else PNG.
    size
        Width and height in inches, at 130 pixels an inch.
    draw
        Draws into the empty figure.

    Raises
    ------
    MissingDependencyError
        matplotlib is not installed.
    OSError
        The file cannot be written.
    """
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure)
    with atomic_write(path) as file:
        figure.savefig(file, format="svg" if os.fspath(path).lower().endswith(".svg") else "png")
