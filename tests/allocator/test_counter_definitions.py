"""One list of counts: what the core counts, and what it means, have the same names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stowplan.allocator._core import Replay
from stowplan.allocator.counter_definitions import REASONS
from stowplan.allocator.stats import COUNTS, snapshot

CORE = Replay().counters()
DERIVED = {"replayed", "upstream", "reasons", "plans", "reoptimizations", "reserved_bytes", "lower_bound"}
DERIVED |= {"planning_seconds", "plans_skipped", "plans_failed", "planning_bytes"}
"""Fields of `Stats` that the core does not name so, or does not know."""


def test_the_core_and_python_know_the_same_reasons_and_counts() -> None:
    assert list(CORE["requests"]) == ["replayed", *REASONS]
    assert CORE.keys() - {"requests", "upstream_bytes"} == COUNTS.keys() - DERIVED


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
