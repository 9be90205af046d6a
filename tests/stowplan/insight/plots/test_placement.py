"""What a picture shows: the rectangles, not the pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from stowplan.insight.plots.placement import draw_placement, save_placement
from stowplan.packing import Placement, Problem, lower_bound, pack
from stowplan.units import human_bytes


def drawn(problem: Problem, placement: Placement) -> tuple[list[tuple[float, ...]], list[str]]:
    """Rectangles (left, bottom, right, top) and their colours, as they stand in the figure."""
    figure = Figure()
    draw_placement(figure, problem, placement, title="A title")
    assert figure.axes[0].get_title(loc="left") == "A title"
    (collection,) = [c for c in figure.axes[1].collections if isinstance(c, PolyCollection)]
    rectangles = [(*path.vertices.min(axis=0), *path.vertices.max(axis=0)) for path in collection.get_paths()]
    return rectangles, [to_hex(colour) for colour in collection.get_facecolor()]


def test_one_rectangle_per_block_and_wrapped_blocks_at_both_ends() -> None:
    problem = Problem([4, 8], [0, 2], [10, 6], gaps=[[0, 3, 7]])
    placement = Placement(np.array([0, 8]), 16, lower_bound(problem), "by hand", 0.0, "feasible", "")
    rectangles, colours = drawn(problem, placement)
    assert rectangles == [(0, 0, 3, 4), (7, 0, 10, 4), (2, 8, 6, 16)]
    assert colours[0] == colours[1] != colours[2]


def test_a_window_is_drawn_as_high_as_it_is() -> None:
    problem = Problem([8], [0], [10], gaps=[[0, 4, 6, 2, 5]])
    rectangles, _ = drawn(problem, pack(problem))
    assert rectangles == [(0, 0, 4, 8), (4, 2, 6, 5), (6, 0, 10, 8)]


def test_neighbours_in_address_differ_in_colour() -> None:
    problem = Problem([4, 4, 4], [0, 0, 0], [5, 5, 5])
    _, colours = drawn(problem, pack(problem))
    assert len(set(colours)) == 3


def test_live_bytes_and_lower_bound_are_shown() -> None:
    problem = Problem([4, 8, 2], [0, 2, 6], [4, 6, 9])
    figure = Figure()
    draw_placement(figure, problem, pack(problem))
    above, below = figure.axes
    (live,) = above.collections
    assert live.get_paths()[0].vertices[:, 1].max() == 12
    assert [line.get_ydata()[0] for axes in (above, below) for line in axes.lines] == [12, 12]
    assert below.get_xlim() == (0, 9)


def test_a_problem_without_blocks_is_drawn(tmp_path: Path) -> None:
    problem = Problem([], [], [])
    save_placement(tmp_path / "empty.png", problem, pack(problem))
    assert (tmp_path / "empty.png").stat().st_size > 0


def test_nothing_is_written_where_drawing_fails(tmp_path: Path) -> None:
    problem = Problem([4], [0], [5])
    wrong = Placement(np.array([0, 1]), 4, 4, "wrong", 0.0, "optimal", "")
    path = tmp_path / "plan.png"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="shape"):
        save_placement(path, problem, wrong)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["plan.png"]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1.0 KiB"),
        (12_900_000, "12.3 MiB"),
        (176_441_264, "168 MiB"),
        (5 * 1024**4, "5,120 GiB"),
    ],
)
def test_human_bytes(count: int, text: str) -> None:
    assert human_bytes(count) == text
