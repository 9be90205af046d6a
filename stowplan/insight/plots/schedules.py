r"""Pictures of schedules: what less memory costs in time, and what is alive while the step runs.

::

    extra time
      |  :  o                    one point for each schedule; to the left of the dotted line there is none
      |  :  |__o____
      |  :         |____o____ lean
      +--:------------------------> planned peak
    live bytes
      |    ___/\                 the lean step: forward up, backward down
      | __/  .. \___             the tightest schedule drawn
      +---------------------------> operators, in the order in which they run
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...units import byte_unit, human_bytes
from .style import AMBERS, BLUES, BOUND, DASHES, INK, saver, style_axes, write_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ...scheduling import StepGraph
    from ...scheduling.solve import Solution

__all__ = ["draw_curve", "save_curve"]

_LEAN, _TIGHT = BLUES[1], AMBERS[0]


def draw_curve(
    figure: Figure,
    graph: StepGraph,
    solutions: Sequence[Solution],
    *,
    lean: Solution,
    lower_bound: int,
    title: str = "Schedules",
) -> None:
    """Draw schedules of one step into an empty figure.

    Parameters
    ----------
    figure
        Gets two axes: extra time over the planned peak above, live bytes over the operators below.
    graph
        The step.
    solutions
        From `stowplan.scheduling.solve.curve`, peaks falling; the last one is drawn below.
    lean
        The schedule that costs no time.
    lower_bound
        Bytes: no schedule has a smaller planned peak.
    title
        First line. The figures stand below it.
    """
    above, below = figure.subplots(2, gridspec_kw={"height_ratios": [1, 1], "hspace": 0.08})
    unit, unit_name = byte_unit(max(lean.peak, 1))
    for axes in (above, below):
        style_axes(axes)
    _draw_times(above, graph, solutions, lean, lower_bound / unit, unit, unit_name)
    _draw_live_bytes(below, graph, solutions[-1], lean, unit, unit_name)
    write_title(above, title, _figures(graph, lean, lower_bound), 1.06)


save_curve = saver(draw_curve, (12, 8))


def _figures(graph: StepGraph, lean: Solution, lower_bound: int) -> str:
    return (
        f"{len(graph):,} operators   ·   {float(graph.seconds.sum()):.3f} s a step   ·   "
        f"lean {human_bytes(lean.peak)}   ·   lower bound {human_bytes(lower_bound)}   ·   "
        f"in addition to {human_bytes(graph.resident_bytes)} resident"
    )


def _draw_times(
    axes: Axes,
    graph: StepGraph,
    solutions: Sequence[Solution],
    lean: Solution,
    bound: float,
    unit: int,
    unit_name: str,
) -> None:
    whole = float(graph.seconds.sum())
    scale = 100 / whole if whole else 1.0
    peaks = np.array([solution.peak for solution in solutions]) / unit
    extra = np.array([solution.extra_seconds for solution in solutions]) * scale
    axes.axvline(bound, color=BOUND, linewidth=1.2, linestyle=DASHES, label="lower bound of all schedules")
    # A schedule serves every budget from its peak up to that of the next, cheaper one; peaks fall.
    axes.step(peaks, extra, where="pre", color=_TIGHT, linewidth=1.4)
    axes.plot(peaks, extra, "o", color=_TIGHT, markersize=5, label="schedule", clip_on=False)
    axes.plot([lean.peak / unit], [0], "D", color=_LEAN, markersize=7, label="lean", clip_on=False, zorder=4)
    axes.set_xlim(0, max(lean.peak / unit, float(peaks.max()), 1e-9) * 1.06)
    axes.set_ylim(0, max(float(extra.max()), 1.0 if whole else 1e-9) * 1.12)
    axes.set_xlabel(f"planned peak ({unit_name})", color=INK)
    axes.set_ylabel("extra time (% of the step)" if whole else "extra time (s)", color=INK)
    axes.legend(loc="upper right", frameon=False, fontsize=9, labelcolor=INK)


def _draw_live_bytes(
    axes: Axes, graph: StepGraph, tight: Solution, lean: Solution, unit: int, unit_name: str
) -> None:
    from ...scheduling import Phase

    place = np.arange(len(graph) + 1)

    def closed(solution: Solution) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        live = solution.outcome.live / unit
        return np.append(live, live[-1:])

    axes.fill_between(
        place,
        closed(lean),
        step="post",
        color=_LEAN,
        alpha=0.55,
        linewidth=0,
        label=f"lean, {human_bytes(lean.peak)}",
    )
    if tight is not lean:
        name = f"{tight.solver}, {human_bytes(tight.peak)}"
        axes.step(place, closed(tight), where="post", color=_TIGHT, linewidth=1.3, label=name)
    backward = np.flatnonzero(graph.phase[lean.schedule.order] == Phase.BACKWARD)
    if len(backward):
        axes.axvline(int(backward[0]), color=INK, linewidth=0.8, linestyle=(0, (2, 2)))
        axes.annotate(
            "backward",
            (int(backward[0]), 1),
            xycoords=("data", "axes fraction"),
            xytext=(4, -10),
            textcoords="offset points",
            fontsize=9,
            color=INK,
        )
    axes.set_xlim(0, max(len(graph), 1))
    axes.set_ylim(0, max(lean.peak, tight.peak, 1) / unit * 1.08)
    axes.set_xlabel("operators, in the order of each schedule", color=INK)
    axes.set_ylabel(f"live ({unit_name})", color=INK)
    axes.legend(loc="upper right", frameon=False, fontsize=9, labelcolor=INK)
