"""Confidence intervals of a ridge regression by the bootstrap, in joblib's threads."""

import hashlib
import sys

import numpy as np
from joblib import Parallel, delayed


def fit(x, y, seed, ridge=1.0):
    index = np.random.default_rng(seed).integers(0, len(x), len(x))
    x, y = x[index], y[index]
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    return np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T @ (y - y.mean()))


def main(samples=160, rows=10000, features=40):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, features))
    y = x @ rng.normal(size=features) + rng.normal(size=rows)
    found = Parallel(n_jobs=2, prefer="threads")(delayed(fit)(x, y, seed) for seed in range(samples))
    coefficients = np.array(found)
    low, high = np.quantile(coefficients, (0.025, 0.975), axis=0)
    for a, b in zip(low, high):
        print(float(a), float(b))
    print(hashlib.sha256(coefficients.tobytes()).hexdigest())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
