"""Mixed-integer programs, given to HiGHS or CBC through PuLP (the extra ``mip``); for every solver that makes one.

HiGHS solves them without presolve. With it, HiGHS 1.13 to 1.15 called answers the best that were not, in 24 of 3,760
programs of the scheduling tests; 460 packing programs took as long with it as without.
"""

from __future__ import annotations

from typing import Any

from ..common.errors import MissingDependencyError

# Wall-clock seconds where the caller names no limit.
DEFAULT_LIMIT = 60.0


def require_pulp(solver: str) -> Any:
    """Return PuLP.

    Parameters
    ----------
    solver
        The solver that needs it, for the message.

    Raises
    ------
    MissingDependencyError
        PuLP is not installed, or it finds neither HiGHS nor CBC.
    """
    try:
        import pulp
    except ImportError:
        raise MissingDependencyError(
            f"PuLP is not installed; the solver {solver} needs it: pip install '.[mip]' in stowplan's clone"
        ) from None
    if not pulp.HiGHS().available() and not pulp.PULP_CBC_CMD().available():
        raise MissingDependencyError(
            f"PuLP finds neither HiGHS nor CBC; the solver {solver} needs one: pip install '.[mip]' in stowplan's clone"
        )
    return pulp


def solve_program(program: Any, seconds: float, threads: int) -> bool:
    """Solve a program with HiGHS, or with CBC where it is not installed; whether that found a solution.

    Parameters
    ----------
    program
        PuLP's; every variable has an initial value, from which the search starts. Afterwards its status tells whether
        the solution is proved to be the best.
    seconds
        Wall-clock seconds at most.
    threads
        Threads at most.
    """
    import pulp

    shared = {"msg": False, "timeLimit": seconds, "threads": threads}
    if pulp.HiGHS().available():
        program.solve(_warm_highs(pulp)(**shared, gapRel=0.0, presolve="off"))
    else:
        program.solve(pulp.PULP_CBC_CMD(**shared, gapRel=0, warmStart=True))
    return program.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)


def _warm_highs(pulp: Any) -> Any:
    import highspy

    class WarmHighs(pulp.HiGHS):  # type: ignore[misc]
        """PuLP's binding does not pass initial values on."""

        def callSolver(self, lp: Any) -> None:  # noqa: N802
            solution = highspy.HighsSolution()
            solution.col_value = [variable.varValue for variable in lp.variables()]
            lp.solverModel.setSolution(solution)
            super().callSolver(lp)

    return WarmHighs
