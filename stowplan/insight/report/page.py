"""The page: Bokeh's plots in a template of our own.

Level of detail, so that panning stays smooth whatever the number of blocks: the largest pieces in view are drawn as
rectangles, at most `_DETAIL` of them, and answer to the pointer; where there are more, an image made beforehand shows
the rest. Which pieces are the largest in view is worked out in the page whenever the view comes to rest (report.js).
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...common.errors import MissingDependencyError
from ...common.files import atomic_write, from_here
from ...common.units import human_bytes
from ...planning import Plan
from ...profiler import Profile
from ..comparison import MALLOC, POOL_TITLES, as_requested, is_of_host, plan_of
from ..pool_models import replay_malloc, requests
from .figures import AddressMap, Site, plan_map, pool_map, raster, top_sites

if TYPE_CHECKING:
    from bokeh.models import ColumnDataSource, Plot

_HERE = Path(__file__).parent
_DETAIL = 500
_RASTER = (640, 1280)
_OLDER, _ESCAPED, _PLANNED = "#96a3ab", "#b5566b", "#5b7f8f"
_TABLE = 15  # call sites that are listed and have a colour of their own
# Two tints each, so that neighbours can be told apart; the last pair is for all other sites.
_COLOURS = [
    "#2f7f97", "#4593a8", "#d98e2b", "#e8ab55", "#6a994e", "#85b06a",
    "#b5566b", "#c97a8b", "#7b6bb0", "#978ac2", "#3f9e8f", "#62b3a6",
    "#c46f4a", "#d58d6d", "#5b82c4", "#7d9dd2", "#a3842f", "#bb9f52",
    "#8c5a94", "#a47bab", "#7f8f98", "#98a6ae",
]  # fmt: skip


def require_bokeh() -> None:
    """Raise `MissingDependencyError` unless reports can be made. Imports nothing."""
    if importlib.util.find_spec("bokeh") is None:
        raise MissingDependencyError(
            "bokeh is not installed; expected for reports: pip install '.[report]' in stowplan's clone"
        )


def save_report(
    path: str | os.PathLike[str],
    profile: Profile,
    *,
    title: str = "Memory of a step",
    solver: str = "auto",
    alignment: int | None = None,
) -> Plan:
    """Write the report of a profile as one HTML file that needs nothing else, atomically.

    Parameters
    ----------
    path
        The file; replaced if it exists.
    profile
        The step.
    title
        First line of the page.
    solver
        Places the blocks.
    alignment
        Bytes that the plan aligns them to; None: `stowplan.insight.comparison.alignment_of` the profile.

    Returns
    -------
    Plan
        The plan that is shown.

    Raises
    ------
    MissingDependencyError
        Bokeh is not installed.
    UnknownSolverError
        There is no such solver.
    OSError
        The file cannot be written. The old one, if any, is untouched.
    """
    require_bokeh()
    plan = plan_of(profile, alignment, solver)
    text = _page(plan, title)
    with atomic_write(path) as file:
        file.write(text.encode())
    return plan


def _page(plan: Plan, title: str) -> str:
    from bokeh.document import Document
    from bokeh.embed import components
    from bokeh.models import CustomJS
    from bokeh.resources import Resources
    from jinja2 import Environment

    profile = plan.profile
    live = profile.live_bytes()
    peak_tick = int(live.argmax()) if len(live) else 0
    sites, site_of = top_sites(plan, peak_tick)
    plots = _Plots(plan, peak_tick, site_of)
    document = Document()
    for column in plots.columns:
        document.add_root(column)
    document.js_on_event("document_ready", CustomJS(code="stowplan.start()"))
    script, divs = components(plots.columns)
    pools = _pools(plan, plots.maps["pool"].reserved)
    template = Environment(autoescape=True).from_string((_HERE / "page.html").read_text(encoding="utf-8"))
    resources = Resources(mode="inline", components=["bokeh", "bokeh-gl"])
    text: str = template.render(
        title=title,
        bokeh=resources.render_js(),
        style=(_HERE / "report.css").read_text(encoding="utf-8"),
        code=(_HERE / "report.js").read_text(encoding="utf-8"),
        script=script,
        divs=divs,
        cards=_cards(plan, pools),
        verdict=_verdict(plan, *pools[0], sites),
        sites=[_site_line(site, k) for k, site in enumerate(sites[:_TABLE])],
        more_sites=max(len(sites) - _TABLE, 0),
        sites_known=bool(profile.sites),
        holders=_holder_lines(profile),
        band=None if profile.older_bytes() is None else (_PLANNED, _ESCAPED, _OLDER),
        hypothetical=is_of_host(profile),
        peak_tick=peak_tick,
        last_tick=max(profile.period - 1, 0),
    )
    return text


def _pools(plan: Plan, cupy_bytes: int) -> list[tuple[str, int]]:
    """Return the pools that the plan is compared with, the program's own first, and the bytes that each reserves."""
    if not is_of_host(plan.profile):
        return [("CuPy's pool", cupy_bytes)]
    malloc = replay_malloc(requests(as_requested(plan)))
    known = [] if malloc is None else [(POOL_TITLES[MALLOC], malloc.reserved_peak)]
    return [*known, ("CuPy's pool, hypothetically", cupy_bytes)]


def _verdict(plan: Plan, pool: str, pool_bytes: int, sites: Sequence[Site]) -> str:
    """Return the report in one sentence: what a plan saves, and what holds the most at its peak."""
    more = plan.arena_bytes / pool_bytes - 1 if pool_bytes else 0.0
    compared = f"{abs(more):.0%} {'more' if more > 0 else 'less'} than {pool}"
    holds = f"; {sites[0].name} holds the most at the peak" if sites and plan.profile.sites else ""
    return f"The plan reserves {human_bytes(plan.arena_bytes)}, {compared}{holds}."


def _cards(plan: Plan, pools: Sequence[tuple[str, int]]) -> list[tuple[str, str, str]]:
    """Name, figure and note of each figure at the top of the page."""
    profile, bound = plan.profile, plan.placement.lower_bound
    cards = []
    parts = profile.at_live_peak()
    if parts is not None:
        split = ", ".join(
            f"{human_bytes(count)} {name}" for name, count in zip(parts._fields[1:], parts[1:], strict=True)
        )
        cards.append(("Live peak of the program", human_bytes(sum(parts[1:])), split))
    if profile.program is not None and not profile.program.reserved:
        often = f"of all bytes; the step ran {profile.program.repeats:,} times"
        cards.append(("Coverage", f"{profile.program.coverage[1]:.1%}", often))

    def above(count: int) -> str:
        return f"{count / bound - 1:.2%} above the lower bound" if bound else ""

    counts = {"wrapped": profile.wrapped[plan.rows].sum(), "escaped, not planned": profile.escaped.sum()}
    notes = [f"{count:,} {name}" for name, count in counts.items() if count]
    cards += [
        ("Planned peak", human_bytes(profile.planned_peak), f"lower bound {human_bytes(bound)}"),
        ("stowplan's arena", human_bytes(plan.arena_bytes), above(plan.arena_bytes)),
    ]
    cards += [(name, human_bytes(count), above(count)) for name, count in pools]
    cards.append(("Planned blocks", f"{len(plan.rows):,}", ", ".join(notes)))
    return cards


def _site_line(site: Site, rank: int) -> dict[str, Any]:
    return {
        "colour": _COLOURS[_colour_pair(rank)],
        "name": site.name,
        "at_peak": human_bytes(site.at_peak),
        "blocks": f"{site.blocks:,}",
        "largest": human_bytes(site.largest),
    }


def _holder_lines(profile: Profile) -> list[tuple[str, str, str, str]]:
    """Call site, bytes, share and blocks of what held the most that the program had alive in the whole run."""
    if profile.program is None:
        return []
    most = max(profile.program.live_peak, 1)
    return [
        (
            from_here(holder.site or "unknown"),
            human_bytes(holder.bytes),
            f"{holder.bytes / most:.1%}",
            f"{holder.blocks:,}",
        )
        for holder in profile.program.holders[:_TABLE]
    ]


def _colour_pair(rank: int) -> int:
    """Position in `_COLOURS` of the first tint of a call site, by its rank."""
    return min(2 * rank, len(_COLOURS) - 2)


class _Plots:
    """The four plots: live bytes above, address map below; the plan on the left, the pool on the right.

    Attributes
    ----------
    maps
        What the lower plots show.
    columns
        Bokeh's models, left and right.
    """

    def __init__(self, plan: Plan, peak_tick: int, site_of: Any) -> None:
        from bokeh.models import ColumnDataSource, Range1d

        self._plan = plan
        profile = plan.profile
        self.maps = {"plan": plan_map(plan), "pool": pool_map(plan)}
        self._period = max(profile.period, 1)
        self._top = max(self.maps["plan"].reserved, self.maps["pool"].reserved, 1)
        live = profile.live_bytes()
        older = profile.older_bytes()
        self._band = older is not None
        # What the program has alive at each tick: older and escaped blocks, and upon them the planned ones.
        alive = {
            "bytes": live,
            "older": np.zeros_like(live) if older is None else older,
            "escaped": np.zeros_like(live) if older is None else profile.escaped_bytes(),
        }
        self._peak = peak_tick, int(sum(part[peak_tick] for part in alive.values())) if len(live) else 0
        # Rank by address: neighbours get different tints.
        rank = np.argsort(np.lexsort((plan.problem.start, plan.placement.offsets)))
        pair = np.minimum(2 * site_of, len(_COLOURS) - 2)
        self._colour = pair + rank % 2
        self._x = Range1d(0, self._period, name="clock", bounds=(0, self._period))
        high = int(self._top * 1.04) + 1
        self._y = Range1d(0, high, name="address", bounds=(0, high))
        tall = int(np.sum(list(alive.values()), axis=0).max(initial=0) * 1.04) + 1 if self._band else high
        self._y_live = Range1d(0, tall, bounds=(0, tall))
        curve = {"x": [0], "older": [0], "kept": [0], "y": [0]}
        self._curve = ColumnDataSource(curve, name="curve")
        data = [
            ColumnDataSource(
                {
                    "number": plan.rows.astype(np.int32),
                    "size": profile.size[plan.rows].astype(np.float64),
                    "height": plan.problem.size.astype(np.float64),
                    "offset": plan.placement.offsets.astype(np.float64),
                    "start": profile.start[plan.rows].astype(np.float64),
                    "end": profile.end[plan.rows].astype(np.float64),
                    "site": profile.site[plan.rows].astype(np.int32),
                    "colour": self._colour.astype(np.int32),
                },
                name="blocks",
            ),
            ColumnDataSource({name: part.astype(np.float64) for name, part in alive.items()}, name="live"),
            ColumnDataSource({"name": list(profile.sites)}, name="sites"),
            ColumnDataSource({"colour": list(_COLOURS)}, name="colours"),
        ]
        self.columns = [self._column(name, data if name == "plan" else []) for name in self.maps]

    def _column(self, name: str, data: Sequence[ColumnDataSource]) -> Any:
        from bokeh.layouts import column
        from bokeh.models import ColumnDataSource

        pieces = self.maps[name]
        # The largest first, as report.js takes them.
        area = (pieces.end - pieces.start) * self._plan.problem.size[pieces.row].astype(np.float64)
        order = np.argsort(-area, kind="stable")
        source = ColumnDataSource(
            {
                "row": pieces.row[order].astype(np.int32),
                "start": pieces.start[order].astype(np.float64),
                "end": pieces.end[order].astype(np.float64),
                "address": pieces.address[order].astype(np.float64),
            },
            name=f"{name}_pieces",
        )
        plots = [self._live_plot(name), self._map_plot(name)]
        return column(*plots, sizing_mode="stretch_width", tags=[source, *data])

    def _live_plot(self, name: str) -> Plot:
        plot = self._plot(height=170 if self._band else 130, y_range=self._y_live, tools="")
        plot.varea(x="x", y1="kept", y2="y", source=self._curve, fill_color=_PLANNED, fill_alpha=0.6)
        if self._band:
            plot.varea(x="x", y1="older", y2="kept", source=self._curve, fill_color=_ESCAPED, fill_alpha=0.9)
            plot.varea(x="x", y1=0, y2="older", source=self._curve, fill_color=_OLDER, fill_alpha=0.5)
            self._add_moment(plot)
        else:
            self._add_lines(plot, name)
        tick, count = self._peak
        plot.scatter([tick], [count], size=8, color="#c8402f", marker="inverted_triangle")
        plot.yaxis.axis_label = "live"
        plot.xaxis.visible = False
        plot.grid.visible = False
        return plot

    def _map_plot(self, name: str) -> Plot:
        from bokeh.models import ColumnDataSource, HoverTool

        tools = "pan,wheel_zoom,box_zoom,reset,save,tap"
        plot = self._plot(height=460, y_range=self._y, tools=tools, active_scroll="wheel_zoom")
        if len(self.maps[name].row) > _DETAIL:
            self._add_image(plot, name)
        columns = ("left", "right", "bottom", "top", "colour", "number", "bytes", "place", "life", "site")
        quads = plot.quad(
            left="left",
            right="right",
            bottom="bottom",
            top="top",
            fill_color="colour",
            line_color=None,
            hover_line_color="#c8402f",
            hover_fill_color="colour",
            hover_fill_alpha=0.8,
            source=ColumnDataSource({column: [] for column in columns}, name=f"{name}_detail"),
        )
        quads.nonselection_glyph = quads.selection_glyph = None
        tips = [
            ("block", "@number"),
            ("size", "@bytes"),
            ("lifetime", "@life"),
            ("address", "@place"),
            ("site", "@site"),
        ]
        plot.add_tools(HoverTool(renderers=[quads], tooltips=tips, point_policy="follow_mouse"))
        self._add_lines(plot, name)
        plot.yaxis.axis_label = "address"
        plot.xaxis.axis_label = "logical clock (allocations and frees)"
        return plot

    def _add_image(self, plot: Plot, name: str) -> None:
        from bokeh.models import LinearColorMapper

        pieces: AddressMap = self.maps[name]
        extent = self._period, pieces.reserved
        image = raster(pieces, self._plan.problem.size, self._colour + 1, extent, _RASTER)
        colours = ["#00000000", *_COLOURS]
        mapper = LinearColorMapper(palette=colours, low=-0.5, high=len(colours) - 0.5)
        plot.image(
            [image],
            x=0,
            y=0,
            dw=extent[0],
            dh=extent[1],
            color_mapper=mapper,
            name=f"{name}_image",
            level="glyph",
        )

    def _plot(self, **options: Any) -> Any:
        from bokeh.models import AdaptiveTicker, NumeralTickFormatter
        from bokeh.plotting import figure

        plot = figure(
            x_range=self._x,
            toolbar_location="above" if options["tools"] else None,
            sizing_mode="stretch_width",
            min_width=300,
            min_border_left=70,
            lod_threshold=None,
            border_fill_color=None,  # the page's shows; painted once, a colour would leave a line at the edges
            **options,
        )
        plot.toolbar.logo = None
        plot.yaxis.ticker = AdaptiveTicker(
            base=1024, mantissas=[2**k for k in range(10)], desired_num_ticks=5
        )
        plot.yaxis.formatter = NumeralTickFormatter(format="0.[0] ib")
        plot.xaxis.formatter = NumeralTickFormatter(format="0,0")
        return plot

    def _add_moment(self, plot: Plot) -> None:
        from bokeh.models import Span

        plot.add_layout(
            Span(location=self._peak[0], dimension="height", line_color="#c8402f", tags=["moment"])
        )

    def _add_lines(self, plot: Plot, name: str) -> None:
        bound, reserved = self._plan.placement.lower_bound, self.maps[name].reserved
        # As a glyph: a Span's colours are looked up in the page's style at every frame.
        plot.multi_line(
            xs=[[0, self._period]] * 2,
            ys=[[reserved] * 2, [bound] * 2],
            line_color=["#7f8f98", "#c8402f"],
            line_width=[1.5, 1.5],
            line_dash=["solid", "dashed"],
        )
        self._add_moment(plot)
