"""Fit a curve by a genetic algorithm."""

import numpy as np

rng = np.random.default_rng(11)
t = np.linspace(0, 10, 800)
target = 2 * np.sin(1.3 * t + 0.4) * np.exp(-0.1 * t)


def fitness(genes):
    amplitude, frequency, phase, decay = genes
    curve = amplitude * np.sin(frequency * t + phase) * np.exp(-decay * t)
    return -np.mean((curve - target) ** 2)


def tournament(population, scores):
    a, b = rng.integers(len(population), size=(2, len(population)))
    return population[np.where(scores[a] > scores[b], a, b)]


def evolve(generations=60, size=60):
    population = rng.uniform([0, 0, 0, 0], [4, 3, 3, 1], size=(size, 4))
    for generation in range(generations):
        scores = np.array([fitness(genes) for genes in population])
        elite = population[scores.argmax()].copy()
        parents = tournament(population, scores)
        mates = parents[rng.permutation(size)]
        children = np.where(rng.random((size, 4)) < 0.5, parents, mates)
        children += rng.normal(0, 0.05, (size, 4)) * (rng.random((size, 4)) < 0.3)
        children[0] = elite
        population = children
    return elite, scores.max()


best, score = evolve()
print(best.round(2), f"{score:.5f}")
