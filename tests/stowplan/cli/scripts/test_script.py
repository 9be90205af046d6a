"""Programs in all the forms that python takes: beside ``python`` itself, in processes of their own."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stowplan.cli.scripts.script import Script, _status
from stowplan.errors import ScriptError

from ....children import Done
from ....children import python as program

ABOUT = """
import sys
import numpy as np
{imported}
spec = __spec__ and (__spec__.name, __spec__.parent)
print(sys.argv, sys.path[0], __name__, __package__, __file__, spec, type(__loader__).__name__, helper.NAME)
print(sys.modules["__main__"].__dict__ is globals(), __doc__, __builtins__.__name__)
"""
HELPER = "NAME = __name__\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "about.py").write_text(ABOUT.format(imported="import helper"))
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("import numpy\nnumpy.ones(3000)\n")
    (package / "helper.py").write_text(HELPER)
    for name in ("__main__", "part"):
        (package / f"{name}.py").write_text(ABOUT.format(imported="from . import helper"))
    application = tmp_path / "app"
    application.mkdir()
    (application / "helper.py").write_text(HELPER)
    (application / "__main__.py").write_text(ABOUT.format(imported="import helper"))
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as archive:
        for file in application.iterdir():
            archive.write(file, file.name)
    return tmp_path


def served(*arguments: str, folder: Path, stdin: str | None = None) -> Done:
    return program("-m", "stowplan", "run", *arguments, folder=folder, stdin=stdin)


@pytest.mark.parametrize(
    "arguments",
    [
        ["about.py", "-x", "--json"],
        ["pkg/../about.py"],
        ["-m", "pkg", "a"],
        ["-m", "pkg.part", "--stats", "b"],
        ["-m", "about"],
        ["app", "-m", "c"],
        ["app.pyz"],
    ],
)
def test_it_runs_as_under_python(arguments: list[str], folder: Path) -> None:
    plain, done = program(*arguments, folder=folder), served(*arguments, folder=folder)
    assert plain.returncode == 0, plain.stderr
    assert (done.returncode, done.stdout) == (0, plain.stdout), done.stderr


def test_standard_input_is_a_script(folder: Path) -> None:
    text = "import sys, helper\nprint(sys.argv, repr(sys.path[0]), __name__, __spec__)"
    plain, done = (run("-", "a", folder=folder, stdin=text) for run in (program, served))
    assert (done.returncode, done.stdout) == (0, plain.stdout), done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "raise SystemExit(('no', 'data'))",
        "import atexit\natexit.register(lambda: print('end', __import__('__main__').__file__))\nraise SystemExit(4)",
        "def f():\n    return 1 / 0\nf()",
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('x') from e",
        "import sys\nsys.excepthook = lambda *about: print('hook', about[0].__name__)\nraise OSError",
        "raise GeneratorExit",
    ],
)
def test_it_ends_as_under_python(code: str, tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text(code)
    plain, done = (run("ends.py", folder=tmp_path) for run in (program, served))
    said = done.stderr.splitlines()
    while said and (said[-1].startswith("stowplan: ") or said[-1].startswith("  it did not help")):
        said.pop()
    assert (done.returncode, done.stdout, said) == (plain.returncode, plain.stdout, plain.stderr.splitlines())


@pytest.mark.parametrize(("code", "status"), [(None, 0), (-1, 255), (True, 1), (259, 3)])
def test_exit_codes_are_python_s(code: object, status: int) -> None:
    assert _status(code) == status


def test_functions_of_main_reach_processes_that_are_spawned(tmp_path: Path) -> None:
    text = """
import multiprocessing, pickle
import numpy as np

class Point:
    x = 3

def double(n):
    return n * 2

if __name__ == "__main__":
    assert type(pickle.loads(pickle.dumps(Point()))) is Point
    with multiprocessing.get_context("spawn").Pool(1) as workers:
        print(workers.map(double, [1, 2]))
"""
    (tmp_path / "spawns.py").write_text(text)
    for arguments in (["spawns.py"], ["-m", "spawns"]):
        done = served(*arguments, folder=tmp_path)
        assert (done.returncode, done.stdout) == (0, "[2, 4]\n"), done.stderr


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have programs run in this process, which is put back afterwards."""
    (folder / "empty").mkdir()
    (folder / "empty" / "__init__.py").write_text("")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in ("empty", "helper", "pkg")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("target", "module", "step_function", "message"),
    [
        ("nothing.at.all", True, None, "there is no module named nothing.at.all"),
        ("pkg.nothing", True, None, "there is no module named pkg.nothing"),
        ("empty", True, None, "a package without __main__"),
        (".pkg", True, None, "expected a module's name from"),
        ("empty", False, None, "no __main__.py in it"),
        ("none.py", False, None, r"none\.py"),
        ("pkg", True, "__main__:f", "there is no function f"),
        ("about.py", False, "json:no.where", "json:no.where cannot be had"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_cannot_be_run_is_said(
    target: str, module: bool, step_function: str | None, message: str
) -> None:
    with pytest.raises((ScriptError, OSError), match=message):
        Script(target, module=module).run([], step_function)


@pytest.mark.parametrize(("target", "module"), [("about.py", False), ("app", False), ("pkg.part", True)])
@pytest.mark.usefixtures("here")
def test_programs_run_in_the_process_that_they_are_given(
    target: str, module: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Script(target, module=module).run(["a"]) == 0
    assert "'a'] " in capsys.readouterr().out
    Path("ends.py").write_text("def f():\n    raise SystemExit('no data')\nf()")
    assert (Script("ends.py").run([], "__main__:f"), capsys.readouterr().err) == (1, "no data\n")


def test_a_fault_of_the_package_s_own_is_shown_in_python_s_words(folder: Path) -> None:
    (folder / "broken").mkdir()
    (folder / "broken" / "__init__.py").write_text("import absent")
    done = served("-m", "broken.part", folder=folder)
    assert (done.returncode, "Traceback" in done.stderr) == (1, True)
    assert "No module named 'absent'" in done.stderr


STEPS = """
import numpy as np

def step():
    return float((np.ones(4000) * 2).sum())

class Loop:
    @staticmethod
    def once():
        return step()
    @classmethod
    def again(cls):
        return step()

if __name__ == "__main__":
    import steps
    for _ in range(30):
        step(), Loop.once(), Loop.again(), steps.step(), steps.Loop.once(), steps.Loop.again()
"""


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        ("__main__:step", ["steps.py"], 90),
        ("__main__:Loop.once", ["-m", "steps"], 30),
        ("steps:Loop.once", ["steps.py"], 30),
        ("steps:Loop.again", ["steps.py"], 30),
        ("__main__:step", ["."], 90),
    ],
)
def test_step_functions_of_all_programs(
    function: str, arguments: list[str], expected: int, tmp_path: Path
) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    (tmp_path / "__main__.py").write_text(STEPS)
    done = served("--json", "--step-function", function, *arguments, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    # One may be found before the first is marked.
    assert figures["numpy"]["steps"] in (expected, expected + 1)
    assert figures["exit_status"] == 0
