"""Waves in a square pond with a stone in it: leapfrog steps of the wave equation on a grid."""

import sys

import numpy as np


def laplacian(u):
    middle = u[1:-1, 1:-1]
    return u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * middle


def main(steps, n=300):
    x = np.linspace(-1, 1, n)
    distance = np.hypot(*np.meshgrid(x, x))
    speed = np.where(distance < 0.3, 0.4, 0.7)[1:-1, 1:-1] ** 2
    now = np.exp(-300 * ((x - 0.6) ** 2 + (x[:, None] + 0.5) ** 2))
    before = now.copy()
    for number in range(steps):
        following = np.zeros_like(now)
        change = speed * laplacian(now)
        following[1:-1, 1:-1] = 2 * now[1:-1, 1:-1] - before[1:-1, 1:-1] + change
        before, now = now, following
        if number % 500 == 0:
            energy = float(((now - before) ** 2).sum())
            print(f"{number:5d} {energy:.17g} {float(now.max()):.17g}")
    print(now.tobytes().count(b"\0"), float(now.sum()))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6000)
