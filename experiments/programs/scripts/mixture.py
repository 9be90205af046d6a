"""A mixture of Gaussians in three phases: k-means to begin with, then EM, then a Metropolis sampler of the means."""

import hashlib
import sys

import numpy as np


def kmeans(x, centres, iterations):
    for _ in range(iterations):
        distance = ((x[:, None] - centres) ** 2).sum(axis=2)
        nearest = distance.argmin(axis=1)
        centres = np.array([x[nearest == k].mean(axis=0) for k in range(len(centres))])
    return centres


def log_density(x, means, variances, weights):
    square = ((x[:, None] - means) ** 2 / variances).sum(axis=2)
    return np.log(weights) - 0.5 * (square + np.log(2 * np.pi * variances).sum(axis=1))


def em(x, means, iterations):
    variances, weights = np.ones_like(means), np.full(len(means), 1 / len(means))
    for _ in range(iterations):
        logs = log_density(x, means, variances, weights)
        top = logs.max(axis=1, keepdims=True)
        share = np.exp(logs - top)
        share /= share.sum(axis=1, keepdims=True)
        total = share.sum(axis=0)
        means = share.T @ x / total[:, None]
        variances = share.T @ x**2 / total[:, None] - means**2 + 1e-6
        weights = total / len(x)
    return means, variances, weights


def metropolis(rng, x, means, variances, weights, samples):
    def log_posterior(means):
        return np.logaddexp.reduce(log_density(x, means, variances, weights), axis=1).sum()

    now, accepted, chain = log_posterior(means), 0, []
    for _ in range(samples):
        proposed = means + 0.005 * rng.normal(size=means.shape)
        then = log_posterior(proposed)
        if np.log(rng.random()) < then - now:
            means, now, accepted = proposed, then, accepted + 1
        chain.append(means.mean())
    return means, accepted, np.array(chain)


def main(iterations=60, points=12000, clusters=8, dimensions=6):
    rng = np.random.default_rng(0)
    true = rng.normal(0, 3, (clusters, dimensions))
    x = true[rng.integers(0, clusters, points)] + rng.normal(size=(points, dimensions))
    centres = kmeans(x, x[rng.choice(points, clusters, replace=False)], iterations)
    print("k-means", float(centres.sum()))
    means, variances, weights = em(x, centres, iterations)
    print("EM", float(means.sum()), float(weights.max()))
    means, accepted, chain = metropolis(rng, x, means, variances, weights, 2 * iterations)
    print("Metropolis", accepted, float(chain.mean()))
    print(hashlib.sha256(means.tobytes() + chain.tobytes()).hexdigest())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
