"""A mixture of Gaussians by expectation and maximization, and its number of parts by BIC."""

import numpy as np


def log_gaussian(x, mean, covariance):
    d = x - mean
    chol = np.linalg.cholesky(covariance)
    z = np.linalg.solve(chol, d.T)
    return -0.5 * (z**2).sum(axis=0) - np.log(np.diag(chol)).sum() - 0.5 * x.shape[1] * np.log(2 * np.pi)


class Mixture:
    def __init__(self, parts, rng):
        self.parts, self.rng = parts, rng

    def fit(self, x, iterations=40):
        self.means = x[self.rng.choice(len(x), self.parts, replace=False)]
        self.covariances = np.array([np.cov(x.T)] * self.parts)
        self.shares = np.full(self.parts, 1 / self.parts)
        for iteration in range(iterations):
            logs = np.stack(
                [
                    np.log(self.shares[k]) + log_gaussian(x, self.means[k], self.covariances[k])
                    for k in range(self.parts)
                ],
                axis=1,
            )
            top = logs.max(axis=1, keepdims=True)
            total = top[:, 0] + np.log(np.exp(logs - top).sum(axis=1))
            members = np.exp(logs - total[:, None])
            weight = members.sum(axis=0)
            self.shares = weight / len(x)
            self.means = (members.T @ x) / weight[:, None]
            for k in range(self.parts):
                d = x - self.means[k]
                self.covariances[k] = (members[:, k, None] * d).T @ d / weight[k] + 1e-6 * np.eye(x.shape[1])
        self.likelihood = total.sum()
        return self


rng = np.random.default_rng(2)
x = np.concatenate([rng.normal(m, s, (1_200, 3)) for m, s in ((0, 1), (4, 0.5), (-3, 1.5))])
for parts in (2, 3, 4):
    model = Mixture(parts, rng).fit(x)
    bic = -2 * model.likelihood + parts * 10 * np.log(len(x))
    print(parts, f"{bic:.0f}")
