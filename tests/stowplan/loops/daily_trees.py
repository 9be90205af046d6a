"""Forecast the load of a grid: each day a boosted model of shallow trees is fitted to the last weeks."""

import numpy as np

HOURS, WINDOW, DAYS, TREES = 24, 40, 25, 12


def best_split(x, residual):
    best = (np.inf, 0, 0.0)
    for feature in range(x.shape[1]):
        order = np.argsort(x[:, feature])
        sums = np.cumsum(residual[order])
        counts = np.arange(1, len(order) + 1)
        total = sums[-1]
        left = sums[:-1] ** 2 / counts[:-1]
        right = (total - sums[:-1]) ** 2 / (len(order) - counts[:-1])
        score = -(left + right)
        k = int(score.argmin())
        if score[k] < best[0]:
            best = (score[k], feature, x[order[k], feature])
    return best[1:]


def fit_stump(x, residual):
    feature, threshold = best_split(x, residual)
    left = x[:, feature] <= threshold
    return feature, threshold, residual[left].mean(), residual[~left].mean() if (~left).any() else 0.0


def apply_stump(stump, x):
    feature, threshold, left, right = stump
    return np.where(x[:, feature] <= threshold, left, right)


rng = np.random.default_rng(7)
hours = np.arange((WINDOW + DAYS + 8) * HOURS)
load = (
    10 + 3 * np.sin(2 * np.pi * hours / 24) + np.sin(2 * np.pi * hours / 168) + rng.normal(0, 0.3, len(hours))
)

errors = []
for day in range(DAYS):
    end = (day + WINDOW + 7) * HOURS
    index = np.arange(end - WINDOW * HOURS, end)
    features = np.column_stack([load[index - 24], load[index - 168], index % 24, index // 24 % 7])
    target = load[index]
    prediction = np.full(len(target), target.mean())
    stumps = []
    for tree in range(TREES):
        stump = fit_stump(features, target - prediction)
        prediction = prediction + 0.3 * apply_stump(stump, features)
        stumps.append(stump)
    tomorrow = np.arange(end, end + HOURS)
    new = np.column_stack([load[tomorrow - 24], load[tomorrow - 168], tomorrow % 24, tomorrow // 24 % 7])
    forecast = target.mean() + 0.3 * sum(apply_stump(s, new) for s in stumps)
    errors.append(np.abs(forecast - load[tomorrow]).mean())
print(f"mean absolute error {np.mean(errors):.3f}")
