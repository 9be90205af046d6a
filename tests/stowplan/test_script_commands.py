"""``stowplan profile`` and ``stowplan run``: programs that do not mention it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stowplan import NumpyRecorder, Profile

from ..children import stowplan as program
from .command_line import refused

LOOP = """
import sys
import numpy as np

class Pond:
    def __init__(self):
        self.u = np.zeros((100, 100))

    def step(self):
        change = np.roll(self.u, 1, 0) - self.u
        self.u = (self.u
                  + 0.5 * change)

def main(steps):
    from waiting import for_plans
    pond = Pond()
    pond.u[3, 3] = 1
    for number in range(steps):
        pond.step()
        if number < 400 and number % 20 == 19:  # plans are made beside the program
            for_plans()
    print(sys.argv[1:], __name__, pond.u.sum())

main(200)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "pond.py"
    path.write_text(LOOP)
    shutil.copy(Path(__file__).with_name("waiting.py"), tmp_path)
    return path


def test_profile_finds_the_step_and_its_call_sites(script: Path) -> None:
    done = program("profile", "--stacks", "0", "pond.py", "--big", "-o", "x", folder=script.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['--big', '-o', 'x'] __main__ 1.0\n"
    assert "the step that it repeats" in done.stderr
    profile = Profile.load(script.parent / "pond.profile")
    assert {site.rpartition("/")[2] for site in profile.sites} >= {"pond.py:10 step", "pond.py:12 step"}
    ends = {profile.sites[i].rpartition(":")[2] for i in profile.site}
    assert ends == {"10 step", "11 step", "12 step"}
    # Who called it.
    assert {profile.sites[i].partition(" > ")[0] for i in profile.site} == {f"{script}:19 main"}
    assert set(profile.size.tolist()) == {80_000}


@pytest.mark.parametrize("function", ["__main__:Pond.step", "__main__:main"])
def test_a_step_function(script: Path, function: str) -> None:
    done = program("profile", "--step-function", function, "--no-sites", "pond.py", folder=script.parent)
    assert done.returncode == 0, done.stderr
    profile = Profile.load(script.parent / "pond.profile")
    assert profile.sites == ()
    if function.endswith("main"):  # it is called once
        assert "no step was repeated" in done.stderr
        assert len(profile) > 200
    else:
        assert len(profile) == 2 * 4  # the wave needs two places in turn


def test_run_serves_the_script_and_says_so(script: Path) -> None:
    script.write_text(LOOP.replace("main(200)", "main(2000)\nsys.exit(3)"))
    done = program("run", "--stats", "stats.json", "pond.py", "a", folder=script.parent)
    assert done.returncode == 3
    assert done.stdout.startswith("['a'] __main__ 1.0")
    said, cost = done.stderr.splitlines()
    assert "allocations from the pool's heap, no step marked; peak reserved" in said
    assert re.fullmatch(r"stowplan: [\d.]+ s of CPU time, [\d,]+ page faults", cost)
    figures = json.loads((script.parent / "stats.json").read_text())
    assert figures["exit_status"] == 3
    assert figures["numpy"]["reasons"] == {"heap_only": figures["numpy"]["requests"]}
    assert figures["numpy"]["requests"] > 2000


def test_ctrl_c_keeps_what_was_seen(script: Path) -> None:
    heard = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell's background hears it not
    wait = f"import signal, time\n{heard}\nprint('ready', flush=True)\ntime.sleep(600)"
    script.write_text(LOOP.replace("main(200)", f"main(400)\n{wait}"))
    command = [sys.executable, "-m", "stowplan", "profile", "pond.py"]
    with subprocess.Popen(
        command, cwd=script.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        while "ready" not in run.stdout.readline():
            assert run.poll() is None
        os.kill(run.pid, signal.SIGINT)
        _, errors = run.communicate(timeout=600)
    assert run.returncode == 130, errors
    assert len(Profile.load(script.parent / "pond.profile")) == 2 * 4


def test_a_script_that_fails_leaves_an_earlier_profile_alone(script: Path) -> None:
    earlier = script.parent / "pond.profile"
    earlier.write_bytes(b"earlier")
    script.write_text(LOOP + "\nraise OSError('disk full')\n")
    done = program("profile", "pond.py", folder=script.parent)
    assert (done.returncode, "pond.profile stays as it was" in done.stderr) == (1, True), done.stderr
    assert earlier.read_bytes() == b"earlier"
    script.write_text("import numpy\nnumpy.ones(3)\n")
    done = program("profile", "pond.py", folder=script.parent)
    assert (done.returncode, "allocated no block" in done.stderr) == (1, True), done.stderr
    assert earlier.read_bytes() == b"earlier"


def test_a_script_in_place_of_its_profile_is_recognized(script: Path) -> None:
    assert "pond.py: a Python script (record it first: stowplan profile SCRIPT)" in refused("show", script)


# ------------------------------------------------------------------------------------------------------------ pieces


LIBRARY_ASKS = """
import textwrap, types
import numpy as np
code = compile("def inner(n):\\n    return np.ones(n)\\ndef outer(n):\\n    return inner(n)", textwrap.__file__, "exec")
library = types.ModuleType("library")
library.np = np
exec(code, library.__dict__)
def step():
    first = library.outer(5000)
    second = np.zeros(5000)
for _ in range(20):
    step()
"""


@pytest.mark.parametrize("stacks", [0, 2, 9])
def test_stacks_add_the_innermost_calls_of_a_library(stacks: int, tmp_path: Path) -> None:
    script = tmp_path / "asks.py"
    script.write_text(LIBRARY_ASKS)
    done = program("profile", "--stacks", str(stacks), script.name, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    profile = Profile.load(tmp_path / "asks.profile")
    sites = {profile.sites[i].rpartition(f"{tmp_path}/")[2] for i in profile.site}
    calls = ["textwrap.py:4 outer", "textwrap.py:2 inner"]
    (own, *called) = next(site for site in sites if site.startswith("asks.py:9 step")).split(" > ")
    assert own == "asks.py:9 step"
    inner = [call for call in called if "textwrap.py" in call]
    # np.ones is Python code of NumPy's: the innermost call of all.
    assert len(called) == min(stacks, 3)
    assert [call.rpartition("/")[2] for call in inner] == calls[max(0, 3 - max(stacks, 1)) :]
    assert "asks.py:10 step" in sites  # np.zeros is compiled: nobody's call is between


def test_call_sites_of_nobody_s_code() -> None:
    recorder = NumpyRecorder(sites=True)
    with recorder:
        for _ in range(2):
            with recorder.step():
                exec(compile("import numpy; numpy.ones(50)", "<string>", "exec"))
                np.ones(60)
                own = np.ones(70)
    profile = recorder.profile()
    names = [profile.sites[i].rpartition("/")[2] for i in profile.site]
    assert [name.split(":")[0] for name in names] == ["test_script_commands.py"] * len(profile)
    assert len(set(names)) == 3
    assert own.base is None
    own.resize(1000, refcheck=False)  # through the handler of a recorder that is gone
    del recorder
    own.resize(3000, refcheck=False)
