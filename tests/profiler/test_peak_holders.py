"""What held the most that was ever alive, beside a plain reference that looks at every moment."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan import NumpyRecorder, Profile
from stowplan.profiler._recorder import CallSites, ToldRecorder

moves = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 5), st.sampled_from("abc")), max_size=60)


@settings(settings.get_profile("cheap"))
@given(moves)
def test_the_first_fullest_moment_is_kept(moves: list[tuple[int, int, str]]) -> None:
    sites = CallSites(lambda code: False)
    recorder = ToldRecorder(1, sites)
    alive: dict[int, tuple[int, str]] = {}
    fullest: dict[int, tuple[int, str]] = {}
    for address, size, site in moves:
        sites.asker = site
        if size:
            recorder.allocated(address, size, 0)
            alive[address] = size, site
        else:
            recorder.free_postprocess(mem_ptr=address)
            alive.pop(address, None)
        if sum(size for size, _ in alive.values()) > sum(size for size, _ in fullest.values()):
            fullest = dict(alive)
    size_of: Counter[str] = Counter()
    for size, site in fullest.values():
        size_of[site] += size
    count_of = Counter(site for _, site in fullest.values())
    found = recorder.at_peak()
    assert sorted(found) == sorted((site, count_of[site], size_of[site]) for site in size_of)
    assert [held for *_, held in found] == sorted(size_of.values(), reverse=True)


def test_blocks_outside_the_step_are_holders_too_and_kept_in_a_file(tmp_path: Path) -> None:
    recorder = NumpyRecorder(auto_step=True, sites=True, small=100)
    with recorder:
        kept = np.ones(3_000)
        for _ in range(5):
            np.ones(1_000).sum()
        whole = [np.ones(50_000), kept]
        del whole
    profile = recorder.whole()
    program = profile.program
    assert program is not None
    assert [(holder.blocks, holder.bytes) for holder in program.holders[:2]] == [(1, 400_000), (1, 24_000)]
    assert all("test_peak_holders.py" in holder.site for holder in program.holders)
    assert sum(holder.bytes for holder in program.holders) == program.live_peak
    profile.save(tmp_path / "step.profile")
    assert Profile.load(tmp_path / "step.profile").program == program
