"""`stowplan.predict` against the recorded peak at shapes far from those that it ran."""

from __future__ import annotations

import itertools
import math
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import stowplan
from stowplan.errors import ProfileError
from stowplan.prediction.traced_run import run

from ..children import printed
from .traps import awaited, lazily, of_powers_of_two, positive, threaded

patient = partial(stowplan.predict, learning_seconds=math.inf)
"""Without a clock: other tests may have the processor."""
pytestmark = pytest.mark.usefixtures("modest")

RNG = np.random.default_rng(0)
SQUARE = RNG.standard_normal((100, 100))
LINE = RNG.standard_normal(100)


def scaled(x: Any) -> Any:
    return (x - x.mean(axis=0)) / x.std(axis=0)


def with_results(x: Any) -> Any:
    y = x * 2 + 1
    return y.sum(axis=0), y


def distances(x: Any, y: Any) -> Any:
    return np.abs(x[:, None, :] - y[None, :, :]).sum(axis=-1)


def halves(x: Any) -> Any:
    return x[::2].copy() + x[::2] * 2.0


def row_by_row(x: Any) -> Any:
    return np.array([row * 2 for row in x])


def product(x: Any, y: Any) -> Any:
    return x @ y + 1


def in_place(x: Any) -> Any:
    x *= 2
    return x


def view(x: Any) -> Any:
    return x.T[::2]


def recursive(x: Any) -> Any:
    if len(x) < 2:
        return x
    return np.concatenate([recursive(x[: len(x) // 2]), recursive(x[len(x) // 2 :])])


def padded(x: Any, width: int = 3) -> Any:
    return np.pad(x, width)[1:].copy()


FUNCTIONS: list[tuple[Callable[..., Any], list[Any], dict[str, tuple[int, ...]]]] = [
    (scaled, [SQUARE], {"x": (3000, 1700)}),
    (with_results, [SQUARE], {"x": (2001, 3003)}),
    (distances, [RNG.random((50, 8)), RNG.random((60, 8))], {"x": (1500, 8), "y": (1200, 8)}),
    (distances, [SQUARE, SQUARE], {"x": (400, 150), "y": (400, 150)}),
    (halves, [SQUARE], {"x": (3001, 1501)}),
    (row_by_row, [SQUARE], {"x": (2000, 900)}),
    (product, [RNG.random((40, 60)), RNG.random((60, 50))], {"x": (900, 1200), "y": (1200, 1501)}),
    (in_place, [SQUARE], {"x": (3000, 3000)}),
    (view, [SQUARE], {"x": (3000, 3000)}),
    (recursive, [LINE], {"x": (100_000,)}),
    (padded, [SQUARE], {"x": (2000, 2003)}),
    (np.outer, [LINE, LINE], {"a": (3000,), "b": (2000,)}),
]


def measured(function: Callable[..., Any], shapes: dict[str, tuple[int, ...]], dtype: str = "f8") -> int:
    arrays = [RNG.standard_normal(shape).astype(dtype) for shape in shapes.values()]
    return run(function, arrays)[0].peak


@pytest.mark.parametrize(("function", "examples", "shapes"), FUNCTIONS)
def test_the_peak_is_met(
    function: Callable[..., Any], examples: list[Any], shapes: dict[str, tuple[int, ...]]
) -> None:
    prediction = patient(function, *examples)
    found = prediction.peak(**shapes)
    assert found.cannot_tell == ""
    assert found.arguments == sum(8 * int(np.prod(shape)) for shape in shapes.values())
    true = measured(function, shapes)
    assert true <= found.asked <= 1.01 * true + 4096


def test_parts_and_lines_add_up() -> None:
    found = patient(with_results, SQUARE).peak(x=(2000, 2000))
    assert found.results == 8 * (2000 * 2000 + 2000)
    assert found.total == found.arguments + found.asked == found.arguments + sum(found.lines.values())
    assert "test_predict.py" in found.line
    assert "with_results" in found.line


def leaking() -> Callable[[Any], Any]:
    kept: list[Any] = []

    def keep(x: Any) -> Any:
        kept.append(x * 2)
        return x + len(kept)

    return keep


def stepwise(x: Any) -> Any:
    return np.zeros(1 << (len(x) - 1).bit_length())


def failing(x: Any) -> Any:
    raise OSError("no such device")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (positive, "depend on the values"),
        (lambda x: np.unique(x), "depend on the values"),
        (lazily, "iterator"),
        (awaited, "coroutine"),
        (threaded, "other threads"),
        (leaking(), "keeps some"),
        (stepwise, "follows no formula"),
        (of_powers_of_two, "follows no formula"),
        (failing, "OSError: no such device"),
    ],
)
def test_what_follows_no_formula_is_said(function: Callable[[Any], Any], reason: str) -> None:
    prediction = patient(function, LINE)
    found = prediction.peak(x=10**8)
    assert reason in found.cannot_tell
    assert str(found).startswith("cannot tell: ")
    assert found.arguments == 8 * 10**8 <= found.total
    assert prediction.explain().startswith("cannot tell: ")
    with pytest.raises(ProfileError, match="cannot tell"):
        prediction.largest("x", memory="8 GiB")


def test_the_largest_is_the_last_that_fits() -> None:
    prediction = patient(scaled, SQUARE)
    for axis, memory in itertools.product((0, 1), ("1 GiB", "8 GiB")):
        found = prediction.largest("x", axis, memory)
        assert found is not None
        shapes = [tuple(found + more if n == axis else 100 for n in range(2)) for more in (0, 1)]
        assert prediction.peak(x=shapes[0]).total <= stowplan.common.units.parse_bytes(memory)
        assert prediction.peak(x=shapes[1]).total > stowplan.common.units.parse_bytes(memory)
    assert prediction.largest("x", 0, 100) is None


def test_dtypes_and_options_are_other_formulas() -> None:
    prediction = patient(padded, SQUARE, width=5)
    shape = (2000, 3000)
    assert prediction.peak(x=shape).asked == 8 * (2010 * 3010 + 2009 * 3010)
    assert prediction.peak(x=shape, width=1).asked == 8 * (2002 * 3002 + 2001 * 3002)
    assert prediction.peak(x=(shape, "f4")).asked == 4 * (2010 * 3010 + 2009 * 3010)
    assert prediction.peak(x=(shape, "f4")).arguments == 4 * 2000 * 3000


def layouts(n: int) -> dict[str, Any]:
    base = np.ones((n, 2 * n))
    return {
        "strided": base[:, ::2],
        "cropped": base[:, :-1],
        "fortran": np.asfortranarray(base),
        "transposed": base.T,
        "other bytes": base.astype(">f8"),
        "broadcast": np.broadcast_to(base[0], base.shape),
        "mirrored": base[::-1, ::-2],
    }


@pytest.mark.parametrize("layout", layouts(2))
@pytest.mark.parametrize(
    "function",
    [np.ascontiguousarray, lambda a: a.reshape(-1), lambda a: a.astype("=f8", order="C", copy=False)],
)
def test_copies_that_a_layout_causes_are_predicted(function: Callable[[Any], Any], layout: str) -> None:
    large = layouts(1000)[layout]
    peak = patient(function, layouts(70)[layout]).peak(a=large)
    true = run(function, [large])[0].peak
    assert (peak.cannot_tell, abs(peak.asked - true) <= peak.total // 100) == ("", True)


def test_a_layout_that_is_asked_about_is_another_formula() -> None:
    prediction = patient(np.ascontiguousarray, SQUARE)
    assert prediction.peak(a=np.ones((900, 900))).asked == 0
    assert prediction.peak(a=np.ones((900, 900)).T).asked == 8 * 900**2


def grown(n: int, times: int = 9) -> Any:
    ran.append(n)
    return np.ones((n, times)) + 1


ran: list[int] = []


def test_whole_numbers_are_lengths() -> None:
    prediction = patient(grown, 60, times=70)
    assert prediction.peak(n=400_000, times=50).results == 8 * 400_000 * 50
    found = prediction.largest("n", memory="1 GiB", times=100)
    assert found == (2**30 - 16) // 800
    assert ran == []  # not here


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "is given no array, and no number above 4"),
        (([SQUARE],), "is a list of ndarray"),
        (({"a": SQUARE},), "is a dict of ndarray"),
        (((500, 500),), "is a tuple of int"),
        (("3000",), "is a text that begins with a number"),
        ((iter([SQUARE]),), "which is used up"),
        ((np.ma.masked_less(SQUARE, 0),), "is a numpy.ma.MaskedArray"),
        ((np.lib.stride_tricks.sliding_window_view(LINE, 9),), "overlaps itself"),
    ],
)
def test_arguments_whose_sizes_cannot_be_told_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ProfileError, match=message) as error:
        stowplan.predict(lambda *values: None, *arguments)
    assert len(str(error.value).splitlines()) == 1


def stepped(x: Any, step: float) -> Any:
    return np.arange(0, len(x), step)


def test_values_that_are_no_lengths_stay_as_in_the_example() -> None:
    prediction = patient(stepped, LINE, 0.5)
    assert prediction.peak(x=100_000, step=0.5).asked == 8 * 200_000
    for step in (0.25, "0.5"):
        with pytest.raises(ProfileError, match="step is"):
            prediction.peak(step=step)
    with pytest.raises(ProfileError, match="expected a whole number, like 60"):
        patient(grown, 60).peak(n="3000")


def jumping(x: Any) -> Any:
    return np.repeat(x, 5) if len(x) > 500_000 else x + 1


def test_a_size_at_which_the_formulas_end_is_found() -> None:
    prediction = patient(jumping, LINE)
    assert prediction.peak(x=200_000).cannot_tell == ""
    found = prediction.peak(x=5_000_000)
    assert "its formulas do not hold: at x[0] = " in found.cannot_tell
    assert found.asked <= 5 * 8 * 5_000_000
    assert "its formulas do not hold" in prediction.explain()


def test_an_answer_says_how_far_beyond_its_runs_it_is() -> None:
    prediction = patient(np.negative, LINE)
    near, far = prediction.peak(x=4_000_000), prediction.peak(x=400_000_000)
    assert (near.doubt, near.largest_run) == ("", far.largest_run)
    assert 1 << 25 <= near.largest_run <= 1 << 26
    assert far.beyond == pytest.approx(far.total / far.largest_run, rel=0.1)
    assert str(far).endswith(f"extrapolated, {far.beyond:,.0f} times beyond what was run")
    assert "; extrapolated beyond " in prediction.explain()


def test_nothing_of_the_program_changes() -> None:
    def noisy(x: Any) -> Any:
        seen.append(len(x))
        return x + np.random.standard_normal(x.shape)  # noqa: NPY002  # the program's own state

    seen: list[int] = []
    before = np.random.get_state()[1].tobytes()  # type: ignore[index, union-attr]  # noqa: NPY002
    assert patient(noisy, LINE).peak(x=10**6).asked == 8 * 10**6
    assert np.random.get_state()[1].tobytes() == before  # type: ignore[index, union-attr]  # noqa: NPY002
    assert seen == []


def test_a_function_that_its_child_does_not_survive_is_said() -> None:
    def ended(x: Any) -> Any:
        return os.kill(os.getpid(), 9) if len(x) > 10_000 else x + 1

    assert "ended with SIGKILL when it was run larger" in patient(ended, LINE).peak(x=10**6).cannot_tell
    waits = threading.Event().wait
    found = stowplan.predict(lambda x: waits(), LINE, learning_seconds=0.2).peak(x=10**6)
    assert "too slow to learn in 0.2 s" in found.cannot_tell


def test_small_shapes_are_run_and_short_axes_learnt_again() -> None:
    prediction = patient(distances, RNG.random((50, 8)), RNG.random((60, 8)))
    for shapes in (
        {"x": (9, 5), "y": (7, 5)},
        {"x": (1000, 5), "y": (900, 5)},
        {"x": (300, 70), "y": (200, 70)},
    ):
        assert prediction.peak(**shapes).asked == measured(distances, shapes)


def test_examples_are_not_changed() -> None:
    example = np.ones((50, 50))
    patient(in_place, example)
    assert (example == 1).all()


def test_an_order_of_lengths_not_seen_is_said() -> None:
    def smaller(x: Any) -> Any:
        return np.zeros((min(x.shape), 1000))

    prediction = patient(smaller, RNG.random((1000, 100)))
    assert prediction.peak(x=(5000, 500)).asked == 8 * 500 * 1000
    assert "below it in all runs" in prediction.peak(x=(500, 50_000)).cannot_tell


def test_wrong_shapes_are_refused() -> None:
    prediction = patient(product, RNG.random((40, 60)), RNG.random((60, 50)))
    for shapes, message in [
        ({"x": (50_000, 500)}, "are one length"),
        ({"x": 500}, "expected 2 lengths of 0 or more"),
        ({"x": (-500, -500)}, "expected 2 lengths of 0 or more"),
        ({"x": (500.5, 500)}, "expected 2 lengths of 0 or more"),
        ({"z": 500}, "expected one of x, y"),
        ({"width": 3}, "no argument 'width' in the example"),
    ]:
        with pytest.raises(ProfileError, match=message):
            prediction.peak(**shapes)


def test_explain_gives_the_formula() -> None:
    text = patient(scaled, SQUARE).explain()
    assert "16 x[0] x[1] + 16 x[1] + 24 bytes" in text
    assert "Not counted: what other processes take" in text


INVERSE = """
import numpy as np, stowplan
ran = set()
def inverse(a):
    if len(a) > 300 and len(a) in ran and {fails_again}:
        raise ValueError("a second time")
    ran.add(len(a))
    return np.linalg.inv(a)
prediction = stowplan.predict(inverse, np.random.default_rng(0).random((100, 100)), learning_seconds=9)
print(prediction.peak(a=(2000, 2000)).cannot_tell, prediction.explain(), sep="|")
"""


@pytest.mark.parametrize("fails_again", [pytest.param(False, marks=pytest.mark.slow), True])
def test_what_a_c_library_takes_is_said(fails_again: bool) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("the system does not tell the resident set")
    for text in printed("-c", INVERSE.format(fails_again=fails_again)).split("|"):
        assert "a C library takes the rest" in text


def chained(x: Any) -> Any:
    return x * 2 + 1


def chained_row(x: Any) -> Any:
    return x[0] * 2 + 1


def mean_of_columns(x: Any) -> Any:
    return x.mean(axis=0)


def list_of_rows(x: Any) -> Any:
    rows = []
    for row in x:
        rows.append(row * 2 + 1)
    return rows


def test_what_numpy_computes_in_place_is_seen_or_said() -> None:
    assert patient(chained, LINE).peak(x=10**6).asked == measured(chained, {"x": (10**6,)})
    # Blocks of 8 bytes a column, small where the matrix has as many rows: long rows show that nothing changes.
    found = patient(mean_of_columns, SQUARE).peak(x=(40, 10**5))
    assert (found.asked, found.cannot_tell) == (measured(mean_of_columns, {"x": (40, 10**5)}), "")
    # Or that something does: a row is then held once, not twice.
    found, true = patient(chained_row, SQUARE).peak(x=(40, 10**5)), measured(chained_row, {"x": (40, 10**5)})
    assert found.cannot_tell or abs(found.asked - true) <= 0.03 * found.total
    shape = (1000, 40_000)
    found, true = patient(list_of_rows, SQUARE).peak(x=shape), measured(list_of_rows, {"x": shape})
    assert found.cannot_tell == ""
    assert true <= found.asked <= 1.01 * true


def test_values_that_a_larger_matrix_needs_are_found() -> None:
    """A part of the example is positive definite, and a larger matrix of repeated rows is not."""
    example = SQUARE @ SQUARE.T + np.eye(100)
    assert "a C library takes the rest" in patient(np.linalg.cholesky, example).peak(a=(700, 700)).cannot_tell


def test_an_empty_example_stands_for_any() -> None:
    assert patient(np.negative, np.ones((0, 5))).peak(x=(4000, 5)).total == 2 * 8 * 4000 * 5


def test_what_is_not_given_is_as_in_a_large_example() -> None:
    assert patient(np.negative, np.ones(10**6)).peak().total == 2 * 8 * 10**6
