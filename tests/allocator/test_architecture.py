"""docs/architecture.rst lists the calls from a step's log to the core: they are there, and they are made."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from types import FrameType

import numpy as np

from stowplan import NumpyPool

ROOT = Path(__file__).parents[2]
MOST = 40


def listed() -> list[tuple[str, Path]]:
    """Return the name and the file of each call."""
    text = (ROOT / "docs" / "architecture.rst").read_text()
    found = re.findall(r"^ +(\d+)  ([\w.:]+) +([\w/]+\.\w+)$", text, re.MULTILINE)
    assert [int(number) for number, _, _ in found] == list(range(1, len(found) + 1))
    return [(name, ROOT / path) for _, name, path in found]


def test_the_way_of_a_plan_takes_no_more_calls_than_listed() -> None:
    calls = listed()
    assert 0 < len(set(calls)) == len(calls) <= MOST
    for name, path in calls:
        *owner, function = re.split(r"\.|::", name)
        text = path.read_text()
        assert re.search(rf"\b{function}\(", text), name
        assert all(re.search(rf"\b{one}\b", text) for one in owner), name


def test_a_step_that_is_planned_makes_them() -> None:
    wanted = {(str(path), re.split(r"\.|::", name)[-1]) for name, path in listed() if path.suffix == ".py"}
    made = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            made.add((str(Path(frame.f_code.co_filename).resolve()), frame.f_code.co_name))

    pool = NumpyPool(warmup=0)
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        with pool:
            for _ in range(4):
                with pool.step():
                    np.ones(1000) + 1
                pool.wait()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    assert pool.stats.plans == 1
    assert wanted <= made
