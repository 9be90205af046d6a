"""Sizes as products of powers of a shape: recorded steps predict steps of other shapes, block by block."""

from __future__ import annotations

import numpy as np
import pytest

from stowplan import NumpyRecorder, Profile
from stowplan.errors import ProfileError
from stowplan.prediction import fit_steps


def recorded(rows: int, width: int, extra: int = 0) -> Profile:
    """A step with blocks of rows · width, width², rows² and of no such product."""
    recorder = NumpyRecorder()
    with recorder, recorder.step():
        x = np.ones((rows, width), np.float32)
        w = np.ones((width, width), np.float64)
        y = x @ w.astype(np.float32)
        scores = y @ y.T
        kept = np.ones(rows, bool)
        more = [np.ones(rows + 1000) for _ in range(extra)]
        del x, scores, more, kept
        last = y * 2
        del y, w, last
    return recorder.whole()


SMALL = [
    ({"rows": rows, "width": width}, recorded(rows, width)) for rows, width in ((16, 8), (32, 8), (16, 24))
]


def test_shapes_not_profiled_are_predicted_block_by_block() -> None:
    model = fit_steps(SMALL)
    real = recorded(200, 40)
    predicted = model.profile({"rows": 200, "width": 40})
    np.testing.assert_array_equal(predicted.size, real.size)
    np.testing.assert_array_equal(predicted.start, real.start)
    np.testing.assert_array_equal(predicted.end, real.end)
    assert predicted.planned_peak == real.planned_peak


def test_blocks_beyond_32_bits_are_whole_bytes() -> None:
    predicted = fit_steps(SMALL).profile({"rows": 3 * 10**6, "width": 7})
    assert 4 * (3 * 10**6) ** 2 in predicted.size


def test_profiles_that_tell_too_little_are_refused() -> None:
    diagonal = [SMALL[0], ({"rows": 32, "width": 16}, recorded(32, 16))]
    with pytest.raises(ProfileError, match="effects of rows, width apart"):
        fit_steps(diagonal)
    with pytest.raises(ProfileError, match="width:9, and it is 8 in all profiles"):
        fit_steps(SMALL[:2]).profile({"rows": 5, "width": 9})
    with pytest.raises(ProfileError, match="no width in rows:5"):
        fit_steps(SMALL).profile({"rows": 5})
    with pytest.raises(ProfileError, match="rows:0; expected 1"):
        fit_steps(SMALL).profile({"rows": 0, "width": 8})
    with pytest.raises(ProfileError, match="the same numbers in all shapes"):
        fit_steps([*SMALL, ({"rows": 5}, SMALL[0][1])])


def test_sizes_that_are_no_products_are_refused() -> None:
    sums = [
        ({"rows": rows, "width": width}, recorded(rows, width, extra=1))
        for rows, width in ((16, 8), (32, 8), (16, 24))
    ]
    # rows + 1000 goes as no power of rows: the nearest power, 0, is off.
    sums.append(({"rows": 64 * 16, "width": 8}, recorded(64 * 16, 8, extra=1)))
    with pytest.raises(ProfileError, match="no products of powers"):
        fit_steps(sums)


def test_a_block_within_the_tolerance_that_is_no_product_is_said() -> None:
    shapes = [{"rows": rows, "width": 8} for rows in (16, 32)]
    sums = [(shape, Profile([10**6 + shape["rows"]], [0], [1], period=2)) for shape in shapes]
    assert fit_steps(sums).cannot_tell.startswith(
        "1 of 1 blocks follow no law that was checked, like request 0"
    )
    assert fit_steps(SMALL).cannot_tell == ""


def test_other_steps_are_refused() -> None:
    other = ({"rows": 64, "width": 8}, recorded(64, 8, extra=2))
    with pytest.raises(
        ProfileError, match=r"more than 0% .* requests, first at request \d+: .*same blocks in the same order"
    ):
        fit_steps([*SMALL, other])


def test_the_request_that_differs_is_named() -> None:
    """Not the first one, which is alive around it and so lives longer, too."""
    few = Profile([1000, 64, 128], [0, 1, 3], [5, 2, 4], period=6)
    more = Profile([1000, 128, 40, 256], [0, 1, 3, 4], [7, 2, 6, 5], period=8)
    with pytest.raises(ProfileError, match="first at request 3: none and 256 bytes"):
        fit_steps([({"rows": 2}, few), ({"rows": 4}, more)])


def test_a_power_of_the_batch_is_not_what_differs() -> None:
    def attention(n: int, extra: list[int]) -> Profile:
        size = [64 * n, 128 * n * n, *extra, 32 * n]
        ticks = np.arange(len(size))
        return Profile(size, ticks, ticks + len(size), period=2 * len(size))

    with pytest.raises(ProfileError, match="first at request 2: 64 bytes and 1000 bytes"):
        fit_steps([({"batch": 2}, attention(2, [])), ({"batch": 4}, attention(4, [1000]))])
