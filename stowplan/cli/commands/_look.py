"""Output that the commands share: tables, figures for ``--json``, one line of progress."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ...common.files import from_here
from ...common.units import counted, human_bytes
from ...profiler.program_summary import Holder
from ..terminal import console, printable

if TYPE_CHECKING:
    from rich.table import Table

    from ...insight.comparison import Comparison
    from ...packing import PackingProgress
    from ...planning import Plan
    from ...profiler import Profile
    from ...profiler.program_summary import Program
    from ...scheduling.ordering import OrderingProgress

ProgressT = TypeVar("ProgressT")


_WIDE = 78


def table(title: str, *columns: str, left: tuple[str, ...] = ()) -> Table:
    """Return an empty table. The first column and those named in ``left`` are text, the others numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    empty = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    empty.min_width = min(len(title), _WIDE)  # else a title is broken where its table is narrow
    for number, column in enumerate(columns):
        text = number == 0 or column in left
        empty.add_column(column, justify="left" if text else "right", no_wrap=not text, overflow="fold")
    return empty


WORDS = (
    "older: live before the step; escaped: not freed by the end of the next step;\n"
    "wrapped: freed in the next step; tick: an allocation or a free"
)
"""Explains the words that the tables print."""


def program_lines(profile: Profile) -> list[str]:
    """Return sentences on a step's program: its live peak, how often the step ran, what was not recorded."""
    parts, program = profile.at_live_peak(), profile.program
    lines = []
    if parts is None:
        lines.append("live peak of the program: not recorded")
    else:
        split = ", ".join(
            f"{human_bytes(count)} {name}" for name, count in zip(parts._fields[1:], parts[1:], strict=True)
        )
        ever = "" if program is None else f"; {human_bytes(program.live_peak)} in the whole run"
        lines.append(f"live peak of the program in the step: {human_bytes(sum(parts[1:]))} ({split}){ever}")
    if program is None:
        return lines
    if program.is_log:
        most = f"{program.library} had at most {human_bytes(program.reserved)} reserved; "
        lines.append(f"{most if program.reserved else ''}the log is read as one step")
        lines += refused_lines(program)
        unplanned = profile.unplanned_bytes()
        if parts is not None and unplanned is not None and parts.tick < unplanned.argmax() < profile.period:
            later = human_bytes(int(profile.escaped_bytes()[-1]) - parts.escaped)
            lines.append(
                f"{later} allocated after the peak stay, in addition to the arena; "
                "if they are state that a first step makes, record two steps"
            )
        return lines
    requests, count = program.coverage
    if program.repeats:
        rotating = f" (the profile has {program.turns} in a row)" if program.turns > 1 else ""
        often = f"the step ran {counted(program.repeats, 'time')}{rotating}; {counted(program.steps, 'step')} cover"
    elif program.steps:
        often = f"no step was repeated; {counted(program.steps, 'step')} cover"
    else:
        often = "no step was detected or marked; steps cover"
    seen = f"{program.requests:,} allocations ({program.small:,} bytes or more)"
    lines.append(f"{often} {requests:.1%} of the program's {seen} and {count:.1%} of their bytes")
    if program.other_requests:
        others = counted(program.other_requests, "allocation")
        lines.append(f"other threads: {others}, {human_bytes(program.other_bytes)}, in no step")
    unseen = {
        ("NumPy", True): "other contextvars contexts, native threads",
        ("NumPy", False): "other threads and contextvars contexts",
        ("PyTorch", False): "memory that PyTorch's kernels take from the C library",
    }.get((program.library, program.threads), "other threads")
    lines.append(f"not recorded: {unseen}, earlier allocations")
    return lines


def refused_lines(program: Program | None) -> list[str]:
    """Return a sentence on the requests that a log says were refused, if there are any."""
    if program is None or not program.failed:
        return []
    most = f": with {human_bytes(program.refused)} more {human_bytes(program.wanted)} would have been live"
    failed = f"{counted(program.failed, 'request')} of the log failed, not counted here"
    return [failed + most * (program.wanted > 0)]


def held_table(title: str, column: str, holders: Sequence[Holder], whole: int, top: int) -> Table:
    """Return a table of holders, the first ones in a row each, and of their shares of a whole."""
    rows = table(title, column, "blocks", "size", "share")
    shown = [*holders[:top]]
    if rest := holders[top:]:
        shown.append(
            Holder(counted(len(rest), "other"), sum(h.blocks for h in rest), sum(h.bytes for h in rest))
        )
    for holder in shown:
        unknown = "unknown" if holder.blocks else "live before"
        name, share = site_on_lines(holder.site or unknown), holder.bytes / max(whole, 1)
        rows.add_row(name, f"{holder.blocks:,}", human_bytes(holder.bytes), f"{share:.1%}")
    return rows


def holder_lines(profile: Profile, top: int = 3) -> list[str]:
    """Return a sentence on the fullest moment of the whole run, and a line for each call site that held most of it."""
    program = profile.program
    if program is None or not program.holders:
        return []
    lines = [f"peak of the whole run: {human_bytes(program.live_peak)} live, held by"]
    for holder in program.holders[:top]:
        share = holder.bytes / max(program.live_peak, 1)
        where = from_here(holder.site or "unknown")
        lines.append(
            f"  {share:6.1%}  {human_bytes(holder.bytes)} in {counted(holder.blocks, 'block')}: {where}"
        )
    if rest := program.holders[top:]:
        lines.append(f"  and {counted(len(rest), 'other call site')} (stowplan show)")
    return lines


def site_on_lines(site: str) -> str:
    """Return a call site: the frame, and what it called, or the asker, on lines below it."""
    return "\n  ".join(printable(from_here(site)).split(" > "))


def compared(path: Path, how: Mapping[str, Any]) -> Comparison:
    """Read a profile, and plan and compare as `planning_options` tell."""
    from ...insight.comparison import compare
    from ...profiler import formats

    step = formats.read(path)
    with status("packing", packing_line) as progress:
        return compare(step, progress=progress, **how)


def memory_table(found: Comparison) -> Table:
    """Return a table of what program and step have alive, and of what stowplan and the pools reserve for the step."""
    from ...insight.comparison import MALLOC, is_of_host

    plan = found.plan
    parts, program, unplanned = plan.profile.at_live_peak(), plan.profile.program, plan.profile.unplanned_peak
    rows = table("Memory", "", "size", "/ planned peak", *(["plan saves"] if parts is not None else []))

    def ratio(count: int) -> str:
        return f"{count / found.planned_peak:.3f}" if found.planned_peak else ""

    if parts is not None:
        rows.add_row("live peak of the program", human_bytes(sum(parts[1:])))
        for name, count in zip(parts._fields[1:], parts[1:], strict=True):
            rows.add_row(f"  {name}", human_bytes(count))
        rows.add_section()
    if unplanned is not None:
        rows.add_row("unplanned peak", human_bytes(unplanned))
    rows.add_row("planned peak", human_bytes(found.planned_peak), ratio(found.planned_peak))
    bound = plan.placement.lower_bound
    unit = int(plan.problem.alignment.max(initial=1))
    rows.add_row(f"lower bound (units of {unit})", human_bytes(bound), ratio(bound))
    rows.add_row("stowplan's arena", human_bytes(plan.arena_bytes), ratio(plan.arena_bytes))
    rows.add_section()
    if program is not None and found.with_plan is not None and found.saved_of_reserved is not None:
        share = f"{round(found.saved_of_reserved, 3) + 0.0:.1%}"
        rows.add_row(f"{program.library} reserved", human_bytes(program.reserved), "", share)
        rows.add_row("  with the plan", human_bytes(found.with_plan))
        rows.add_section()
    elsewhere = is_of_host(plan.profile)
    for name, title, use in found.titled():
        if elsewhere and name != MALLOC:
            rows.add_section()
            rows.add_row("on a device (hypothetical)")
            elsewhere = False
        saved = found.saved(name)
        cells = [human_bytes(use.reserved_peak), ratio(use.reserved_peak)]
        rows.add_row(title, *cells, *([] if saved is None else [f"{round(saved, 3) + 0.0:.1%}"]))
    if parts is not None:
        rows.caption = "plan saves: how much less memory the program takes with the plan than with that pool"
        rows.caption_justify = "left"
    return rows


def memory_figures(path: Path, found: Comparison) -> dict[str, Any]:
    """Return the content of `memory_table` and `counts` for ``--json``; None for what is not known of the program."""
    plan = found.plan
    parts, program = plan.profile.at_live_peak(), plan.profile.program
    return {
        "profile": str(path),
        "alignment": int(plan.problem.alignment.max(initial=1)),
        "blocks": len(plan.rows),
        "left_out": len(plan.profile) - len(plan.rows),
        "live_peak": plan.profile.live_peak,
        "at_live_peak": None if parts is None else parts._asdict(),
        "program": None if program is None else {**program.as_header(), "coverage": program.coverage},
        "unplanned_peak": plan.profile.unplanned_peak,
        "planned_peak": found.planned_peak,
        "lower_bound": plan.placement.lower_bound,
        "arena": plan.arena_bytes,
        "optimal": plan.placement.optimal,
        "solver": plan.placement.solver,
        "with_plan": found.with_plan,
        "saved_of_reserved": found.saved_of_reserved,
        "pools": {
            name: {
                "title": title,
                "reserved": use.reserved_peak,
                "saved": found.saved(name),
                "steps": use.steps,
                "steady": use.steady,
            }
            for name, title, use in found.titled()
        },
    }


def counts(plan: Plan) -> str:
    """Return a sentence with the number of blocks of each kind."""
    profile = plan.profile
    left_out = len(profile) - len(plan.rows)
    kinds = [f"{int(profile.wrapped.sum()):,} wrapped", f"{int(profile.escaped.sum()):,} escaped"]
    rest = f"; {left_out:,} of them not planned" if left_out else ""
    turns = 1 if profile.program is None else profile.program.turns
    steps = "a step" if turns < 2 else f"{turns} steps"
    return f"{counted(len(profile), 'block')} in {steps} ({', '.join(kinds)}){rest}"


@contextlib.contextmanager
def status(what: str, line: Callable[[ProgressT], str]) -> Iterator[Callable[[ProgressT], object] | None]:
    """Show the progress of something on one line, if standard error is a terminal; yield what takes the progress."""
    printer = console(stderr=True)
    if not printer.is_terminal:
        yield None
        return
    with printer.status(what, spinner="line") as shown:
        yield lambda progress: shown.update(line(progress))


def packing_line(progress: PackingProgress) -> str:
    """Describe the best placement so far."""
    return f"{progress.solver}: {peak_line(progress)}"


def peak_line(progress: PackingProgress | OrderingProgress) -> str:
    """Describe the best peak so far."""
    above = progress.peak / progress.lower_bound - 1 if progress.lower_bound else 0.0
    return f"peak {progress.peak}, {above:.2%} above the lower bound, {progress.seconds:.1f} s"
