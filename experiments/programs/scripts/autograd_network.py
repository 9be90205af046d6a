"""A regression with a small network, differentiated by autograd."""

import hashlib
import sys

import autograd.numpy as np
import numpy as onp
from autograd import grad


def predict(params, x):
    for w, b in params[:-1]:
        x = np.tanh(np.dot(x, w) + b)
    w, b = params[-1]
    return np.dot(x, w) + b


def loss(params, x, y):
    penalty = sum(np.sum(w**2) for w, _ in params)
    return np.mean((predict(params, x) - y) ** 2) + 1e-4 * penalty


def main(steps=100):
    rng = onp.random.default_rng(0)
    sizes = [16, 200, 200, 1]
    params = [(rng.normal(0, 1 / m**0.5, (m, n)), onp.zeros(n)) for m, n in zip(sizes, sizes[1:])]
    x = rng.normal(size=(1000, 16))
    y = onp.sin(x.sum(axis=1, keepdims=True)) + 0.1 * rng.normal(size=(1000, 1))
    gradient = grad(loss)
    for k in range(steps):
        grads = gradient(params, x, y)
        params = [(w - 0.05 * dw, b - 0.05 * db) for (w, b), (dw, db) in zip(params, grads)]
        if k % 50 == 0:
            print(k, float(loss(params, x, y)))
    print(hashlib.sha256(b"".join(a.tobytes() for pair in params for a in pair)).hexdigest())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
