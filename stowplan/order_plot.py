r"""A picture of two orders of a step: the bytes alive at each operator, in the order recorded and in the one found.

::

    live bytes
       |      ____/\          recorded
       |  ___/      \_____
       |- - - - - - - - - -   lower bound: no order's peak is below it
       | _/\_/\_/\_/\_/\__    found
       +------------------>  operators, each at its own place in either order

Matplotlib is imported when a picture is made, and needs no display.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from .files import atomic_write
from .plot import require_matplotlib
from .units import byte_unit, human_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .scheduling import StepGraph
    from .scheduling.graph import IntArray
    from .scheduling.ordering import OrderSolution

__all__ = ["draw_orders", "save_orders"]

_INK, _GRID, _BOUND = "#1b2a34", "#dfe5e8", "#c8402f"
_RECORDED, _FOUND = "#d98e2b", "#1f5f7a"


def draw_orders(figure: Figure, graph: StepGraph, found: OrderSolution, *, title: str = "Order") -> None:
    """Draw the live bytes of both orders into an empty figure.

    Parameters
    ----------
    figure
        Gets one axes: operators to the right, bytes without the resident storages upwards.
    graph, found
        The step, and what `stowplan.scheduling.ordering.order` says of it.
    title
        First line. The figures stand below it.
    """
    axes = figure.subplots()
    unit, unit_name = byte_unit(found.before)
    axes.set_axisbelow(True)
    axes.grid(color=_GRID, linewidth=0.6)
    axes.tick_params(colors=_INK, length=3, labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    place = np.arange(len(graph) + 1)
    for order, colour, label in (
        (np.arange(len(graph), dtype=np.int64), _RECORDED, "order recorded"),
        (found.order, _FOUND, "order found"),
    ):
        live = _live(graph, order) / unit
        axes.fill_between(place[:-1], live, step="mid", color=colour, alpha=0.18, linewidth=0)
        axes.step(place[:-1], live, where="mid", color=colour, linewidth=1.3, label=label)
    axes.axhline(
        found.lower_bound / unit, color=_BOUND, linewidth=1.2, linestyle=(0, (5, 2)), label="lower bound"
    )
    axes.set_xlim(0, max(len(graph) - 1, 1))
    axes.set_ylim(0, max(found.before / unit, 1e-9) * 1.04)
    axes.set_xlabel("operators in their order", color=_INK)
    axes.set_ylabel(f"live ({unit_name}, without resident)", color=_INK)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_title(title, loc="left", color=_INK, fontsize=14, fontweight="bold", pad=26)
    axes.text(0, 1.02, _figures(len(graph), found), transform=axes.transAxes, color=_INK, fontsize=10)
    figure.legend(
        loc="outside lower right", ncols=3, frameon=False, fontsize=9, labelcolor=_INK, handlelength=1.6
    )


def save_orders(
    path: str | os.PathLike[str], graph: StepGraph, found: OrderSolution, *, title: str = "Order"
) -> None:
    """Write the picture of two orders, whole or not at all: SVG where the path ends in ``.svg``, else PNG.

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

    figure = Figure(figsize=(12, 5), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    draw_orders(figure, graph, found, title=title)
    with atomic_write(path) as file:
        figure.savefig(file, format="svg" if os.fspath(path).lower().endswith(".svg") else "png")


def _figures(n: int, found: OrderSolution) -> str:
    verdict = "optimal" if found.optimal else f"lower bound {human_bytes(found.lower_bound)}"
    return (
        f"{n:,} operators   ·   live peak {human_bytes(found.before)} → {human_bytes(found.peak)}   ·   "
        f"{found.saved:.1%} less   ·   {verdict}   ·   solver {found.solver}"
    )


def _live(graph: StepGraph, order: IntArray) -> IntArray:
    from .scheduling import Schedule, Way, simulate

    return simulate(graph, Schedule(order, np.full(graph.values, int(Way.KEPT), dtype=np.int64))).live
