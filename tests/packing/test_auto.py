import signal
import subprocess
import sys

import numpy as np
import pytest

from stowplan.packing import Problem, check, pack, portfolio
from stowplan.packing.registry import PackingOptions

from .problems import data, training_step

SOLVED = "ABCEFGHIK"


@pytest.mark.parametrize("letter", SOLVED)
def test_hard_problems_are_solved_with_proof(letter):
    problem = data(f"minimalloc/{letter}.1048576.csv")
    placement = pack(problem, time_limit=30)
    check(problem, placement.offsets)
    assert (placement.status, placement.peak) == ("optimal", (1015 if letter == "C" else 1024) * 1024)


@pytest.mark.parametrize("letter", "ABCDEFGHIJK")
def test_hard_problems_come_close_without_a_time_limit(letter):
    problem = data(f"minimalloc/{letter}.1048576.csv")
    placement = pack(problem)
    check(problem, placement.offsets)
    assert placement.gap <= 0.05
    if letter in "AK":
        assert placement.offsets.tolist() == pack(problem).offsets.tolist()


def test_what_is_tried_depends_on_the_problem_and_the_time():
    def names(problem, **options):
        return [name for name, _ in portfolio.steps(problem, PackingOptions(**options))]

    small, cheap = Problem([4] * 10, range(10), range(5, 15)), ["best_fit", "best_fit_orders", "peak_outward"]
    assert names(small, time_limit=0) == cheap
    assert names(small, time_limit=60) == [*cheap, "exact", "exact", "search"]
    n = portfolio.MOST_FOR_BEST_FIT + 1
    assert names(Problem(np.ones(n), np.arange(n), np.arange(n) + 1))[0] == "window_repair"
    assert "exact" not in names(Problem([0], [0], [1]))


def test_in_haste_a_large_problem_is_left_near_its_bound():
    problem = training_step(0, 800)
    placement = pack(problem, in_haste=True)
    assert placement.peak <= (1 + portfolio.NEAR) * placement.lower_bound
    assert portfolio.is_near(problem, portfolio.NEAR)
    assert not portfolio.is_near(problem, 1.01 * portfolio.NEAR)
    assert not portfolio.is_near(Problem([4] * 10, range(10), range(5, 15)), 0.0)


def test_ctrl_c_keeps_the_best_so_far(tmp_path):
    data("minimalloc/D.1048576.csv").to_csv(tmp_path / "D.csv")
    code = (
        "import signal, sys\n"
        "from stowplan.packing import Problem, check, pack\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background hears it not
        "problem = Problem.from_csv(sys.argv[1])\n"
        "print('ready', flush=True)\n"
        "placement = pack(problem, time_limit=1e6)\n"
        "check(problem, placement.offsets)\n"
        "print(placement.status)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "D.csv")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGINT)
        try:
            output, errors = process.communicate(timeout=600)
        finally:
            process.kill()
    assert (output, errors) == ("feasible\n", "")
