"""Every figure that a command prints of a trace, beside a plain replay of it, in all formats that are read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stowplan import NumpyRecorder
from stowplan.common.units import counted, human_bytes
from stowplan.insight.comparison import POOL_TITLES
from stowplan.insight.pool_models import POOL_MODELS

from .command_line import figures, stowplan
from .replayed_traces import ALIGNMENT, FORMATS, MIB, Replay, Trace, drawn, drawn_step, times

ALL = 100
STEPS = 6
SEEDS = [pytest.param(seed, marks=() if seed in (0, 2) else pytest.mark.slow) for seed in range(ALL)]
TOP: dict[str, list[object]] = {"compare": [], "show": ["--top", 99]}
each_format = pytest.mark.parametrize("form", [*FORMATS, "torch profile"])


def written(trace: Trace, form: str, folder: Path) -> tuple[Path, Replay, Trace]:
    """Write a trace in a format, or as a profile made from one; return what it comes to."""
    name, _, profile = form.partition(" ")
    path = folder / form
    told = FORMATS[name](trace, path)
    if profile:
        target = folder / f"{name}.profile"
        assert figures("convert", path, target)["planned_peak"] == Replay(told).planned_peak
        path = target
    return path, Replay(told), told


def share(value: float) -> str:
    return f"{round(value, 3) + 0.0:.1%}"


def rows_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def row(title: str, count: int, *more: str) -> list[str]:
    return [*title.split(), *human_bytes(count).split(), *(cell for cell in more if cell)]


def check_plan(found: dict[str, Any], told: Replay) -> None:
    known = not told.of_log_alone
    assert (found["blocks"], found["left_out"]) == (len(told.planned), len(told.blocks) - len(told.planned))
    assert found["planned_peak"] == told.planned_peak
    # A search may have raised the bound: to the arena, or to what a part of the blocks needs.
    assert told.lower_bound <= found["lower_bound"] <= found["arena"]
    assert found["optimal"] == (found["arena"] == found["lower_bound"])
    assert found["arena"] >= told.lower_bound
    assert found["live_peak"] == (told.total(told.fullest) if known else None)
    assert found["at_live_peak"] == (told.parts() if known else None)
    assert found["unplanned_peak"] == (told.unplanned_peak if known else None)
    assert found["with_plan"] == (told.unplanned_peak + found["arena"] if known else None)
    pools = found["pools"].keys() - {"malloc"}  # malloc is measured; show replays none
    assert pools in (POOL_MODELS.keys(), set())
    for name in pools:
        pool = found["pools"][name]
        assert pool["reserved"] == told.reserved(name, pool["steps"]), name
        assert pool["steady"] == (pool["reserved"] == told.reserved(name, pool["steps"] - 1)), name
        whole = told.unplanned_peak + pool["reserved"]
        if found["program"] is not None and found["program"]["library"] != "NumPy":  # a log
            whole = told.whole(name)
        saved = whole - told.unplanned_peak - found["arena"]
        expected = saved / whole if known and name != "none" else None
        assert pool["saved"] == (None if expected is None else pytest.approx(expected)), name


def check_trace(found: dict[str, Any], told: Replay, trace: Trace) -> None:
    check_plan(found, told)
    if not trace.reserved:
        asked = {"requests": len(told.blocks), "bytes": told.bytes_of(range(len(told.blocks)))}
        program = found["program"] or asked  # a format without a pool of its own has none
        assert found["saved_of_reserved"] is None
        assert {name: program[name] for name in asked} == asked
        return
    assert found["saved_of_reserved"] == pytest.approx(1 - found["with_plan"] / trace.reserved)
    counts = {
        "requests": len(told.blocks),
        "bytes": told.bytes_of(range(len(told.blocks))),
        "live_peak": max(map(told.total, told.moments)),
        "reserved": trace.reserved,
        "before": told.total(told.moments[0]),
    }
    assert {name: found["program"][name] for name in counts} == counts


def check_text(text: str, found: dict[str, Any], told: Replay, path: Path) -> None:
    """Hold the text to the figures for programs, which have been checked."""
    left_out = f"; {found['left_out']:,} of them not planned" if found["left_out"] else ""
    kinds = f"({told.wrapped:,} wrapped, {told.escaped:,} escaped)"
    assert f"{path}: {counted(len(told.blocks), 'block')} in a step {kinds}{left_out}\n" in text
    rows, known, peak = rows_of(text), found["live_peak"] is not None, found["planned_peak"]

    def ratio(count: int) -> str:
        return f"{count / peak:.3f}" if peak else ""

    expected = [
        row("planned peak", peak, ratio(peak)),
        row(
            f"lower bound (units of {512 if peak else 1})", found["lower_bound"], ratio(found["lower_bound"])
        ),
        row("stowplan's arena", found["arena"], ratio(found["arena"])),
    ]
    for name, pool in found["pools"].items():
        saved = [] if pool["saved"] is None else [share(pool["saved"])]
        expected.append(row(POOL_TITLES[name], pool["reserved"], ratio(pool["reserved"]), *saved))
    if known:
        parts = {name: found["at_live_peak"][name] for name in ("older", "escaped", "planned")}
        expected += [row(name, count) for name, count in parts.items()]
        expected.append(row("live peak of the program", found["live_peak"]))
        expected.append(row("unplanned peak", found["unplanned_peak"]))
        split = ", ".join(f"{human_bytes(count)} {name}" for name, count in parts.items())
        ever = ""
        if found["program"] is not None:
            ever = f"; {human_bytes(found['program']['live_peak'])} in the whole run"
            if reserved := found["program"]["reserved"]:
                expected.append(row("PyTorch on CUDA reserved", reserved, share(found["saved_of_reserved"])))
                expected.append(row("with the plan", found["with_plan"]))
                assert f"had at most {human_bytes(reserved)} reserved;" in text
        assert f"in the step: {human_bytes(found['live_peak'])} ({split}){ever}\n" in text
        first = max((m for m in told.moments if m.after_request), key=told.unplanned, default=told.moments[0])
        after_the_peak = first.tick > found["at_live_peak"]["tick"]
        is_later = after_the_peak and told.unplanned(first) == told.unplanned_peak
        at_the_end = told.bytes_of(k for k, block in enumerate(told.blocks) if block.escapes)
        said = f"{human_bytes(at_the_end - parts['escaped'])} allocated after the peak stay"
        assert (said in text) == ("record two steps" in text) == (found["program"] is not None and is_later)
    for cells in expected:
        assert cells in rows


def check_show(found: dict[str, Any], text: str, told: Replay, *, sites: bool) -> None:
    at = told.at_planned_peak()
    numbers = sorted(at.alive & told.planned)
    blocks, size = Counter[str](), Counter[str]()
    for number in numbers:
        block = told.blocks[number]
        name = block.site if sites else f"{block.size:,} bytes"
        blocks[name] += 1
        size[name] += block.size
    groups = [
        {"name": name, "blocks": blocks[name], "bytes": size[name]}
        for name in sorted(size, key=lambda name: (-size[name], name))
    ]
    tick = at.tick if told.planned else 0
    assert found["period"] == told.period
    by = "site" if sites else "size"
    assert found["at_peak"] == {"tick": tick, "blocks": len(numbers), "by": by, "groups": groups}
    if found["program"] is not None and found["live_peak"] is not None:
        whole, by_site = told.held()
        assert f"Peak of the log: {human_bytes(whole)} live, held by" in text
        groups = [
            {"name": name, "blocks": n, "bytes": size}
            for name, (size, n) in by_site.items()
            if name and sites
        ]
    else:
        whole = told.planned_peak
        assert f"Planned peak (tick {tick:,} of {told.period:,}): {counted(len(numbers), 'block')}" in text
    for group in groups:
        of_peak = group["bytes"] / whole
        cells = [*str(group["name"]).split(), f"{group['blocks']:,}"]
        assert [*cells, *row("", group["bytes"], f"{of_peak:.1%}")] in rows_of(text)


@each_format
@pytest.mark.parametrize("seed", SEEDS)
def test_compare_show_and_convert(seed: int, form: str, tmp_path: Path) -> None:
    path, told, trace = written(drawn(seed), form, tmp_path)
    sites = form.split()[0] == "torch"
    for command in ("compare", "show"):
        found, result = figures(command, path), stowplan(command, path, *TOP[command])
        check_trace(found, told, trace)
        if command == "show":
            check_show(found, result.output, told, sites=sites)
        else:
            check_text(result.output, found, told, path)
    target = tmp_path / "again.profile"
    blocks = {"blocks": len(told.blocks), "planned_peak": told.planned_peak}
    assert figures("convert", path, target) == {"target": str(target), "format": "profile", **blocks}
    said = f"{counted(len(told.blocks), 'block')}, planned peak {human_bytes(told.planned_peak)}"
    assert said in stowplan("convert", path, target).output


@pytest.mark.parametrize("form", ["torch", "torch profile"])
@pytest.mark.parametrize("seed", SEEDS)
def test_diff(seed: int, form: str, tmp_path: Path) -> None:
    sides = []
    for number in (seed, seed + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        path, told, _ = written(drawn(number), form, folder)
        sides.append((path, *told.held()))
    (old, old_peak, before), (new, new_peak, after) = sides
    rows = {
        site: (*before.get(site, [0, 0]), *after.get(site, [0, 0])) for site in before.keys() | after.keys()
    }
    differs = any(one != other for one, _, other, _ in rows.values())
    found = figures("diff", old, new, status=int(differs))
    assert found["live_peak"] == [old_peak, new_peak]
    assert rows == {
        site["site"]: (site["before"], site["blocks_before"], site["after"], site["blocks_after"])
        for site in found["sites"]
    }
    text = stowplan("diff", old, new, columns=200).output
    sign = "+" if new_peak >= old_peak else "-"
    more = f"{sign} {human_bytes(abs(new_peak - old_peak))} at the fullest moment"
    assert f"{old}: {human_bytes(old_peak)}; {new}: {human_bytes(new_peak)}; {more}" in text


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("seed", SEEDS)
def test_fit(seed: int, form: str, tmp_path: Path) -> None:
    told = {}
    for batch in (2, 3, 4, 8):
        told[batch] = Replay(FORMATS[form](times(drawn(seed), batch), tmp_path / f"{batch}"))
    if not told[8].planned:
        return
    files = [f"{batch}={tmp_path / str(batch)}" for batch in (2, 3, 4)]
    found = figures("fit", *files, "--batch", 8)
    count = len(told[8].blocks)
    assert (found["blocks"], found["matched"], found["deviation"]) == (count, count, {"3": 0.0})
    older = [0 if told[8].of_log_alone else moment.older for moment in told[8].moments]
    others = [told[8].bytes_of(moment.alive - told[8].planned, ALIGNMENT) for moment in told[8].moments]
    kept = max(map(sum, zip(older, others, strict=True)))
    (predicted,) = found["predictions"]
    assert (predicted["batch"], predicted["planned_peak"]) == (8, told[8].planned_peak)
    assert predicted["lower_bound"] in (told[8].lower_bound, predicted["arena"])
    assert (predicted["kept"], predicted["total"]) == (kept, predicted["arena"] + kept)
    text = stowplan("fit", *files, "--batch", 8).output
    cells = [*row("", told[8].planned_peak), *row("", predicted["arena"])]
    total = human_bytes(predicted["total"]).split() if kept else []
    assert ["8", *cells, *total] in rows_of(text)
    (other,) = figures("fit", *files, "--batch", 8, "--retained", 1000)["predictions"]
    assert other["kept"] == 1000 + max(others)

    device = figures("fit", *files, "--batch", 8, "--device", "cuda:900MiB", status=None)
    assert device["retained"] == found["retained"]
    for way in device["predictions"][0]["ways"]:
        assert way["total"] == way["step"] + kept
        margin = 900 * MIB - way["total"]
        assert way["verdict"] == (
            "does not fit" if margin < 0 else "too close" if margin < 800 * MIB else "fits"
        )
    assert way["name"] == "plan"
    assert way["step"] == predicted["arena"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_recorded_program(seed: int, tmp_path: Path) -> None:
    step, older, between = drawn_step(seed)
    recorder, held, path = NumpyRecorder(sites=False), {}, tmp_path / "step.profile"
    with recorder:
        kept = [np.empty(size, np.uint8) for size in older]
        for number in range(STEPS):
            with recorder.step():
                for event in step:
                    if event.allocates:
                        held[event.address] = np.empty(event.size, np.uint8)
                    elif number or event.address in held:
                        del held[event.address]
            for size in between:
                np.empty(size, np.uint8)
        recorder.profile().save(path)
    told = Replay(Trace(step, dict(enumerate(older, 10**6))))
    stays = sum(older) + told.bytes_of(told.moments[0].alive)
    asked, size = len(told.blocks), told.bytes_of(range(len(told.blocks)))
    counts = {
        "requests": len(kept) + STEPS * (asked + len(between)),
        "bytes": sum(older) + STEPS * (size + sum(between)),
        "live_peak": max([told.total(told.fullest), *(stays + one for one in between)]),
        "steps": STEPS,
        "repeats": STEPS,
        "step_requests": STEPS * asked,
        "step_bytes": STEPS * size,
    }
    coverage = [counts["step_requests"] / counts["requests"], counts["step_bytes"] / counts["bytes"]]
    for command in ("compare", "show"):
        found, text = figures(command, path, "--alignment", ALIGNMENT), stowplan(command, path).output
        check_plan(found, told)
        program = found["program"]
        assert {name: program[name] for name in counts} == counts
        assert program["coverage"] == pytest.approx(coverage)
        requests = f"{counts['requests']:,} allocations ({program['small']:,} bytes or more)"
        shares = f"{coverage[0]:.1%} of the program's {requests} and {coverage[1]:.1%} of their bytes\n"
        assert f"the step ran {STEPS} times; {STEPS} steps cover {shares}" in text
        ever = human_bytes(counts["live_peak"])
        assert f"in the step: {human_bytes(found['live_peak'])} (" in text
        assert f"); {ever} in the whole run\n" in text
        assert sum(size for _, _, size in program["holders"]) == counts["live_peak"]
    blocks = sum(count for _, count, _ in program["holders"])
    assert ["unknown", f"{blocks:,}", *row("", counts["live_peak"], "100.0%")] in rows_of(text)
