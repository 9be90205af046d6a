"""Heat in a plate with a source that moves, by Crank and Nicolson's scheme and conjugate gradients."""

import numpy as np

SIDE, STEPS, DT = 96, 40, 0.4


def laplacian(u):
    out = -4 * u
    out[1:] += u[:-1]
    out[:-1] += u[1:]
    out[:, 1:] += u[:, :-1]
    out[:, :-1] += u[:, 1:]
    return out


def conjugate_gradients(apply, b, x, tolerance=1e-6):
    r = b - apply(x)
    p = r.copy()
    rr = np.vdot(r, r)
    while rr > tolerance:
        ap = apply(p)
        alpha = rr / np.vdot(p, ap)
        x = x + alpha * p
        r = r - alpha * ap
        new = np.vdot(r, r)
        p = r + (new / rr) * p
        rr = new
    return x


def main():
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    u = np.zeros((SIDE, SIDE))
    for step in range(STEPS):
        angle = 2 * np.pi * step / STEPS
        cx, cy = SIDE * (0.5 + 0.3 * np.cos(angle)), SIDE * (0.5 + 0.3 * np.sin(angle))
        source = np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / 40)
        rhs = u + 0.5 * DT * laplacian(u) + DT * source
        u = conjugate_gradients(lambda v: v - 0.5 * DT * laplacian(v), rhs, u)
    print(f"{u.max():.4f}")


main()
