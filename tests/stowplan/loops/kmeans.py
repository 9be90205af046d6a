"""Colours of a picture by k-means, from several beginnings."""

import numpy as np


def kmeans(points, k, rng, iterations=25):
    centres = points[rng.choice(len(points), k, replace=False)]
    for iteration in range(iterations):
        distances = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
        labels = distances.argmin(axis=1)
        new = np.array(
            [points[labels == j].mean(axis=0) if (labels == j).any() else centres[j] for j in range(k)]
        )
        if np.allclose(new, centres):
            break
        centres = new
    return centres, distances.min(axis=1).sum()


rng = np.random.default_rng(0)
picture = np.concatenate(
    [rng.normal(c, 20, (3_000, 3)) for c in ((200, 30, 30), (30, 180, 40), (60, 60, 220))]
)
best = None
for start in range(4):
    centres, inertia = kmeans(picture, 6, rng)
    if best is None or inertia < best[1]:
        best = centres, inertia
print(f"{best[1]:.0f}")
