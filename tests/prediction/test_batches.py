"""Profiles at other batch sizes: exact where sizes are affine, and an error that says where they are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.errors import ProfileError
from stowplan.prediction import fit_steps
from stowplan.profiler import Profile
from stowplan.profiler.program_summary import Program


def step(batch: int, constant: list[int], per_item: list[int]) -> Profile:
    """Blocks that are all alive at once, freed in the order of their requests."""
    n = len(constant)
    size = np.array(constant) + batch * np.array(per_item)
    return Profile(size, np.arange(n), n + np.arange(n), period=2 * n)


blocks = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=20)


@given(blocks, st.lists(st.integers(1, 50), min_size=2, max_size=4, unique=True), st.integers(1, 500))
def test_affine_sizes_are_predicted_exactly(
    rows: list[tuple[int, int]], batches: list[int], target: int
) -> None:
    constant, per_item = [a for a, _ in rows], [b for _, b in rows]
    model = fit_steps({batch: step(batch, constant, per_item) for batch in batches})
    assert model.profile(target) == step(target, constant, per_item)
    assert model.matched == len(rows)
    assert model.deviation == dict.fromkeys(sorted(batches)[1:-1], 0.0)
    assert (model.cannot_tell(target) == "") == (len(batches) > 2)


def test_steps_answer_as_functions_do() -> None:
    model = fit_steps({batch: step(batch, [100, 50], [10, 0]) for batch in (2, 3, 4)})
    peak = model.peak(batch=8)
    assert (peak.total, peak.temporaries, peak.results) == (230, 230, 0)
    assert model.largest("batch", memory=230) == 8
    assert model.largest("batch", memory=100) is None
    assert model.explain().startswith(
        "2 blocks, 2 of them fitted from batches 2 and 4; checked at 3: 0.000% off"
    )
    with pytest.raises(ProfileError, match="expected a peak that grows with batch"):
        fit_steps({batch: step(batch, [100], [0]) for batch in (2, 3, 4)}).largest("batch")
    with pytest.raises(ProfileError, match="words; expected batch"):
        model.peak(words=8)


@pytest.mark.parametrize(("first", "temporaries", "results"), [(60, 480, 0), (49, 160, 240)])
def test_results_count_where_they_are_alive(first: int, temporaries: int, results: int) -> None:
    profiles = {n: Profile(np.array([first, 30, 20]) * n, [0, 2, 3], [1, -1, 4], period=5) for n in (2, 4)}
    peak = fit_steps(profiles).peak(batch=8)
    assert (peak.temporaries, peak.results, peak.total) == (temporaries, results, temporaries + results)
    assert sum(peak.lines.values()) == peak.total


def test_lines_of_a_step_add_up_to_its_peak() -> None:
    def profile(batch: int) -> Profile:
        sizes = np.array([10, 5, 7]) * batch
        # The first is freed in the next step, the last never.
        return Profile(sizes, [2, 3, 5], [7, 4, -1], period=6, site=[0, 1, 1], sites=("a.py:1 f", "b.py:2 g"))

    peak = fit_steps({2: profile(2), 4: profile(4)}).peak(batch=10)
    assert peak.lines == {"a.py:1 f": 100, "b.py:2 g": 70}
    assert (peak.results, peak.temporaries) == (70, 100)


def with_older(batch: int, older: list[int], before: int = 0) -> Profile:
    """Two blocks, of 10 and 20 bytes an item, of which the second escapes; and what is older at each."""
    one = Profile([10 * batch, 20 * batch], [0, 2], [1, -1], period=3, program=Program(before=before))
    return replace(one, alive=one.step_bytes()[one.start] + older)


def test_older_blocks_follow_formulas() -> None:
    """500 bytes, and 1000 of each item before the second request: kept where they are alive, beside the escaped."""
    profiles = {n: with_older(n, [500 + 1000 * n, 500]) for n in (2, 3, 4)}
    model = fit_steps(profiles)
    found = model.profile(8)
    assert found.alive.tolist() == [8500 + 80, 500 + 160]
    assert model.kept(8) == found.unplanned_peak == 8500
    assert model.kept(8, alignment=512) == 8500  # nothing escapes before the fullest moment
    assert fit_steps(profiles, retained=100).kept(8, alignment=512) == 100 + 512
    assert (model.peak(batch=8).arguments, model.peak(batch=8).total) == (8500, 8580)
    assert model.largest("batch", memory=8580) == 8
    # What is freed before the first request counts, too; and where one profile knows of none, none is known.
    before = fit_steps({n: replace(one, program=Program(before=9000)) for n, one in profiles.items()})
    assert (before.kept(8), before.peak(batch=8).total) == (9000, 9000)
    unknown = fit_steps({**profiles, 3: Profile([30, 60], [0, 2], [1, -1], period=3)})
    assert (unknown.older(8), unknown.kept(8)) == (None, 160)


def test_sizes_are_rounded_up_and_never_negative() -> None:
    # 100 at 1, 101 at 3: half a byte for each item more. 10 at 1, 80 at 3: below 0 at less.
    low, high = step(1, [100, 10, 50], [0, 0, 0]), step(3, [101, 80, 10], [0, 0, 0])
    model = fit_steps({1: low, 3: high})
    assert model.profile(2).size.tolist() == [101, 45, 30]
    assert model.profile(5).size.tolist() == [102, 150, 0]
    with pytest.raises(ProfileError, match="more than 4,611,686,018,427,387,904 bytes; expected a smaller"):
        model.profile(10**18)


def test_a_few_requests_may_have_no_counterpart() -> None:
    # As where NumPy computes in place from 256 KiB on: one block of the smaller step is not asked for in the larger.
    constant, per_item = [7] * 200, list(range(1, 201))
    small = step(2, [*constant[:90], 3, *constant[90:]], [*per_item[:90], 0, *per_item[90:]])
    model = fit_steps({2: small, 4: step(4, constant, per_item)})
    assert model.matched == 200
    assert model.profile(64) == step(64, constant, per_item)
    # And the other way round: what was not asked for at batch 2 is taken to grow in proportion.
    small = step(2, constant[:-1], per_item[:-1])
    model = fit_steps({2: small, 4: step(4, constant, per_item)})
    assert model.matched == 199
    assert model.profile(8).size[:-1].tolist() == step(8, constant, per_item).size[:-1].tolist()
    assert model.profile(8).size[-1] == pytest.approx(2 * (7 + 4 * 200), abs=1)


def test_other_steps_are_refused() -> None:
    with pytest.raises(ProfileError, match=r"1 profile; expected those of two or more"):
        fit_steps({2: step(2, [0], [1])})
    with pytest.raises(ProfileError, match=r"a batch of 0; expected 1 or more"):
        fit_steps({0: step(2, [0], [1]), 4: step(4, [0], [1])})
    model = fit_steps({2: step(2, [0], [1]), 4: step(4, [0], [1])})
    with pytest.raises(ProfileError, match=r"a batch of 0; expected 1 or more"):
        model.profile(0)
    with pytest.raises(
        ProfileError, match=r"differ in more than 2% of their 3 and 2 requests, first at request 1"
    ):
        fit_steps({2: step(2, [8, 64, 900], [0, 0, 0]), 4: step(4, [8, 900], [0, 0])})
    with pytest.raises(ProfileError, match=r"first at request 2: 5 bytes and none"):
        fit_steps({2: step(2, [8, 64, 5], [0, 0, 0]), 4: step(4, [8, 64], [0, 0])})


def attention(n: int) -> Profile:
    """Queries, scores of n², and what comes of them."""
    return step(n, [0, 4 * n**2, 0], [256, 0, 256])


def test_a_power_of_the_batch_is_predicted_exactly() -> None:
    model = fit_steps({batch: attention(batch) for batch in (100, 128, 256)})
    assert model.profile(1024) == attention(1024)
    assert model.peak(batch=1024).cannot_tell == ""
    assert model.largest("batch", memory=4_718_592) == 1024


@given(st.integers(0, 10**6), st.integers(0, 10**4), st.integers(1, 100), st.integers(5, 500))
def test_a_square_beside_an_affine_size_is_uncertain_by_as_much(a: int, b: int, c: int, target: int) -> None:
    """It is no formula, and where it counts nothing is told; whatever is told is right to the uncertain share."""

    def size(n: int) -> int:
        return a + b * n + c * n * n

    model = fit_steps({n: Profile([size(n)], [0], [1], period=2) for n in (2, 3, 4)})
    off = size(target) - int(model.profile(target).size[0])
    assert 0 <= off <= model.uncertainty(target)
    assert model.uncertainty(target) <= max(1.01 * off, off + target**2)
    if not model.cannot_tell(target):
        assert off <= 0.03 * size(target)


def test_what_no_profile_checks_is_said() -> None:
    rows = list(range(1, 201))
    profiles = {batch: step(batch, [0] * n, rows[:n]) for batch, n in ((2, 199), (3, 199), (4, 200))}
    model = fit_steps(profiles)
    assert model.cannot_tell(4) == ""
    assert "check no formula of 1 of 200 blocks, like request 199 (800 bytes at 4)" in model.cannot_tell(9)
    # Two of three ask for it: it is as large at both, or grows with the batch.
    profiles[3] = step(3, [0] * 199 + [600], [*rows[:199], 0])
    profiles[4] = step(4, [0] * 199 + [600], [*rows[:199], 0])
    model = fit_steps(profiles)
    assert (model.profile(40).size[-1], model.uncertainty(40)) == (600, 9 * 600)
    assert model.cannot_tell(40) == ""


def test_steps_whose_blocks_live_otherwise_check_nothing() -> None:
    """At a batch of 3 the second block is freed before the third comes; sizes are exact all the same."""
    others = Profile(np.array([10, 20, 20]) * 3, [0, 1, 3], [5, 2, 4], period=6)
    same = {n: Profile(np.array([10, 20, 20]) * n, [0, 1, 2], [5, 4, 3], period=6) for n in (2, 4)}
    why = fit_steps({**same, 3: others}).cannot_tell(8)
    assert why.startswith("the step of batch 3 has 90 bytes alive at most, and by the formulas of its blocks")
