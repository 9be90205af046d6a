"""Predict the next character with a small recurrent network, by backpropagation through time."""

import numpy as np

text = "the quick brown fox jumps over the lazy dog and runs away from the angry bear " * 12
letters = sorted(set(text))
index = np.array([letters.index(ch) for ch in text])
rng = np.random.default_rng(0)
V, H, T = len(letters), 96, 12
Wx, Wh, Wy = (rng.normal(0, 0.05, s) for s in ((V, H), (H, H), (H, V)))
bh, by = np.zeros(H), np.zeros(V)


def train_on(inputs, targets, h):
    xs, hs, ps, loss = {}, {-1: h}, {}, 0.0
    for t in range(T):
        xs[t] = np.zeros((1, V))
        xs[t][0, inputs[t]] = 1
        hs[t] = np.tanh(xs[t] @ Wx + hs[t - 1] @ Wh + bh)
        logits = hs[t] @ Wy + by
        ps[t] = np.exp(logits - logits.max())
        ps[t] /= ps[t].sum()
        loss -= np.log(ps[t][0, targets[t]])
    gradients = [np.zeros_like(p) for p in (Wx, Wh, Wy, bh, by)]
    dh_next = np.zeros((1, H))
    for t in reversed(range(T)):
        dy = ps[t].copy()
        dy[0, targets[t]] -= 1
        gradients[2] += hs[t].T @ dy
        gradients[4] += dy[0]
        dh = (dy @ Wy.T + dh_next) * (1 - hs[t] ** 2)
        gradients[0] += xs[t].T @ dh
        gradients[1] += hs[t - 1].T @ dh
        gradients[3] += dh[0]
        dh_next = dh @ Wh.T
    for parameter, gradient in zip((Wx, Wh, Wy, bh, by), gradients):
        parameter -= 0.05 * np.clip(gradient, -5, 5)
    return loss / T, hs[T - 1]


for epoch in range(5):
    h, losses = np.zeros((1, H)), []
    for begin in range(0, len(index) - T - 1, T):
        loss, h = train_on(index[begin : begin + T], index[begin + 1 : begin + T + 1], h)
        losses.append(loss)
    print(epoch, f"{np.mean(losses):.3f}")
