"""The table of split ranks."""

from __future__ import annotations

from pathlib import Path

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


def test_the_table_of_ranks_is_written(tmp_path: Path) -> None:
    try:
        require_mpi()
    except CannotRunError as why:
        pytest.skip(str(why))
    shape = ["--shape", "8", "1", "16", "2", "1"]
    result = CliRunner().invoke(
        main, [*shape, "--ranks", "1", "--by", "sequence", "--out", str(tmp_path)], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    table = (tmp_path / "parallel.md").read_text()
    (row,) = (line for line in table.splitlines() if line.startswith("| sequence | 1 |"))
    assert " 1.0000 " in row
