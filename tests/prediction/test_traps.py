"""Hard functions (`traps`): each prediction is within 3 %, or cannot tell, or says that it is extrapolated, or refused.

What they take is measured by tracemalloc and the kernel, in a process of their own; so is what a guard says to a call
that needs a tenth more than it allows: it never passes without a word.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import stowplan
from stowplan.errors import ProfileError

from ..children import printed
from . import traps  # noqa: F401 (it fills the table)
from .trap import TRAPS

CHEAP = ("unpacked", "zeros", "of_a_list")


def verdict(name: str, true: int) -> str:
    function, make, example, asked = TRAPS[name]
    try:
        prediction = stowplan.predict(function, *make(example))
        peak = prediction.peak(**dict(zip(prediction.names, make(asked), strict=True)))
    except ProfileError as error:
        return "refused" if len(str(error).splitlines()) == 1 else str(error)
    if peak.doubt:
        return peak.doubt.partition(":")[0].partition(",")[0]
    whole = peak.arguments + true
    return (
        "exact" if abs(peak.asked - true) <= 0.03 * whole + 2**16 else f"WRONG: {peak.asked:,} for {true:,}"
    )


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in CHEAP else pytest.mark.slow) for name in TRAPS]
)
def test_no_answer_is_wrong_without_a_word(name: str, tmp_path: Path) -> None:
    found = json.loads(printed("-m", "tests.prediction.trap_account", name, XDG_CACHE_HOME=str(tmp_path)))
    assert verdict(name, found["true"]) in ("exact", "cannot tell", "extrapolated", "refused")
    assert found["guard"]
