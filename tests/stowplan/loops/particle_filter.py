"""Follow a target that turns, from its bearings, with a particle filter."""

import numpy as np


def resample(particles, weights, rng):
    positions = (np.arange(len(weights)) + rng.random()) / len(weights)
    return particles[np.searchsorted(np.cumsum(weights), positions).clip(max=len(weights) - 1)]


def follow(bearings, count=5_000, seed=0):
    rng = np.random.default_rng(seed)
    particles = np.column_stack([rng.normal(0, 2, (count, 2)), rng.normal(0, 0.5, (count, 2))])
    path = []
    for bearing in bearings:
        particles[:, :2] += particles[:, 2:]
        particles[:, 2:] += rng.normal(0, 0.05, (count, 2))
        predicted = np.arctan2(particles[:, 1] + 10, particles[:, 0] + 10)
        error = np.angle(np.exp(1j * (predicted - bearing)))
        weights = np.exp(-0.5 * (error / 0.05) ** 2) + 1e-300
        weights /= weights.sum()
        path.append(weights @ particles[:, :2])
        if 1 / (weights**2).sum() < count / 2:
            particles = resample(particles, weights, rng)
    return np.array(path)


truth = np.cumsum(0.3 * np.column_stack([np.cos(np.arange(80) / 15), np.sin(np.arange(80) / 15)]), axis=0)
bearings = np.arctan2(truth[:, 1] + 10, truth[:, 0] + 10)
path = follow(bearings + np.random.default_rng(9).normal(0, 0.02, 80))
print(f"{np.abs(path - truth).mean():.2f}")
