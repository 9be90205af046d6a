"""Hamiltonian Monte Carlo for a regression with a horseshoe-like prior."""

import numpy as np

rng = np.random.default_rng(5)
n, d = 3_000, 40
X = rng.normal(size=(n, d))
beta = np.where(rng.random(d) < 0.2, rng.normal(size=d), 0)
y = X @ beta + rng.normal(size=n)


def potential(q):
    residual = y - X @ q
    return 0.5 * residual @ residual + np.log1p((q / 0.1) ** 2).sum()


def gradient(q):
    residual = y - X @ q
    return -X.T @ residual + 2 * q / (0.01 + q**2)


def leapfrog(q, p, step, count):
    p = p - 0.5 * step * gradient(q)
    for _ in range(count - 1):
        q = q + step * p
        p = p - step * gradient(q)
    q = q + step * p
    return q, p - 0.5 * step * gradient(q)


q, draws = np.zeros(d), []
for draw in range(150):
    p = rng.normal(size=d)
    new_q, new_p = leapfrog(q, p, 0.008, 6)
    before = potential(q) + 0.5 * p @ p
    after = potential(new_q) + 0.5 * new_p @ new_p
    if np.log(rng.random()) < before - after:
        q = new_q
    draws.append(q)
print(np.mean(draws[50:], axis=0)[:4].round(2))
