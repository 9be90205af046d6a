"""Flow past a cylinder: the lattice Boltzmann method, D2Q9 with a single relaxation time."""

import hashlib
import sys

import numpy as np

V = np.array([[1, 1], [1, 0], [1, -1], [0, 1], [0, 0], [0, -1], [-1, 1], [-1, 0], [-1, -1]])
T = np.array([1 / 36, 1 / 9, 1 / 36, 1 / 9, 4 / 9, 1 / 9, 1 / 36, 1 / 9, 1 / 36])


def macroscopic(fin):
    rho = fin.sum(axis=0)
    u = np.zeros((2, *rho.shape))
    for i in range(9):
        u[0] += V[i, 0] * fin[i]
        u[1] += V[i, 1] * fin[i]
    return rho, u / rho


def equilibrium(rho, u):
    usqr = 1.5 * (u[0] ** 2 + u[1] ** 2)
    feq = np.zeros((9, *rho.shape))
    for i in range(9):
        cu = 3 * (V[i, 0] * u[0] + V[i, 1] * u[1])
        feq[i] = rho * T[i] * (1 + cu + 0.5 * cu**2 - usqr)
    return feq


def main(steps=150, nx=420, ny=180):
    radius, speed, omega = ny // 9, 0.04, 1.0 / (3 * 0.04 * (ny // 9) / 100 + 0.5)
    x, y = np.meshgrid(np.arange(nx), np.arange(ny), indexing="ij")
    obstacle = (x - nx // 4) ** 2 + (y - ny // 2) ** 2 < radius**2
    velocity = np.zeros((2, nx, ny))
    velocity[0] = speed * (1 + 1e-4 * np.sin(y / (ny - 1) * 2 * np.pi))
    fin = equilibrium(np.ones((nx, ny)), velocity)
    for k in range(steps):
        fin[6:, -1] = fin[6:, -2]
        rho, u = macroscopic(fin)
        u[:, 0] = velocity[:, 0]
        feq = equilibrium(rho, u)
        fin[:3, 0] = feq[:3, 0] + fin[[8, 7, 6], 0] - feq[[8, 7, 6], 0]
        fout = fin - omega * (fin - feq)
        for i in range(9):
            fout[i, obstacle] = fin[8 - i, obstacle]
        for i in range(9):
            fin[i] = np.roll(np.roll(fout[i], V[i, 0], axis=0), V[i, 1], axis=1)
        if k % 50 == 0:
            print(k, float(np.sqrt(u[0] ** 2 + u[1] ** 2).max()))
    print(hashlib.sha256(fin.tobytes()).hexdigest())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
