"""Small NumPy programs, as people write them, that repeat something."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Step = Callable[[], AbstractContextManager[object]]
AfterStep = Callable[[], object]


def nothing() -> None:
    """Do nothing after a step."""


def laplacian(u: Array) -> Array:
    return np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u


def rotation(levels: int, steps: int, step: Step = nullcontext, after_step: AfterStep = nothing) -> Array:
    """Integrate a wave with a multistep method that has so many time levels, the new one among them."""
    past = [np.exp(-((np.linspace(-3, 3, 64)[:, None] ** 2) + np.linspace(-3, 3, 64) ** 2))] * (levels - 1)
    weights = 1 / np.arange(1, levels)
    weights /= weights.sum()
    for _ in range(steps):
        with step():
            new = 0.01 * laplacian(past[0])
            for weight, level in zip(weights, past, strict=True):
                new += weight * level
            past = [new, *past[:-1]]
            del new, level
        after_step()
    return past[0]


def solver(counts: Iterable[int], step: Step = nullcontext, parts: int = 4) -> Array:
    """Make implicit time steps: each solves a system by so many iterations of Richardson's, for several fields."""
    u = np.random.default_rng(0).random((48, 48))
    for count in counts:
        with step():
            fields = [u * (1 + i) for i in range(parts)]
            right = [field - 0.1 * np.roll(field, i, 0) for i, field in enumerate(fields)]
            x = u.copy()
            for _ in range(count):
                residual = right[0] - x + 0.05 * laplacian(x)
                x += 0.5 * residual
                del residual
            u = (x + sum(right[1:], fields[0])) / (parts + 1)
            del fields, right, x
    return u


def phases(iterations: int) -> tuple[Array, Array, float]:
    """Cluster points by k-means, fit a mixture by EM from there, and sample its means by Metropolis."""
    rng = np.random.default_rng(1)
    points = np.concatenate([rng.normal(centre, 1, (150, 2)) for centre in (-3.0, 0.0, 3.0)])
    means = points[[0, 200, 400]].copy()
    for _ in range(iterations):
        distance = ((points[:, None] - means) ** 2).sum(-1)
        member = np.eye(3)[distance.argmin(1)]
        means = (member.T @ points) / (member.sum(0)[:, None] + 1e-9)
        del distance, member
    weight, variance = np.full(3, 1 / 3), np.ones(3)
    for _ in range(iterations):
        square = ((points[:, None] - means) ** 2).sum(-1)
        density = weight * np.exp(-square / (2 * variance)) / variance
        share = density / density.sum(1, keepdims=True)
        total = share.sum(0)
        weight, variance = total / len(points), (share * square).sum(0) / (2 * total)
        means = (share.T @ points) / total[:, None]
        del square, density, share, total
    accepted = 0.0
    energy = np.inf
    for _ in range(iterations):
        proposal = means + rng.normal(0, 0.1, means.shape)
        square = ((points[:, None] - proposal) ** 2).sum(-1)
        likelihood = np.log((weight * np.exp(-square / (2 * variance))).sum(1))
        new = -float(likelihood.sum())
        if np.log(rng.random()) < energy - new:
            means, energy, accepted = proposal, new, accepted + 1
        del proposal, square, likelihood
    return means, variance, accepted


def perceptron(epochs: int) -> list[float]:
    """Train a perceptron by Adam on batches of 32, the last one of 13, and validate every epoch."""
    rng = np.random.default_rng(2)
    x, y = rng.random((301, 40)), rng.random((301, 5))
    shapes = (40, 64), (64, 5)
    parameters = [rng.normal(0, 0.1, shape) for shape in shapes]
    moments = [(np.zeros(shape), np.zeros(shape)) for shape in shapes]
    losses = []
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for begin in range(0, len(x), 32):
            rows = order[begin : begin + 32]
            batch, target = x[rows], y[rows]
            hidden = np.maximum(batch @ parameters[0], 0)
            error = hidden @ parameters[1] - target
            losses.append(float((error**2).mean()))
            back = (error @ parameters[1].T) * (hidden > 0)
            for number, gradient in enumerate((batch.T @ back, hidden.T @ error)):
                first, second = moments[number]
                first += 0.1 * (gradient - first)
                second += 0.001 * (gradient**2 - second)
                parameters[number] -= 0.001 * first / (np.sqrt(second) + 1e-8)
            del rows, batch, target, hidden, error, back, gradient
        losses.append(float(((np.maximum(x @ parameters[0], 0) @ parameters[1] - y) ** 2).mean()))
    return losses
