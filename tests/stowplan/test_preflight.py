"""tools/preflight.py with real compilers and folders that are not what they should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..children import python

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "preflight.py"


def test_silent_where_all_is_there() -> None:
    done = python(SCRIPT)  # stowplan was built here, so all of it is
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("compiler", "reason"), [("/nowhere/g++", "No such file or directory"), ("false", "exit status 1")]
)
def test_no_compiler(compiler: str, reason: str) -> None:
    done = python(SCRIPT, CXX=compiler)
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"stowplan: missing: a C++17 compiler: {compiler}: {reason} (Debian and Ubuntu: apt"
    )
    assert len(done.stderr.splitlines()) == 1


def test_no_venv_module() -> None:
    code = f"import runpy, sys; sys.modules['ensurepip'] = None; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    # A module that is None in sys.modules has no spec: as on a Debian without python3-venv.
    done = python("-c", code)
    assert done.returncode == 1
    assert done.stderr == (
        "stowplan: missing: the Python module ensurepip (Debian and Ubuntu: apt install python3-venv)\n"
    )
