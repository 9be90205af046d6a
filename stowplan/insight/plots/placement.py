r"""The picture of a placement: time to the right, address upwards, one rectangle per block.

::

    live bytes  __/\___/\/\___       their sum at each tick; its peak is the lower bound. Where the profile knows them,
              --------------       a band of escaped and older blocks below: all that the program has alive
    address
       |   +-----------+ +----+        a rectangle's width: the block's lifetime on the logical clock
       |   |           | |    |        its height: its size
       |---+---+-------+-+----+--
       |   :   |              |        a wrapped block (freed in the following step) is drawn at both edges,
       +---+---+--------------+-->     at the same address
                          clock
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...packing.bounds import live_bytes
from ...units import byte_unit, human_bytes
from .style import AMBERS, BLUES, BOUND, DASHES, INK, saver, style_axes, write_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ...packing import Placement, Problem
    from ...profiler import Profile

__all__ = ["draw_placement", "save_placement"]

# Tints alternate, so that blocks that lie on each other can be told apart without outlines, which would hide thin ones.
_WITHIN, _WRAPPED = BLUES, AMBERS
_OLDER, _ESCAPED = "#b9c4ca", "#b5566b"


def draw_placement(
    figure: Figure,
    problem: Problem,
    placement: Placement,
    *,
    title: str = "Placement",
    profile: Profile | None = None,
) -> None:
    """Draw a placement into an empty figure.

    Parameters
    ----------
    figure
        Gets two axes, which share the clock: live bytes above, blocks below.
    problem, placement
        The blocks and their offsets. A block with gaps is drawn piece by piece.
    title
        First line. The figures stand below it.
    profile
        What the problem was made of. If it knows what else the program had alive, a band of that stands below the
        blocks' live bytes.
    """
    above, below = figure.subplots(2, sharex=True, gridspec_kw={"height_ratios": [1, 5], "hspace": 0.03})
    unit, unit_name = byte_unit(placement.peak)
    for axes in (above, below):
        style_axes(axes)
        axes.set_ylim(0, max(placement.peak / unit, 1e-9) * 1.04)
    band = None if profile is None else _band(profile)
    if band is None:
        _draw_live_bytes(above, problem, placement, unit)
    else:
        _draw_program(above, band)
    above.tick_params(labelbottom=False)
    if band is None:
        above.set_ylabel(f"live ({unit_name})", color=INK)
    _draw_blocks(below, problem, placement, unit)
    if len(problem):
        below.set_xlim(int(problem.start.min()), int(problem.end.max()))
    below.set_ylabel(f"address in the arena ({unit_name})", color=INK)
    below.set_xlabel("logical clock (allocations and frees)", color=INK)
    below.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    figure.align_ylabels()

    write_title(above, title, _figures(problem, placement), 1.1)
    figure.legend(
        *_legend(problem, band is not None),
        loc="outside lower right",
        ncols=6,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        handlelength=1.6,
    )


save_placement = saver(draw_placement, (12, 7))


def _figures(problem: Problem, placement: Placement) -> str:
    fragmentation = f"fragmentation {placement.gap:.2%}" + (" (optimal)" if placement.optimal else "")
    return (
        f"{len(problem):,} blocks   ·   arena {human_bytes(placement.peak)}   ·   "
        f"lower bound {human_bytes(placement.lower_bound)}   ·   {fragmentation}   ·   solver {placement.solver}"
    )


def _legend(problem: Problem, band: bool) -> tuple[list[Any], list[str]]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Patch(color=_WITHIN[1])]
    labels = ["freed in the step" if _wrapped(problem).any() else "block"]
    if _wrapped(problem).any():
        handles.append(Patch(color=_WRAPPED[0]))
        labels.append("freed in the following step (both edges)")
    if band:
        handles += [Patch(color=_OLDER), Patch(color=_ESCAPED), Patch(color=INK, alpha=0.75)]
        labels += ["older", "escaped", "planned"]
    handles.append(Line2D([], [], color=BOUND, linewidth=1.2, linestyle=DASHES))
    return handles, [*labels, "lower bound"]


def _band(profile: Profile) -> tuple[Any, Any, Any] | None:
    """Bytes of older, escaped and planned blocks at each tick, int64 (period,); None if older ones are not known."""
    older = profile.older_bytes()
    return None if older is None else (older, profile.escaped_bytes(), profile.live_bytes())


def _draw_program(axes: Axes, band: tuple[Any, Any, Any]) -> None:
    from matplotlib.colors import to_rgba

    unit, name = byte_unit(int(sum(band).max()))
    parts = np.array([np.append(part, part[-1]) / unit for part in band])
    colours = [_OLDER, _ESCAPED, to_rgba(INK, 0.75)]
    axes.stackplot(np.arange(parts.shape[1]), parts, colors=colours, step="post", linewidth=0)
    axes.set_ylim(0, max(parts.sum(axis=0).max(), 1e-9) * 1.04)
    axes.set_ylabel(f"program ({name})", color=INK)


def _draw_blocks(axes: Axes, problem: Problem, placement: Placement, unit: int) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgba_array

    pieces = problem.pieces()
    block = np.repeat(np.arange(len(problem)), np.diff(pieces.first))
    left, right = pieces.start, pieces.end
    bottom, top = ((placement.offsets[block] + edge) / unit for edge in (pieces.lower, pieces.upper))
    corners = [np.stack([left, left, right, right], axis=1), np.stack([bottom, top, top, bottom], axis=1)]
    # Rank by address: neighbours in the picture get different tints.
    rank = np.argsort(np.lexsort((problem.start, placement.offsets)))
    tints = np.concatenate([to_rgba_array(_WITHIN), to_rgba_array(_WRAPPED)])
    tint = tints[rank % len(_WITHIN) + len(_WITHIN) * _wrapped(problem)]
    # An edge of the face's own colour keeps the thinnest block visible.
    axes.add_collection(
        PolyCollection(
            list(np.stack(corners, axis=2)), facecolors=tint[block], edgecolors=tint[block], linewidths=0.25
        )
    )
    axes.axhline(placement.lower_bound / unit, color=BOUND, linewidth=1.2, linestyle=DASHES)


def _draw_live_bytes(axes: Axes, problem: Problem, placement: Placement, unit: int) -> None:
    if len(problem):
        pieces = problem.pieces()
        clock, live = live_bytes(pieces.start, pieces.end, pieces.upper - pieces.lower)
        axes.fill_between(clock, live / unit, step="post", color=INK, alpha=0.75, linewidth=0)
    axes.axhline(placement.lower_bound / unit, color=BOUND, linewidth=1.2, linestyle=DASHES)


def _wrapped(problem: Problem) -> Any:
    """Which blocks are alive from the first tick to the last with an empty gap between, bool (n,)."""
    wrapped = np.zeros(len(problem), dtype=bool)
    block, _, _, lower, upper = problem.gaps.T
    if len(block):
        whole = (problem.start == problem.start.min()) & (problem.end == problem.end.max())
        wrapped[block[(lower == upper) & whole[block]]] = True
    return wrapped
