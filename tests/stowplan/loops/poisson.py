"""The potential between two plates, by Jacobi's iteration."""

import numpy as np

n = 100
phi = np.zeros((n, n))
fixed = np.zeros((n, n), dtype=bool)
fixed[30, 20:80] = fixed[70, 20:80] = True
phi[30, 20:80], phi[70, 20:80] = 1.0, -1.0

change, sweeps = 1.0, 0
while change > 5e-4:
    neighbours = np.zeros_like(phi)
    neighbours[1:-1, 1:-1] = 0.25 * (phi[:-2, 1:-1] + phi[2:, 1:-1] + phi[1:-1, :-2] + phi[1:-1, 2:])
    updated = np.where(fixed, phi, neighbours)
    change = np.abs(updated - phi).max()
    phi = updated
    sweeps += 1

ex, ey = np.gradient(-phi)
print(sweeps, f"{np.hypot(ex, ey).max():.4f}")
