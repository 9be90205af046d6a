"""Flow round a cylinder by the lattice Boltzmann method with nine velocities."""

import numpy as np

nx, ny, tau = 120, 60, 0.6
c = np.array([(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)])
w = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
opposite = [0, 3, 4, 1, 2, 7, 8, 5, 6]


def equilibrium(rho, u):
    cu = 3 * np.einsum("qd,dxy->qxy", c, u)
    usq = 1.5 * (u**2).sum(axis=0)
    return rho * w[:, None, None] * (1 + cu + 0.5 * cu**2 - usq)


x, y = np.meshgrid(np.arange(nx), np.arange(ny), indexing="ij")
cylinder = (x - 30) ** 2 + (y - 30) ** 2 < 64
u = np.zeros((2, nx, ny))
u[0] = 0.08 * (1 + 1e-3 * np.sin(y / ny * 2 * np.pi))
f = equilibrium(np.ones((nx, ny)), u)
inflow = f[:, 0].copy()

for t in range(100):
    for q in range(9):
        f[q] = np.roll(f[q], c[q], axis=(0, 1))
    f[:, 0] = inflow
    bounced = f[opposite][:, cylinder]
    rho = f.sum(axis=0)
    u = np.einsum("qd,qxy->dxy", c, f) / rho
    f -= (f - equilibrium(rho, u)) / tau
    f[:, cylinder] = bounced
    if t % 50 == 0:
        vorticity = np.gradient(u[1], axis=0) - np.gradient(u[0], axis=1)
        print(t, f"{np.abs(vorticity[~cylinder]).max():.3f}")
print(f"{rho.mean():.5f}")
