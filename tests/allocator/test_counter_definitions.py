"""One list of counts: what the core counts, what it means, and all that shows it have the same names."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from stowplan import NumpyPool
from stowplan.allocator import Stats
from stowplan.allocator._core import Replay
from stowplan.allocator.counter_definitions import REASONS, Kind
from stowplan.allocator.stats import COUNTS, of_kind, snapshot

DOCS = Path(__file__).resolve().parents[2] / "docs"
CORE = Replay().counters()
DERIVED = {"replayed", "upstream", "reasons", "plans", "reoptimizations", "reserved_bytes", "lower_bound"}
DERIVED |= {"planning_seconds", "plans_skipped", "plans_failed", "planning_bytes"}
"""Fields of `Stats` that the core does not name so, or does not know."""


def test_the_core_and_python_know_the_same_reasons() -> None:
    assert list(CORE["requests"]) == ["replayed", *REASONS]


def test_the_core_and_python_know_the_same_counts() -> None:
    assert CORE.keys() - {"requests", "upstream_bytes"} == COUNTS.keys() - DERIVED


def test_every_count_and_every_reason_is_explained() -> None:
    assert COUNTS.keys() == {field.name for field in dataclasses.fields(Stats)}
    assert all(count.text.endswith(".") for count in COUNTS.values())
    assert all(
        name.endswith("_bytes") or name == "lower_bound" for name in of_kind(NumpyPool().stats, Kind.BYTES)
    )
    assert all(reason.why and reason.action for reason in REASONS.values())
    text = inspect.getdoc(Stats)
    assert text is not None
    assert all(f"\n{name}\n    " in text for name in COUNTS)
    assert all(f"``{name}``" in text for name in REASONS)


@given(
    st.fixed_dictionaries({name: st.integers(0, 1 << 40) for name in CORE["requests"]}),
    st.fixed_dictionaries({name: st.integers(0, 1 << 40) for name in CORE if name != "requests"}),
)
def test_a_snapshot_has_what_the_core_counts(requests: dict[str, int], counts: dict[str, int]) -> None:
    stats = snapshot({"requests": requests, **counts}, plans=3, reoptimizations=2, lower_bound=1)
    assert stats.requests == sum(requests.values())
    assert stats.requests - stats.replayed == sum(stats.reasons.values())
    assert stats.reasons == {name: requests[name] for name in REASONS if requests[name]}
    assert stats.reserved_bytes == counts["arena_bytes"] + counts["upstream_bytes"] + counts["kept_bytes"]
    assert (stats.plans, stats.reoptimizations, stats.lower_bound) == (3, 2, 1)
    for name in COUNTS.keys() - DERIVED:
        assert getattr(stats, name) == counts[name]


def test_the_documentation_has_the_table_of_reasons() -> None:
    assert "\n.. reasons::\n" in (DOCS / "statistics.rst").read_text(encoding="utf-8")
