import os
import pickle

import numpy as np
import pytest
from hypothesis import given

from stowplan.errors import ProblemError
from stowplan.packing import Problem
from stowplan.packing.problem import changed

from .problems import problems


def test_columns_are_int64_copies_and_read_only():
    size = np.array([4, 8], dtype=np.int32)
    problem = Problem(size, [0, 1], (2, 3), alignment=4)
    size[0] = 99
    for name in ("size", "start", "end", "alignment", "fixed"):
        column = getattr(problem, name)
        assert (column.dtype, column.shape, column.flags.writeable) == (np.int64, (2,), False)
    assert problem.size.tolist() == [4, 8]
    assert problem.alignment.tolist() == [4, 4]
    assert problem.fixed.tolist() == [-1, -1]
    assert problem.gaps.shape == (0, 5)
    assert len(problem) == 2
    with pytest.raises(AttributeError, match="immutable"):
        problem.size = size
    with pytest.raises(AttributeError, match="immutable"):
        del problem.size


def test_integral_floats_and_unsigned_are_taken():
    problem = Problem([4.0], np.array([1], dtype=np.uint64), [2])
    assert (problem.size[0], problem.start[0]) == (4, 1)


def test_gaps_are_sorted_and_short_rows_mean_absent():
    problem = Problem([4, 4], [0, 0], [10, 10], gaps=[[1, 5, 6], [0, 7, 8], [0, 2, 3]])
    assert problem.gaps.tolist() == [[0, 2, 3, 0, 0], [0, 7, 8, 0, 0], [1, 5, 6, 0, 0]]
    empty_window = Problem([4], [0], [10], gaps=[[0, 2, 3, 3, 3]])
    assert empty_window.gaps.tolist() == [[0, 2, 3, 0, 0]]


def test_pieces_of_the_picture():
    problem = Problem([4, 0, 3], [0, 0, 5], [10, 5, 7], gaps=[[0, 4, 6, 0, 0], [0, 8, 9, 0, 2]])
    pieces = problem.pieces()
    assert pieces.first.tolist() == [0, 4, 4, 5]
    assert pieces.start.tolist() == [0, 6, 8, 9, 5]
    assert pieces.end.tolist() == [4, 8, 9, 10, 7]
    assert pieces.lower.tolist() == [0, 0, 0, 0, 0]
    assert pieces.upper.tolist() == [4, 4, 2, 4, 3]
    assert problem.pieces() is pieces


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([-1], [0], [1]), {}, "block 0: size -1 is negative"),
        (([1, 1], [0, 3], [1, 3]), {}, r"block 1: the lifetime \[3, 3\) is empty"),
        (([1, 1], [0], [1, 3]), {}, "start has 1 entries; expected 2"),
        (([float("nan")], [0], [1]), {}, "size holds NaN"),
        (([1.5], [0], [1]), {}, "size holds fractions"),
        (([2.0**60], [0], [1]), {}, "may have been rounded"),
        (([True], [0], [1]), {}, "size has the dtype bool"),
        (([2**70], [0], [1]), {}, "size has the dtype object"),
        (([2**63], [0], [1]), {}, "exceeds 64-bit"),
        (([[1], [2]], [0], [1]), {}, r"size has the shape \(2, 1\)"),
        # Before NumPy 1.24 a deprecated array of objects.
        (([[1], [2, 3]], [0], [1]), {}, "size (is not an array|has the dtype object)"),
        (([2**62, 2**62], [0, 0], [1, 1]), {}, "the sum of all sizes"),
        (([1], [-(2**63)], [2**62]), {}, "the span of all lifetimes"),
        (([1], [0], [1]), {"alignment": 0}, "block 0: alignment 0"),
        (([1], [0], [1]), {"alignment": [1, 2]}, r"alignment has the shape \(2,\)"),
        (([1], [0], [1]), {"fixed": [3], "alignment": 2}, "block 0: fixed at 3"),
        (([1], [0], [1]), {"fixed": [-2]}, "block 0: fixed at -2"),
        (([1], [0], [1]), {"hint": [0, 0]}, "hint has 2 entries"),
        (([1], [0], [1]), {"hint": [-2]}, "hint has the entry -2"),
        (([1], [0], [1]), {"fixed": [2**63 - 2]}, "above the highest fixed offset"),
        (([1], [0], [1]), {"id": ["a", "b"]}, "id has 2 entries"),
        (([4], [0], [9]), {"gaps": [[1, 2, 3]]}, "a gap names block 1; expected 0 to 0"),
        (([4], [0], [9]), {"gaps": [[0, 3, 3]]}, r"\[3, 3\) is empty or leaves the lifetime \[0, 9\)"),
        (([4], [0], [9]), {"gaps": [[0, 1, 4], [0, 3, 5]]}, "the gaps at 1 and 3 overlap"),
        (([4], [0], [9]), {"gaps": [[0, 1, 4, 2, 5]]}, "leaves the block's 4 bytes"),
        (([4], [0], [9]), {"gaps": [[0, 1]]}, r"gaps has the shape \(1, 2\)"),
    ],
)
def test_bad_input_gets_one_clear_error(arguments, options, message):
    with pytest.raises(ProblemError, match=message):
        Problem(*arguments, **options)


@given(problems())
def test_pickles_and_compares(problem):
    copy = pickle.loads(pickle.dumps(problem))
    assert copy == problem
    assert copy is not problem


def test_inequality_and_no_hash():
    problem = Problem([1], [0], [1])
    assert problem != Problem([1], [0], [2])
    assert problem != Problem([1], [0], [1], id=["a"])
    assert problem != Problem([1], [0], [1], hint=[0])
    assert problem != 3
    with pytest.raises(TypeError):
        hash(problem)
    assert repr(problem) == "Problem(1 blocks, 0 gaps, 0 fixed)"


@given(problems())
def test_csv_round_trip(tmp_path_factory, problem):
    path = tmp_path_factory.mktemp("csv") / "p.csv"
    problem.to_csv(path)
    again = Problem.from_csv(path)
    assert again == changed(problem, id=range(len(problem)))


def test_an_answer_is_written_beside_the_rows_and_read_as_fixed(tmp_path):
    path = tmp_path / "answer.csv"
    Problem([4, 8], [0, 1], [2, 3], hint=[-1, 4], id=["x", "y"]).to_csv(path, [8, 0])
    assert path.read_text() == "id,lower,upper,size,hint,offset\nx,0,2,4,-1,8\ny,1,3,8,4,0\n"
    assert Problem.from_csv(path).fixed.tolist() == [8, 0]
    assert Problem.from_csv(path).hint.tolist() == [-1, 4]


@pytest.mark.parametrize("offsets", [[1], [0.5, 1], [[0, 1]]])
def test_a_wrong_answer_writes_nothing(tmp_path, offsets):
    with pytest.raises(ProblemError):
        Problem([4, 8], [0, 1], [2, 3]).to_csv(tmp_path / "answer.csv", offsets)
    assert os.listdir(tmp_path) == []
