"""A long chain of Lorenz's model of 1996, integrated by SciPy."""

import numpy as np
from scipy.integrate import solve_ivp


def lorenz96(t, x, forcing=8.0):
    return (np.roll(x, -1) - np.roll(x, 2)) * np.roll(x, 1) - x + forcing


start = 8.0 + 0.01 * np.random.default_rng(0).normal(size=2_000)
solution = solve_ivp(lorenz96, (0, 1.5), start, rtol=1e-5, t_eval=[0.5, 1.0, 1.5])
print(solution.nfev, solution.y[:3, -1].round(3))
