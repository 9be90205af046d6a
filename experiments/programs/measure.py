"""Run one program under each contestant (`measures.contest`), and compare what they used.

``plain`` is Python by itself, ``stowplan`` is ``stowplan run``, and for PyTorch a `stowplan.TorchPool` whose steps the
optimizer tells (`pooled`). BLAS and OpenMP have one thread in all of them, so that
CPU times compare. ``verdict`` is the CPU time of ``stowplan run`` over that of ``best``, the best of `RIVALS` by
``cpu_C``, with ``verdict_error``.
"""

from __future__ import annotations

import compileall
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import stowplan

from ..measures import contest, peers, usage
from ..measures.apart import ONE_THREAD, failure
from ..measures.contest import OURS, Usage
from ..measures.kept import Row
from ..measures.medians import standard_error
from .catalogue import SCRIPTS, Program

PLAIN = "plain"
RIVALS = ("mimalloc", "tcmalloc", peers.TUNED_GLIBC)
"""What a user may take instead of stowplan."""


def run(program: Program, contestant: str, added: Mapping[str, str], arguments: Sequence[str]) -> Usage:
    """Run a program once.

    Raises
    ------
    CannotRunError
        It ended with another exit status than 0.
    """
    told = program.name.partition(":")[2]
    with tempfile.TemporaryDirectory() as folder:
        result, stats = Path(folder, "usage.json"), Path(folder, "stats.json")
        way = (f"{__package__}.pooled",) if "torch" in program.needs else ("stowplan", "run", "--stats")
        ours = ("-m", *way, str(stats)) if contestant == OURS else ()
        command = (sys.executable, *ours, str(program.script), *filter(None, [told]), *arguments)
        # The allocator is for the program alone: `env` brings it in behind the process that measures.
        settings = [f"{name}={value}" for name, value in added.items()]
        environment = peers.environment({**ONE_THREAD, "PYTHONPATH": str(SCRIPTS.parents[2])})
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
        done = subprocess.run(
            [sys.executable, "-I", "-S", usage.__file__, str(result), "env", *settings, *command],
            env=environment,
            capture_output=True,
            check=False,
        )
        used = json.loads(result.read_text()) if result.exists() else {"status": done.returncode}
        if used["status"]:
            raise failure(
                f"{program.name}, {contestant}", used["status"], done.stderr.decode(errors="replace")
            )
        figures = json.loads(stats.read_text()) if stats.exists() else {}
    return Usage(used["cpu"], used["faults"], used["rss"], done.stdout, figures)


def measure(program: Program, rounds: int, length: str, seed: int) -> Row:
    """Run so many rounds of a program; return its row.

    Beside its imports a ``"quick"`` run takes less than a second, a ``"short"`` one two, a ``"long"`` one twenty.
    """
    ways = contest.contestants(PLAIN)
    compileall.compile_dir(Path(stowplan.__file__).parent, quiet=2)
    arguments = {"quick": [str(program.quick)], "short": [], "long": [str(program.long)]}[length]
    return compare(
        contest.in_turns(list(ways), rounds, seed, lambda name: run(program, name, ways[name], arguments))
    )


def compare(found: Mapping[str, Sequence[Usage]]) -> Row:
    """Return the row of these runs, by contestant and round."""
    row = contest.row_of(found)
    judges = [name for name in RIVALS if name in found]
    if judges:
        best = min(judges, key=lambda name: float(row[f"cpu_{name}"]))
        ratios = [ours.cpu / other.cpu for ours, other in zip(found[OURS], found[best], strict=True)]
        row |= {"best": best, "verdict": float(np.median(ratios)), "verdict_error": standard_error(ratios)}
    return row | shares([use.figures for use in found[OURS]])


def shares(figures: Sequence[Mapping[str, Any]]) -> Row:
    """Return what ``--stats`` says of NumPy's pool, or PyTorch's, as medians over runs; None for what it does not say.

    ``planned`` is the share of requests since the first plan that came from a plan, ``of_all`` that of all requests,
    ``heap_only`` that of requests which the heap served alone, ``steps`` the number of steps,
    ``faults_in_script`` minor page faults while the script ran.
    """
    found = []
    for figure in figures:
        pool = figure.get("torch") or figure.get("numpy", {})
        requests, reasons = pool.get("requests"), pool.get("reasons") or {}
        found.append(
            {
                "planned": pool.get("share"),
                "of_all": pool["replayed"] / requests if requests else None,
                "heap_only": reasons.get("heap_only", 0) / requests if requests else None,
                "steps": pool.get("steps"),
                "faults_in_script": figure.get("minor_faults"),
            }
        )
    known = {key: [row[key] for row in found if row[key] is not None] for key in found[0]}
    return {key: float(np.median(values)) if values else None for key, values in known.items()}
