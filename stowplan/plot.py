"""Pictures of placements: time to the right, address upwards, one rectangle per block.

::

    address
       |   +-----------+ +----+        a rectangle's width: the block's lifetime on the logical clock
       |   |           | |    |        its height: its size
       |   +---+-------+-+----+
       |   |   |              |        wrapped blocks (freed in the following step) touch the right edge and come in again
       +---+---+--------------+--->    at the left one, at the same address
                          clock

Matplotlib is imported when a picture is made, and drawn without a display.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .packing import Placement, Problem

__all__ = ["draw_placement", "require_matplotlib", "save_placement"]

_INK = "#1b2a34"
_GRID = "#d5dde2"
_BOUND = "#c8402f"
# From small to large, on a logarithmic scale: pale sand to deep sea. Neighbours in size stay neighbours in colour.
_COLOURS = ["#e9dfb8", "#c9d8a2", "#8fc7a9", "#4aa8b0", "#2c7fa6", "#27548a", "#23305e"]


def require_matplotlib() -> None:
    """Raise `MissingDependencyError` unless pictures can be drawn. Imports nothing."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingDependencyError("matplotlib is not installed; expected for pictures: pip install 'stowplan[plot]'")


def draw_placement(axes: Axes, problem: Problem, placement: Placement) -> None:
    """Draw the blocks of a placement, with the sum of the live sizes and the lower bound on top.

    Parameters
    ----------
    axes
        Where to draw. Limits, labels and legend are set.
    problem, placement
        The blocks and their offsets. A block with gaps is drawn piece by piece.
    """
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import LinearSegmentedColormap, LogNorm
    from matplotlib.ticker import FuncFormatter

    block, time, address = _rectangles(problem, placement)
    unit, unit_name = _unit(placement.peak)
    left, right = time.T
    bottom, top = (address / unit).T
    corners = np.stack(
        [np.stack([left, left, right, right], axis=1), np.stack([bottom, top, top, bottom], axis=1)], axis=2
    )
    size = np.maximum(problem.size[block], 1)
    largest = max(int(size.max(initial=1)), 2)
    rectangles = PolyCollection(
        list(corners),
        array=size.astype(np.float64),
        norm=LogNorm(max(largest / 1e6, 1.0), largest),
        cmap=LinearSegmentedColormap.from_list("cargo", _COLOURS),
        # Thousands of outlines would drown a picture of small blocks: the more blocks, the finer the line.
        edgecolors="white",
        linewidths=float(np.clip(40 / np.sqrt(len(block) + 1), 0.12, 0.8)),
    )
    axes.add_collection(rectangles)

    span = (int(problem.start.min()), int(problem.end.max())) if len(problem) else (0, 1)
    clock, live = _live_bytes(problem)
    axes.step(clock, live / unit, where="post", color=_INK, linewidth=1.1, label="live bytes")
    axes.axhline(
        placement.lower_bound / unit, color=_BOUND, linewidth=1.1, linestyle=(0, (6, 3)), label="lower bound"
    )
    axes.set_xlim(*span)
    axes.set_ylim(0, max(placement.peak / unit, 1e-9) * 1.04)
    axes.set_xlabel("logical clock (allocations and frees)", color=_INK)
    axes.set_ylabel(f"address in the arena ({unit_name})", color=_INK)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_axisbelow(True)
    axes.grid(color=_GRID, linewidth=0.6)
    axes.tick_params(colors=_INK, length=3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(loc="upper right", frameon=True, framealpha=0.9, edgecolor="none", fontsize=9)
    bar = axes.figure.colorbar(rectangles, ax=axes, pad=0.012, aspect=40)
    bar.set_label("block size", color=_INK)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: human_bytes(value)))
    bar.outline.set_visible(False)  # type: ignore[operator]


def save_placement(
    path: str | os.PathLike[str], problem: Problem, placement: Placement, *, title: str = "Placement"
) -> None:
    """Write the picture of a placement as PNG, atomically.

    Parameters
    ----------
    path
        The file; replaced if it exists. On an error nothing is written.
    problem, placement
        As for `draw_placement`.
    title
        First line of the title. The figures stand below it.

    Raises
    ------
    MissingDependencyError
        Matplotlib is not installed.
    OSError
        The file cannot be written.
    """
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6.2), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    draw_placement(axes, problem, placement)
    axes.set_title(title, loc="left", color=_INK, fontsize=13, fontweight="bold", pad=24)
    axes.text(0, 1.02, _figures(problem, placement), transform=axes.transAxes, color=_INK, fontsize=10)
    target = Path(path)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
        try:
            figure.savefig(file, format="png")
            file.flush()
            Path(file.name).chmod(0o644)  # a temporary file is its owner's alone
            Path(file.name).replace(target)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def human_bytes(count: float) -> str:
    """Bytes as people read them: ``12.3 MiB``."""
    unit, name = _unit(count)
    value = count / unit
    return f"{value:,.0f} {name}" if name == "B" or value >= 99.95 else f"{value:.1f} {name}"


def _unit(count: float) -> tuple[int, str]:
    for power, name in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power:
            return 1024**power, name
    return 1, "B"


def _figures(problem: Problem, placement: Placement) -> str:
    fragmentation = f"fragmentation {placement.gap:.2%}" + (", optimal" if placement.optimal else "")
    return (
        f"{len(problem):,} blocks   ·   arena {human_bytes(placement.peak)}   ·   "
        f"lower bound {human_bytes(placement.lower_bound)}   ·   {fragmentation}   ·   solver {placement.solver}"
    )


def _rectangles(problem: Problem, placement: Placement) -> tuple[Any, Any, Any]:
    """Pieces as rectangles: block (k,), time (k, 2) in ticks, address (k, 2) in bytes."""
    pieces = problem.pieces()
    block = np.repeat(np.arange(len(problem)), np.diff(pieces.first))
    offset = placement.offsets[block]
    return (
        block,
        np.stack([pieces.start, pieces.end], axis=1),
        np.stack([offset + pieces.lower, offset + pieces.upper], axis=1),
    )


def _live_bytes(problem: Problem) -> tuple[Any, Any]:
    """Sum of the live sizes as a step function: from clock[i] on it is live[i]."""
    pieces = problem.pieces()
    height = pieces.upper - pieces.lower
    clock, position = np.unique(np.concatenate([pieces.start, pieces.end]), return_inverse=True)
    change = np.zeros(len(clock), dtype=np.int64)
    np.add.at(change, position, np.concatenate([height, -height]))
    return clock, np.cumsum(change)
