"""What all pictures share: colours, the look of axes and titles, and writing the file."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from ...errors import MissingDependencyError
from ...files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")

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


def saver(
    draw: Callable[Concatenate[Figure, P], None], size: tuple[float, float]
) -> Callable[Concatenate[str | os.PathLike[str], P], None]:
    """Return a function that draws a picture and writes it to a file, atomically.

    It takes the file's path, and then what ``draw`` takes after the figure. The picture is an SVG if the path ends in
    ``.svg``, else a PNG. `MissingDependencyError` is raised where matplotlib is not installed, and OSError where the
    file cannot be written.

    Parameters
    ----------
    draw
        Draws into an empty figure.
    size
        Width and height in inches, at 130 pixels an inch.
    """

    def save(path: str | os.PathLike[str], /, *args: P.args, **kwargs: P.kwargs) -> None:
        require_matplotlib()
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=size, dpi=130, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure, *args, **kwargs)
        with atomic_write(path) as file:
            figure.savefig(file, format="svg" if os.fspath(path).lower().endswith(".svg") else "png")

    return save
