"""``stowplan profile``: record what an unchanged script requests in the step that it repeats, and where."""

from __future__ import annotations

from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import click

from ...common.files import from_here
from ...common.units import counted, human_bytes
from ..terminal import say
from . import _look
from ._options import OutputFile, refuse
from .run import warn_of_options

if TYPE_CHECKING:
    from ...profiler import Profile
    from ...profiler.recorders.recorder import Recorder
    from ...profiler.step_candidates import StepCandidate
    from ...scheduling import StepGraph
    from ..scripts import Script

NO_LOOPS = (
    "loops are not detected without call sites; leave --no-sites out, or mark the step by --step-function"
)


def _no_option(context: click.Context, parameter: click.Parameter, script: str) -> str:
    """Refuse an option that the command does not have; it would be taken for the script."""
    if script.startswith("-") and script != "-":
        raise click.NoSuchOption(script, ctx=context)
    return script


def _not_ours(
    context: click.Context, parameter: click.Parameter, arguments: tuple[str, ...]
) -> tuple[str, ...]:
    ours = {name for option in context.command.params for name in option.opts if name.startswith("-")}
    warn_of_options(context.command_path, ours, arguments)
    return arguments


@click.command(
    # Behind SCRIPT all is its own.
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Run a program, and write a profile of its repeated step.",
    epilog="Example: stowplan profile -o step.profile train.py --epochs 2; stowplan show step.profile",
)
@click.option(
    "--step-function",
    metavar="MODULE:FUNCTION",
    help="Each call of this function is a step; the script's own module is __main__.",
)
@click.option(
    "--step",
    "number",
    type=click.IntRange(min=1),
    help="Write the detected step that is listed under this number.",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "gpu", "torch"]),
    default="auto",
    help="Whose allocations: NumPy's (cpu), CuPy's (gpu), or those of PyTorch's CPU tensors (torch); auto: CuPy's if "
    "there are any, else those of NumPy or PyTorch, whichever are more bytes.",
)
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    help="Write the profile to this file.  [default: SCRIPT's name, in this folder, with the suffix .profile]",
)
@click.option(
    "--small",
    type=click.IntRange(min=0),
    help="Leave out allocations below this many bytes.  [default: 1033 of NumPy's, 0 of CuPy's, 16384 of "
    "PyTorch's]",
)
@click.option("--no-sites", is_flag=True, help="Record no call sites; loops are not detected then.")
@click.option(
    "--stacks",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    metavar="N",
    help="Where a library allocated, add its N innermost calls to the script's own line.",
)
@click.option(
    "--callers",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    metavar="N",
    help="Tell call sites apart by the N lines of the script that called them.",
)
@click.option(
    "--graph",
    type=OutputFile(),
    help="Write the step graph of the marked training step of Chainer's instead, for stowplan schedule.",
)
@click.option("-m", "module", is_flag=True, help="SCRIPT is the name of a module, as python -m takes it.")
@click.argument("script", callback=_no_option)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, callback=_not_ours)
@click.pass_context
def profile(
    context: click.Context,
    /,
    script: str,
    arguments: tuple[str, ...],
    module: bool,
    graph: Path | None,
    output: Path | None,
    **how: Any,
) -> None:
    """Run SCRIPT with its ARGUMENTS as python does, find the step that it repeats, and write that step's profile.

    The allocations of NumPy and CuPy in the main thread are recorded, and those of PyTorch's CPU tensors on all
    threads; they are served as without stowplan. Steps are detected, or marked by --step-function, or with
    stowplan.step() in the script. SCRIPT is a file, a folder or archive with a __main__.py, or - for standard input;
    with -m, a module. The call site of a block is the innermost line of the script's own code, the line that called
    it before it, with the Chainer link and function, or PyTorch's operator.

    The output begins with the call sites that held the program's peak live memory, in a step or not. The detected loops
    follow, with their lines, their shares of all allocations, the peak of one pass, and how much of the program's peak
    it holds. The step is a pass of the loop that holds the peak, or that allocates most; --step chooses another one. If
    no step repeats, all allocations count as one step.

    Ctrl-C ends the script and keeps what was recorded. The exit status is the script's; if it is not 0, nothing is
    written. It is 1 if nothing was allocated.

    With --graph, five marked steps that update parameters by Chainer's optimizers are run, and recorded operator by
    operator, with bytes and seconds. Results stay bit-identical. The graph is written at once, and the script
    continues. Exit status 1 if there were no such steps.
    """
    from ..scripts import Script

    program = Script(script, module=module)
    if graph is not None:
        step_function = how.pop("step_function")
        refuse(context, ("output", *how), "--graph writes no profile")
        context.exit(_record_graph(graph, program, arguments, step_function))
    path = Path(f"{program.name}.profile") if output is None else output
    context.exit(_record_profile(path, program, arguments, **how))


def _record_profile(
    path: Path,
    program: Script,
    arguments: tuple[str, ...],
    *,
    step_function: str | None,
    number: int | None,
    device: str,
    small: int | None,
    no_sites: bool,
    stacks: int,
    callers: int,
) -> int:
    """Run a program, and write the profile of its step; return the exit status."""
    from ..scripts.auto_recorders import recording, seen
    from ..scripts.script import INTERRUPTED

    say(f"stowplan: recording {program}; Ctrl-C ends it and keeps what was recorded")
    with recording(device, sites=not no_sites, small=small, stacks=stacks, callers=callers) as recorders:
        status = program.run(arguments, step_function)
    if status not in (0, INTERRUPTED):
        left = f"{path} stays as it was" if path.exists() else "nothing was written"
        say(f"stowplan: {program} failed with exit status {status}; {left}")
        return status
    recorder = seen(recorders)
    if recorder is None:
        library = "PyTorch" if device == "torch" else "CuPy"
        say(f"stowplan: {program} allocated no memory by {library}; nothing was written")
        return status or 1
    candidates = recorder.candidates()
    step, what = _step_of(recorder, candidates, number, sites=not no_sites)
    if not len(step):
        least = f" of {small:,} bytes or more" if small else " that is large enough" if small is None else ""
        say(f"stowplan: {program} allocated no block{least} in the main thread; nothing was written")
        return status or 1
    step.save(path)
    size = f"{counted(len(step), 'block')}, planned peak {human_bytes(step.planned_peak)}"
    for line in (
        f"{recorder.library}: {what}: {size}",
        *(f"  {line}" for line in _look.program_lines(step)),
        *_look.holder_lines(step),
        *_list_of(candidates),
        f"wrote {path} ({human_bytes(path.stat().st_size)}). Next: stowplan show {path}",
    ):
        say(line if line.startswith(" ") else f"stowplan: {line}")
    return status


def _step_of(
    recorder: Recorder,
    candidates: list[StepCandidate],
    number: int | None,
    *,
    sites: bool,
) -> tuple[Profile, str]:
    """Return the program's step, or the one of this number, and what it is."""
    from ...common.errors import ProfileError

    if number is not None and number > len(candidates):
        found = f"{len(candidates)} were found" if candidates else "none was found"
        raise click.UsageError(f"there is no step {number}: {found}; nothing was written")
    try:
        if number is not None:
            return candidates[number - 1].profile, f"step {number} of those that it repeats"
        chosen = next((candidate.profile for candidate in candidates if candidate.chosen), None)
        return chosen or recorder.profile(), "the step that it repeats"
    except ProfileError:
        is_unknown = not (sites or recorder.program().steps)
        return (
            recorder.whole(),
            f"all of the program, as {NO_LOOPS if is_unknown else 'no step was repeated'}",
        )


def _list_of(candidates: list[StepCandidate]) -> list[str]:
    """Return lines on the steps that were found."""
    if not candidates:
        return []
    lines = ["detected loops (* is written; choose another with --step N):"]
    for number, candidate in enumerate(candidates, 1):
        mark = "*" if candidate.chosen else " "
        text = shorten(candidate.text, 80, placeholder=" ...")
        where = f"{from_here(candidate.loop)}: {text}"
        lines.append(f" {mark}{number:2d}  {where}")
        held = f"; holds {human_bytes(candidate.of_peak)} of the program's peak" if candidate.of_peak else ""
        program = candidate.profile.program
        blocks = round(len(candidate) / (1 if program is None else program.turns))
        lines.append(
            f"       {counted(candidate.passes, 'time')}, {counted(blocks, 'block')}; "
            f"{candidate.requests:.1%} of all allocations, {candidate.bytes:.1%} of all bytes; "
            f"peak {human_bytes(candidate.peak)}{held}"
        )
    return lines


def _record_graph(
    target: Path, program: Script, arguments: tuple[str, ...], step_function: str | None
) -> int:
    """Run a program, and write the step graph of its marked training step; return the exit status."""
    from ..scripts.marked_graph_recorder import MarkedGraphRecorder
    from ..scripts.step_markers import steps_go_to

    def write(graph: StepGraph) -> None:
        from ...scheduling import lean, simulate

        graph.save(target)
        say(
            f"stowplan: {len(graph):,} operators, {graph.values:,} values, lean peak "
            f"{simulate(graph, lean(graph)).peak:,} bytes in addition to {graph.resident_bytes:,} resident ones, "
            f"{graph.seconds.sum():.3f} s; written to {target}",
        )

    say(f"stowplan: recording the marked steps of {program} as a step graph")
    recorder = MarkedGraphRecorder(write)
    with steps_go_to(recorder.step):
        status = program.run(arguments, step_function)
    if recorder.graph is not None:
        return status
    say(f"stowplan: {program}: {recorder.why_none}; nothing was written")
    return status or 1
