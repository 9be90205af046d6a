"""Profiles at other batch sizes: exact where sizes are affine, and an error that says where they are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan import NumpyRecorder
from stowplan.errors import ProfileError
from stowplan.prediction import fit_steps
from stowplan.prediction.steps import StepPrediction
from stowplan.profiler import Profile


def fit_batches(profiles: dict[int, Profile]) -> StepPrediction:
    return fit_steps([({"batch": batch}, profile) for batch, profile in profiles.items()])


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
    model = fit_batches({batch: step(batch, constant, per_item) for batch in batches})
    assert model.profile({"batch": target}) == step(target, constant, per_item)
    assert model.matched == len(rows)
    assert {share for _, share in model.deviation} <= {0.0}
    assert model.grows == any(per_item)


def test_steps_answer_as_functions_do() -> None:
    model = fit_batches({batch: step(batch, [100, 50], [10, 0]) for batch in (2, 3, 4)})
    peak = model.peak(batch=8)
    assert (peak.total, peak.temporaries, peak.results) == (230, 230, 0)
    assert model.largest("batch", memory=230) == 8
    assert model.largest("batch", memory=100) is None
    assert model.explain().startswith(
        "2 blocks, fitted from batch:4 and smaller; checked at batch:3: 0.000% off"
    )
    with pytest.raises(ProfileError, match="expected a peak that grows with batch"):
        fit_batches({batch: step(batch, [100], [0]) for batch in (2, 4)}).largest("batch")


@pytest.mark.parametrize(("first", "temporaries", "results"), [(60, 480, 0), (49, 160, 240)])
def test_results_count_where_they_are_alive(first: int, temporaries: int, results: int) -> None:
    profiles = {n: Profile(np.array([first, 30, 20]) * n, [0, 2, 3], [1, -1, 4], period=5) for n in (2, 4)}
    peak = fit_batches(profiles).peak(batch=8)
    assert (peak.temporaries, peak.results, peak.total) == (temporaries, results, temporaries + results)
    assert sum(peak.lines.values()) == peak.total


def test_lines_of_a_step_add_up_to_its_peak() -> None:
    def profile(batch: int) -> Profile:
        sizes = np.array([10, 5, 7]) * batch
        # The first is freed in the next step, the last never.
        return Profile(sizes, [2, 3, 5], [7, 4, -1], period=6, site=[0, 1, 1], sites=("a.py:1 f", "b.py:2 g"))

    peak = fit_batches({2: profile(2), 4: profile(4)}).peak(batch=10)
    assert peak.lines == {"a.py:1 f": 100, "b.py:2 g": 70}
    assert (peak.results, peak.temporaries) == (70, 100)


def test_sizes_are_rounded_up_and_never_negative() -> None:
    # 100 at 1, 101 at 3: half a byte for each item more. 10 at 1, 80 at 3: below 0 at less.
    low, high = step(1, [100, 10, 50], [0, 0, 0]), step(3, [101, 80, 10], [0, 0, 0])
    model = fit_batches({1: low, 3: high})
    assert model.sizes({"batch": 2}).tolist() == [101, 45, 30]
    assert model.sizes({"batch": 5}).tolist() == [102, 150, 0]


def test_sites_streams_and_lifetimes_are_the_largest_batch_s() -> None:
    def profile(size: int) -> Profile:
        return Profile(
            [size, 8],
            [0, 2],
            [4, 3],
            [7, 7],
            [1, 2],
            [3, 4],
            period=4,
            site=[1, 0],
            sites=("a.py:1 f", "b.py:2 g"),
        )

    predicted = fit_batches({2: profile(20), 4: profile(40)}).profile({"batch": 8})
    assert predicted.size.tolist() == [80, 8]
    assert predicted.end.tolist() == [4, 3]
    assert predicted.stream.tolist() == [7, 7]
    assert (predicted.site.tolist(), predicted.sites) == ([1, 0], ("a.py:1 f", "b.py:2 g"))
    assert predicted.alloc_ns.tolist() == [-1, -1]


def test_a_few_requests_may_have_no_counterpart() -> None:
    # As where NumPy computes in place from 256 KiB on: one block of the smaller step is not asked for in the larger.
    constant, per_item = [7] * 200, list(range(1, 201))
    small = step(2, [*constant[:90], 3, *constant[90:]], [*per_item[:90], 0, *per_item[90:]])
    model = fit_batches({2: small, 4: step(4, constant, per_item)})
    assert model.matched == 200
    assert model.profile({"batch": 64}) == step(64, constant, per_item)
    # And the other way round: what was not asked for at batch 2 is taken to grow in proportion.
    small = step(2, constant[:-1], per_item[:-1])
    model = fit_batches({2: small, 4: step(4, constant, per_item)})
    assert model.matched == 199
    assert model.sizes({"batch": 8})[:-1].tolist() == step(8, constant, per_item).size[:-1].tolist()
    assert model.sizes({"batch": 8})[-1] == pytest.approx(2 * (7 + 4 * 200), abs=1)


def test_other_steps_are_refused() -> None:
    with pytest.raises(ProfileError, match=r"1 profile; expected those of two or more"):
        fit_batches({2: step(2, [0], [1])})
    with pytest.raises(ProfileError, match=r"a batch of 0; expected 1 or more"):
        fit_batches({0: step(2, [0], [1]), 4: step(4, [0], [1])})
    model = fit_batches({2: step(2, [0], [1]), 4: step(4, [0], [1])})
    with pytest.raises(ProfileError, match=r"batch:0; expected 1 or more"):
        model.profile({"batch": 0})
    with pytest.raises(
        ProfileError,
        match=r"batch:2 and batch:4 differ in more than 2% of their 3 and 2 requests, first at request 1: 64 bytes and",
    ):
        fit_batches({2: step(2, [8, 64, 900], [0, 0, 0]), 4: step(4, [8, 900], [0, 0])})
    with pytest.raises(ProfileError, match=r"first at request 2: 5 bytes and none"):
        fit_batches({2: step(2, [8, 64, 5], [0, 0, 0]), 4: step(4, [8, 64], [0, 0])})


def attention(n: int, more: int = 0) -> Profile:
    """Queries, scores of n², and what comes of them."""
    return step(n, [0, 4 * n**2 + more, 0], [256, 0, 256])


@pytest.mark.parametrize("batches", [(128, 256), (100, 128, 256)])
def test_a_power_of_the_batch_is_predicted_exactly(batches: tuple[int, ...]) -> None:
    model = fit_batches({batch: attention(batch) for batch in batches})
    assert model.profile({"batch": 1024}) == attention(1024)
    assert model.peak(batch=1024).cannot_tell == ""
    assert model.largest("batch", memory=4_718_592) == 1024


def test_what_no_profile_checks_is_said() -> None:
    model = fit_batches({n: attention(n, 4096) for n in (128, 256)})
    expected = "1 of 3 blocks follow no law that was checked, like request 1 (266240 bytes at the largest); two batch"
    assert model.peak(batch=512).cannot_tell.startswith(expected)
    assert "cannot tell: 1 of 3 blocks" in model.explain()
    with pytest.raises(ProfileError, match="cannot tell: 1 of 3 blocks"):
        model.largest("batch")
    # Affine: a third profile checks it.
    affine = {batch: step(batch, [100], [10]) for batch in (2, 3, 4)}
    assert fit_batches(affine).peak(batch=9).cannot_tell == ""
    assert fit_batches({batch: affine[batch] for batch in (2, 4)}).peak(batch=9).cannot_tell != ""
    # A square beside a large constant, within the tolerance of a third profile: it misses it all the same.
    flat = fit_batches({batch: step(batch, [10**6 + batch**2], [0]) for batch in (2, 3, 4)})
    assert flat.peak(batch=10**4).cannot_tell.startswith("1 of 1 blocks")
    # Rounded to a device's unit, as all sizes are.
    rounded = {batch: step(batch, [-(-(10**6 + 7000 * batch) // 512) * 512], [0]) for batch in (2, 3, 4)}
    assert fit_batches(rounded).peak(batch=9).cannot_tell == ""


def test_what_only_the_largest_step_asks_for_is_said() -> None:
    rows = list(range(1, 201))
    model = fit_batches(
        {batch: step(batch, [0] * n, rows[:n]) for batch, n in ((2, 199), (3, 199), (4, 200))}
    )
    assert model.peak(batch=8).cannot_tell.startswith(
        "1 of 200 blocks follow no law that was checked, like request"
    )


def test_sizes_that_follow_no_law_are_refused() -> None:
    def square(batch: int) -> Profile:
        return step(batch, [1000, batch**2 + 1], [1, 0])

    with pytest.raises(
        ProfileError,
        match=r"neither affine .* request 1 asks for 401 bytes at batch:20; expected 501, as batch:30",
    ):
        fit_batches({10: square(10), 20: square(20), 30: square(30)})
    # 1 byte of 1013: within the tolerance, and said.
    model = fit_batches({2: square(2), 3: square(3), 4: square(4)})
    assert model.deviation == (({"batch": 3}, 1 / 1013),)


def test_a_network_s_step_is_predicted(chainer: Any) -> None:
    """A small convolutional network, trained by Chainer; the one-command check of whole networks is an experiment."""
    from chainer import functions, links

    def profile(batch: int) -> Profile:
        network = chainer.Sequential(
            links.Convolution2D(3, 8, 3),
            functions.relu,
            links.BatchNormalization(8),
            lambda x: x.reshape(batch, -1),
            links.Linear(10),
        )
        optimizer = chainer.optimizers.MomentumSGD(0.01).setup(network)
        images, labels = np.ones((batch, 3, 12, 12), np.float32), np.zeros(batch, np.int32)
        recorder = NumpyRecorder()
        with recorder:
            for _ in range(4):
                with recorder.step():
                    optimizer.update(lambda: functions.softmax_cross_entropy(network(images), labels))
        return recorder.profile()

    model, found = fit_batches({2: profile(2), 4: profile(4)}), profile(8)
    assert model.cannot_tell == ""
    assert model.profile({"batch": 8}).same_blocks(found)
