"""Bootstrap the coefficients of a regression."""

import numpy as np

rng = np.random.default_rng(4)
n = 2_500
X = np.column_stack([np.ones(n), rng.normal(size=(n, 8))])
y = X @ np.arange(9) + rng.standard_t(3, size=n)


def fit(X, y):
    coefficients, *_ = np.linalg.lstsq(X, y, rcond=None)
    return coefficients


estimates = []
for replicate in range(150):
    rows = rng.integers(0, n, n)
    estimates.append(fit(X[rows], y[rows]))
low, high = np.percentile(estimates, [2.5, 97.5], axis=0)
print((high - low).round(3))
