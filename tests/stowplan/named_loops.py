"""Programs of many kinds, and the line of each that a person calls its step.

They are written as people write them, who know nothing of stowplan: those in the folder ``loops``, and some of the
experiments' in a small size. Where a library runs the loop, a person names the
line that calls the library.
"""

from __future__ import annotations

from pathlib import Path

from experiments.programs.catalogue import SCRIPTS

FOLDER = Path(__file__).with_name("loops")

NAMED = {
    "lorenz96": "solution = solve_ivp(lorenz96, (0, 1.5), start, rtol=1e-5, t_eval=[0.5, 1.0, 1.5])",
    "deconvolution": "for k in range(iterations):",
    "finite_volume": "for _ in range(steps):",
    "heat_implicit": "for step in range(steps):",
    "jacobi": "for k in range(iterations):",
    "lattice_boltzmann": "for k in range(steps):",
    "mlp_adam": "for i in range(0, len(order), batch):",
    "particle_filter": "for bearing in bearings:",
    "shallow_water": "for k in range(steps):",
    "video": "for frame in frames:",
    "wave_levels": "for k in range(steps):",
}
"""By program: the text of the line."""


NEEDS = dict.fromkeys(("deconvolution", "heat_implicit", "lorenz96"), "scipy")
"""By program: the package that it imports beside NumPy."""

SIZES = {
    "deconvolution": ("15",),
    "finite_volume": ("40", "80"),
    "heat_implicit": ("12", "60"),
    "jacobi": ("120", "200"),
    "lattice_boltzmann": ("20",),
    "mlp_adam": ("3",),
    "particle_filter": ("80", "5000"),
    "shallow_water": ("60",),
    "video": ("60", "120", "160"),
    "wave_levels": ("120",),
}
"""By program of the experiments: its arguments."""


def script(program: str) -> Path:
    """Return the file of a program."""
    return (SCRIPTS if program in SIZES else FOLDER) / f"{program}.py"


def command(program: str) -> list[str]:
    """Return the file of a program, and its arguments."""
    return [str(script(program)), *SIZES.get(program, ())]


def named_line(program: str) -> int:
    """Return the number of the line that a person names."""
    lines = script(program).read_text().splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if line.strip() == NAMED[program]]
    return found
