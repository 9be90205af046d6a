"""Bayesian logistic regression: four chains of Metropolis samples, and their agreement."""

import numpy as np

rng = np.random.default_rng(1)
X = np.column_stack([np.ones(2_000), rng.normal(size=(2_000, 5))])
truth = np.array([0.5, 1.0, -1.0, 0.3, 0.0, 2.0])
y = rng.random(2_000) < 1 / (1 + np.exp(-X @ truth))


def log_posterior(beta):
    eta = X @ beta
    return np.sum(y * eta - np.logaddexp(0, eta)) - 0.5 * beta @ beta / 10


chains = []
for chain in range(4):
    beta = rng.normal(size=6)
    density = log_posterior(beta)
    draws = np.empty((400, 6))
    accepted = 0
    for draw in range(400):
        proposal = beta + 0.06 * rng.normal(size=6)
        proposed = log_posterior(proposal)
        if np.log(rng.random()) < proposed - density:
            beta, density = proposal, proposed
            accepted += 1
        draws[draw] = beta
    chains.append(draws[200:])
    print(f"chain {chain}: {accepted / 400:.2f} accepted")

means = np.array([c.mean(axis=0) for c in chains])
print(means.mean(axis=0).round(2))
