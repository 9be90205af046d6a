"""tools/preflight.py with real compilers and folders that are not what they should be."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from ..children import Done, python

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "preflight.py"


@pytest.fixture(scope="module")
def preflight() -> ModuleType:
    spec = importlib.util.spec_from_file_location("preflight", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(**environment: str) -> Done:
    return python(SCRIPT, **environment)


def test_silent_where_all_is_there() -> None:
    done = run()  # stowplan was built here, so all of it is
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("compiler", "reason"), [("/nowhere/g++", "No such file or directory"), ("false", "exit status 1")]
)
def test_no_compiler(compiler: str, reason: str) -> None:
    done = run(CXX=compiler)
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"stowplan: missing: a C++17 compiler: {compiler}: {reason} (Debian and Ubuntu: apt"
    )
    assert len(done.stderr.splitlines()) == 1


def test_a_compiler_too_old_for_the_standard(tmp_path: Path, preflight: ModuleType) -> None:
    compiler = tmp_path / "old-g++"
    compiler.write_text("#!/bin/sh\necho \"error: unrecognized option '-std=c++17'\" >&2\nexit 1\n")
    compiler.chmod(0o755)
    assert "unrecognized option '-std=c++17'" in preflight.compiler(str(compiler))


def test_no_headers(tmp_path: Path, preflight: ModuleType) -> None:
    assert preflight.headers() is None
    assert "apt install python3-dev" in preflight.headers(str(tmp_path))
    (tmp_path / "Python.h").touch()
    assert preflight.headers(str(tmp_path)) is None


def test_python_too_old(preflight: ModuleType) -> None:
    assert preflight.python((3, 10, 0)) is None
    assert "is 3.9.18" in preflight.python((3, 9, 18))


def test_no_venv_module() -> None:
    code = f"import runpy, sys; sys.modules['ensurepip'] = None; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    # A module that is None in sys.modules has no spec: as on a Debian without python3-venv.
    done = python("-c", code)
    assert done.returncode == 1
    assert done.stderr == (
        "stowplan: missing: the Python module ensurepip (Debian and Ubuntu: apt install python3-venv)\n"
    )
