"""Predicted against measured peaks: ``python -m experiments.predict``. The files are ``predict.csv`` and ``.md``.

Each function (`catalogue`) has a process of its own, which learns from small arrays and larger runs, predicts at `FAR`
times the bytes of the smallest, or the most that memory and time allow, makes the arrays and calls it once. What it
takes is what tracemalloc counts, or the growth of the resident set's peak where that is more (of C libraries). A
function whose library is not installed is named. Exit status 1 if a prediction is more than 1 % low and does not say
so.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track

import stowplan
from stowplan.prediction import available

from ..measures import output
from ..measures.apart import ONE_THREAD, ask
from ..measures.kept import Row
from ..measures.runner import CannotRunError
from ..measures.usage import of_this_process
from .catalogue import CASES, Case, arrays

SECONDS, QUICK = 90, 6
"""A process may take so long; functions that ``--quick`` runs."""
FAR, SHARE = 200, 0.25
"""How many times the smallest run's bytes the arguments have, if the peak is at most a share of the free memory."""
CLOSE = 0.01
KEPT = 1 << 26
"""Bytes that libraries may keep for their next calls (OpenBLAS's buffers), which count as no call's."""


def measure(case: Case, far: bool = False) -> Row:
    """Learn, predict and measure, in this process; ``far``: at `FAR` times the learnt size, or the most that fits."""
    names = list(case.at)
    case.function(*arrays(case, list(case.examples), 2))  # imports and compiles what it needs
    began = time.perf_counter()
    prediction: Any = stowplan.predict(case.function, *arrays(case, list(case.examples), 0))
    learning = time.perf_counter() - began
    at = farther(case, prediction) if far else case.at
    found = prediction.peak(**at)
    given = arrays(case, [at[name] for name in names], 1)
    tracemalloc.start()
    Path("/proc/self/clear_refs").write_text("5")  # the largest is what is resident now
    before = of_this_process("VmRSS")
    result = case.function(*given)
    resident, traced = of_this_process("VmHWM") - before, tracemalloc.get_traced_memory()[1]
    del result
    measured = resident if resident > 1.03 * traced + KEPT else traced
    return {
        "at": " ".join(map(str, at.values())),
        "doubt": found.doubt.replace(f"{output.ROOT}/", ""),
        "times": found.arguments / max(prediction.model.least_bytes, 1),
        "largest": found.largest_run,
        "beyond": found.beyond,
        "arguments": found.arguments,
        "predicted": found.asked,
        "measured": measured,
        "traced": traced,
        "off": (found.asked - measured) / (found.arguments + measured),
        "off_asked": (found.asked - measured) / measured if measured else 0.0,
        "learning": learning,
        "runs": prediction.model.runs,
    }


def farther(case: Case, prediction: Any) -> dict[str, tuple[int, ...]]:
    """Return the case's shapes, grown on the axes that differ from the example's."""
    memory, least = available(SHARE)[0], prediction.model.least_bytes
    found = dict(case.at)
    for k in range(1, 400):
        pairs = zip(case.at.items(), case.examples, strict=True)
        grown = {
            name: tuple(round(n * 1.02**k) if n != old else n for n, old in zip(shape, example, strict=True))
            for (name, shape), example in pairs
        }
        peak = prediction.peak(**grown)
        if peak.arguments > FAR * least or peak.total * (3 if peak.cannot_tell else 1) > memory:
            break
        found = grown
    return found


def row_of(case: Case) -> Row:
    """Return the row of a case, from a process of its own."""
    about: Row = {"device": "cpu", "function": case.name, "trap": case.trap}
    note = ""
    for far in (True, False):  # what takes too long at a thousand times the learnt size is measured nearer
        asked = {"name": case.name, "far": far}
        try:
            return about | ask("experiments.predict.__main__:measure_named", asked, ONE_THREAD, SECONDS)
        except CannotRunError as why:
            note = str(why)[:160]
    return about | {"at": " ".join(map(str, case.at.values())), "note": note}


def measure_named(name: str, far: bool) -> Row:
    """Measure a case of `CASES`."""
    return measure(next(case for case in CASES if case.name == name), far)


def verdict(row: Row) -> str:
    """Return how a row came out."""
    if row["doubt"].startswith("cannot tell"):
        return "cannot tell" if row["off"] <= CLOSE else "cannot tell, and too high a bound"
    said = "extrapolated, " if row["doubt"] else ""
    return said + ("met" if abs(row["off"]) <= CLOSE else "low" if row["off"] < 0 else "high")


COLUMNS = (
    output.Column("function", "function"),
    output.Column("at", "at"),
    output.Column("times the smallest run", "times", "{:,.0f}".format),
    output.Column("largest run (MiB)", "largest", output.mib),
    output.Column("times beyond it", "beyond", "{:.1f}".format),
    output.Column("arguments (MiB)", "arguments", output.mib),
    output.Column("predicted (MiB)", "predicted", output.mib),
    output.Column("measured (MiB)", "measured", output.mib),
    output.Column("off, of the whole peak", "off", lambda share: output.percent(share, 2)),
    output.Column("off, of what is asked for", "off_asked", lambda share: output.percent(share, 2)),
    output.Column("learning (s)", "learning", output.seconds),
    output.Column("verdict", "verdict"),
)


def summary(rows: list[Row]) -> str:
    """Return what the table says as a whole."""
    told = [row for row in rows if "verdict" in row]
    count = {
        name: sum(row["verdict"] == name for row in told) for name in ("met", "cannot tell", "low", "high")
    }
    said = sum(row["verdict"].startswith("extrapolated") for row in told)
    times = sorted(row["times"] for row in told)
    middle = times[len(times) // 2] if times else 0
    most = max((row["learning"] for row in told), default=0.0)
    return (
        f"The table has {len(told)} functions. For {count['met']} of them the prediction is within {CLOSE:.0%} of what "
        f"was measured; for {count['cannot tell']} the answer is *cannot tell*, with a lower bound; {said} answers are "
        f"called *extrapolated*. {count['low']} are too low and {count['high']} too high without saying so. Learning "
        f"took {most:.1f} s at most. The measured runs have {FAR:,} times the bytes of the smallest run, or the most "
        f"that a quarter of the free memory or {SECONDS} s allowed (the median is {middle:,.0f} times). The bytes are "
        f"those that a function asks for beside its arguments; C libraries' bytes count from {KEPT >> 20} MiB on."
    )


@click.command()
@click.option("--quick", is_flag=True, help=f"The first {QUICK} functions and traps alone.")
@output.out
def main(quick: bool, out: Path) -> None:
    """Predict the peaks of functions of arrays, and measure them."""
    cases = [*CASES[:QUICK], *CASES[-QUICK:]] if quick else CASES
    rows: list[Row] = []
    for case in track(cases, console=Console(stderr=True), description="functions"):
        row: dict[str, Any] = row_of(case)
        rows.append(row | ({} if "note" in row else {"verdict": verdict(row)}))
    text = summary(rows)
    packages = ("SciPy", "scikit-image", "scikit-learn", "xarray-spatial")
    output.write_table(rows, COLUMNS, out / "predict", "Predicted peaks", text, packages)
    click.echo(text)
    sys.exit(any(row.get("verdict") == "low" for row in rows))


if __name__ == "__main__":
    main()
