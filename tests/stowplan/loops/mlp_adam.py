"""A perceptron with two hidden layers, trained by Adam on a spiral."""

import numpy as np

rng = np.random.default_rng(0)
classes, per_class = 3, 600
theta = np.linspace(0, 4, per_class)
x = np.concatenate(
    [np.stack([theta * np.sin(theta + k * 2.1), theta * np.cos(theta + k * 2.1)], 1) for k in range(classes)]
)
x += rng.normal(0, 0.1, x.shape)
y = np.repeat(np.arange(classes), per_class)

sizes = [2, 128, 128, classes]
weights = [rng.normal(0, np.sqrt(2 / a), (a, b)) for a, b in zip(sizes[:-1], sizes[1:])]
biases = [np.zeros(b) for b in sizes[1:]]
moments = [(np.zeros_like(w), np.zeros_like(w)) for w in weights]
batch_size, t = 100, 0

for epoch in range(12):
    order = rng.permutation(len(x))
    x, y = x[order], y[order]
    loss = 0.0
    for start in range(0, len(x), batch_size):
        t += 1
        xb, yb = x[start : start + batch_size], y[start : start + batch_size]
        activations = [xb]
        for w, b in zip(weights[:-1], biases[:-1]):
            activations.append(np.maximum(activations[-1] @ w + b, 0))
        logits = activations[-1] @ weights[-1] + biases[-1]
        logits -= logits.max(axis=1, keepdims=True)
        p = np.exp(logits)
        p /= p.sum(axis=1, keepdims=True)
        loss -= np.log(p[np.arange(len(yb)), yb]).mean()
        delta = p.copy()
        delta[np.arange(len(yb)), yb] -= 1
        delta /= len(yb)
        for k in reversed(range(len(weights))):
            gw, gb = activations[k].T @ delta, delta.sum(axis=0)
            if k:
                delta = (delta @ weights[k].T) * (activations[k] > 0)
            m, v = moments[k]
            m[:] = 0.9 * m + 0.1 * gw
            v[:] = 0.999 * v + 0.001 * gw**2
            weights[k] -= 0.003 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
            biases[k] -= 0.003 * gb
    if epoch % 4 == 3:
        hidden = x
        for w, b in zip(weights[:-1], biases[:-1]):
            hidden = np.maximum(hidden @ w + b, 0)
        accuracy = ((hidden @ weights[-1] + biases[-1]).argmax(axis=1) == y).mean()
        print(f"epoch {epoch + 1}: loss {loss:.3f}, accuracy {accuracy:.3f}")
