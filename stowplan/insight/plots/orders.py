r"""A picture of two orders of a step: the bytes alive at each operator, in the order recorded and in the one found.

::

    live bytes
       |      ____/\          recorded
       |  ___/      \_____
       |- - - - - - - - - -   lower bound: no order's peak is below it
       | _/\_/\_/\_/\_/\__    found
       +------------------>  operators, each at its own place in either order
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...units import byte_unit, human_bytes
from .style import AMBERS, BLUES, BOUND, DASHES, INK, saver, style_axes, write_title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...scheduling import StepGraph
    from ...scheduling.graph import IntArray
    from ...scheduling.ordering import OrderSolution

__all__ = ["draw_orders", "save_orders"]

_RECORDED, _FOUND = AMBERS[0], BLUES[0]


def draw_orders(figure: Figure, graph: StepGraph, found: OrderSolution, *, title: str = "Order") -> None:
    """Draw the live bytes of both orders into an empty figure.

    Parameters
    ----------
    figure
        Gets one axes: operators to the right, bytes without the resident storages upwards.
    graph, found
        The step, and the result of `stowplan.scheduling.ordering.order`.
    title
        First line. The figures stand below it.
    """
    axes = figure.subplots()
    unit, unit_name = byte_unit(found.before)
    style_axes(axes)
    place = np.arange(len(graph) + 1)
    for order, colour, label in (
        (np.arange(len(graph), dtype=np.int64), _RECORDED, "order recorded"),
        (found.order, _FOUND, "order found"),
    ):
        live = _live(graph, order) / unit
        axes.fill_between(place[:-1], live, step="mid", color=colour, alpha=0.18, linewidth=0)
        axes.step(place[:-1], live, where="mid", color=colour, linewidth=1.3, label=label)
    axes.axhline(found.lower_bound / unit, color=BOUND, linewidth=1.2, linestyle=DASHES, label="lower bound")
    axes.set_xlim(0, max(len(graph) - 1, 1))
    axes.set_ylim(0, max(found.before / unit, 1e-9) * 1.04)
    axes.set_xlabel("operators in their order", color=INK)
    axes.set_ylabel(f"live ({unit_name}, without resident)", color=INK)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    write_title(axes, title, _figures(len(graph), found), 1.02)
    figure.legend(
        loc="outside lower right", ncols=3, frameon=False, fontsize=9, labelcolor=INK, handlelength=1.6
    )


save_orders = saver(draw_orders, (12, 5))


def _figures(n: int, found: OrderSolution) -> str:
    verdict = "optimal" if found.optimal else f"lower bound {human_bytes(found.lower_bound)}"
    return (
        f"{n:,} operators   ·   live peak {human_bytes(found.before)} → {human_bytes(found.peak)}   ·   "
        f"{found.saved:.1%} less   ·   {verdict}   ·   solver {found.solver}"
    )


def _live(graph: StepGraph, order: IntArray) -> IntArray:
    from ...scheduling import Schedule, Way, simulate

    return simulate(graph, Schedule(order, np.full(graph.values, int(Way.KEPT), dtype=np.int64))).live
