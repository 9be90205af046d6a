"""A perceptron with Adam in plain NumPy: the last batch is smaller, and each third epoch is validated."""

import hashlib
import sys

import numpy as np


def relu(x):
    return np.maximum(x, 0)


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


class Network:
    def __init__(self, rng, sizes):
        self.params = {}
        for i, (m, n) in enumerate(zip(sizes, sizes[1:])):
            self.params[f"W{i}"] = rng.standard_normal((m, n), dtype=np.float32) * np.float32(np.sqrt(2 / m))
            self.params[f"b{i}"] = np.zeros(n, np.float32)
        self.layers = len(sizes) - 1

    def forward(self, x):
        self.activations = [x]
        for i in range(self.layers):
            x = x @ self.params[f"W{i}"] + self.params[f"b{i}"]
            if i < self.layers - 1:
                x = relu(x)
            self.activations.append(x)
        return softmax(x)

    def backward(self, p, y):
        grads = {}
        delta = p.copy()
        delta[np.arange(len(y)), y] -= 1
        delta /= len(y)
        for i in reversed(range(self.layers)):
            a = self.activations[i]
            grads[f"W{i}"] = a.T @ delta
            grads[f"b{i}"] = delta.sum(axis=0)
            if i:
                delta = (delta @ self.params[f"W{i}"].T) * (a > 0)
        return grads


class Adam:
    def __init__(self, lr=1e-3, b1=0.9, b2=0.999):
        self.lr, self.b1, self.b2, self.t = lr, b1, b2, 0
        self.m, self.v = {}, {}

    def update(self, params, grads):
        self.t += 1
        for key, g in grads.items():
            if key not in self.m:
                self.m[key], self.v[key] = np.zeros_like(g), np.zeros_like(g)
            self.m[key] = self.b1 * self.m[key] + (1 - self.b1) * g
            self.v[key] = self.b2 * self.v[key] + (1 - self.b2) * g * g
            m_hat = self.m[key] / (1 - self.b1**self.t)
            v_hat = self.v[key] / (1 - self.b2**self.t)
            params[key] -= self.lr * m_hat / (np.sqrt(v_hat) + 1e-8)


def main(epochs=18, count=2100, batch=128):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((count, 256), dtype=np.float32)
    y = (x @ rng.standard_normal((256, 10), dtype=np.float32)).argmax(axis=1)
    train, valid = slice(0, 1700), slice(1700, count)
    network, adam = Network(rng, [256, 512, 512, 10]), Adam()
    for epoch in range(epochs):
        order = rng.permutation(1700)
        losses = []
        for i in range(0, len(order), batch):
            index = order[i : i + batch]
            p = network.forward(x[train][index])
            losses.append(-np.log(p[np.arange(len(index)), y[index]] + 1e-12).mean())
            adam.update(network.params, network.backward(p, y[index]))
        if epoch % 3 == 2:
            accuracy = (network.forward(x[valid]).argmax(axis=1) == y[valid]).mean()
            print(epoch, float(np.mean(losses)), float(accuracy))
    print(hashlib.sha256(b"".join(p.tobytes() for p in network.params.values())).hexdigest())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
