"""The simulated cluster: a queue as served one by one, ways that grow with the ranks; the table of split ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from stowplan.errors import MissingDependencyError

try:
    import stowplan.chainer  # noqa: F401 (mends Chainer)
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)

from experiments.measures.ranks import require_mpi
from experiments.measures.runner import CannotRunError
from experiments.parallel.__main__ import main
from experiments.scale.__main__ import Costs, Server, done, simulate

COSTS = Costs(pack=0.03, take=0.006, message=2e-6, blocks=4000, placement=32_000)


def test_the_queue_serves_one_after_the_other() -> None:
    random = np.random.default_rng(0)
    for service in (0.0, 0.001, 0.1, 3.0):
        arrivals = np.sort(random.uniform(0, 10, 100))
        free, expected = 0.0, []
        for arrival in arrivals.tolist():
            free = max(free, arrival) + service
            expected.append(free)
        np.testing.assert_allclose(done(arrivals, service), expected, rtol=1e-12)


def test_a_store_saves_cpu_time_and_costs_the_directory() -> None:
    for ranks in (10, 1000):
        found = {row["way"]: row for row in simulate(ranks, COSTS, Server(5000, 1e9), 1e9)}
        assert found["store, warm"]["cpu_seconds"] < found["alone"]["cpu_seconds"]
        assert found["store, cold"]["seconds"] > found["store, warm"]["seconds"]
        assert found["store, warm"]["seconds"] >= ranks / 5000  # the directory's requests
        assert found["broadcast"]["bytes"] >= (ranks - 1) * COSTS.placement
        assert found["broadcast"]["seconds"] >= COSTS.pack + ranks * 16 * COSTS.message


def test_the_table_of_ranks_is_written(tmp_path: Path) -> None:
    try:
        require_mpi()
    except CannotRunError as why:
        pytest.skip(str(why))
    shape = ["--words", "8", "--batch", "1", "--width", "16", "--heads", "2", "--layers", "1"]
    result = CliRunner().invoke(
        main, [*shape, "--ranks", "1", "--by", "sequence", "--out", str(tmp_path)], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    table = (tmp_path / "parallel.md").read_text()
    (row,) = (line for line in table.splitlines() if line.startswith("| sequence | 1 |"))
    assert " 1.0000 " in row
