"""Which loop of a program ``stowplan profile`` calls its step, beside the one that a person names."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from stowplan import Profile

from ..children import stowplan
from .named_loops import NAMED, NEEDS, command, named_line, script


def profiled(folder: Path, *arguments: str) -> str:
    """Profile a program, by options, its file and its arguments; return what stowplan says of it."""
    done = stowplan("profile", "-o", "step.profile", *arguments, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stderr


def chosen_line(said: str) -> tuple[str, int]:
    """Return file and line of the step that is marked in the list of those that were found."""
    found = re.search(r"^ \*\s*\d+  (\S+):(\d+) ", said, re.MULTILINE)
    assert found, said
    return found[1], int(found[2])


@pytest.mark.parametrize(
    ("named", "wrong"), [(list(NAMED)[::4], 0), pytest.param(list(NAMED), 2, marks=pytest.mark.slow)]
)
def test_loops_are_named_as_a_person_names_them(named: list[str], wrong: int, tmp_path: Path) -> None:
    programs = [name for name in named if find_spec(NEEDS.get(name, "numpy"))]
    others = []
    for name in programs:
        file, line = chosen_line(profiled(tmp_path, *command(name)))
        if (file, line) != (str(script(name)), named_line(name)):
            others.append(
                f"{name}: line {line} of {file}; a person names line {named_line(name)}, {NAMED[name]}"
            )
    print(f"{len(programs) - len(others)} of {len(programs)} are named as a person names them")
    assert len(others) <= wrong, "\n".join(others)


PHASES = """
import numpy as np

def clean(images):
    for image in images:
        kept.append(np.sqrt(image * 2)[::2].copy())

kept = []
clean([np.ones((200, 100)) for _ in range(30)])
for round in range(50):
    a = np.ones((SIDE, SIDE))
    b = a * 2 + 1
print(len(kept))
"""
"""The peak is in the line 5: 30 images and 30 halves. The loop in line 10 asks for most."""


def test_all_steps_are_listed_with_shares_and_peaks(tmp_path: Path) -> None:
    (tmp_path / "phases.py").write_text(PHASES.replace("SIDE", "300"))
    said = profiled(tmp_path, "phases.py")
    rows = dict(re.findall(r"^ [ *]\s*\d+  \S*phases.py:(\d+) .*\n +(.*)$", said, re.MULTILINE))
    assert list(rows) == ["9", "5", "10"]
    assert re.fullmatch(r"30 times, 3 blocks; .* 13.\d% of all bytes; .*; holds 312 KiB of .*", rows["5"])
    assert re.fullmatch(r"50 times, 2 blocks; .* 81.\d% of all bytes; peak 1.4 MiB", rows["10"])
    assert chosen_line(said)[1] == 10
    assert "\nstowplan: peak of the whole run: " in said
    assert set(Profile.load(tmp_path / "step.profile").size.tolist()) == {720_000}
    other = profiled(tmp_path, "--step", "2", "phases.py")
    assert "step 2 of those that it repeats: 3 blocks" in other
    assert Profile.load(tmp_path / "step.profile").size.max() == 160_000


@pytest.mark.parametrize(
    ("options", "why"),
    [(("--no-sites",), "loops are not detected without call sites"), ((), "no step was repeated")],
)
def test_a_program_without_loops_of_its_own(tmp_path: Path, options: tuple[str, ...], why: str) -> None:
    """Functions in C call the program's."""
    text = "import numpy as np\n\ndef f(x):\n    return float((np.ones(500) * x + 1).sum())\n\n"
    (tmp_path / "mapped.py").write_text(f"{text}total = sum(map(f, range(60)))\n")
    assert f"all of the program, as {why}" in profiled(tmp_path, *options, "mapped.py")
    assert len(Profile.load(tmp_path / "step.profile")) >= 3 * 60
