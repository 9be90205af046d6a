"""Write text with a decoder of four layers: keys and values of earlier letters are kept, and grow by one a letter."""

import hashlib
import sys

import numpy as np

LAYERS, WIDTH, HEADS, LETTERS, BATCH = 4, 256, 8, 64, 16


def normed(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def split(x):
    return x.reshape(BATCH, -1, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)


def layer(x, weights, kept):
    query, key, value = (split(normed(x) @ weights[k]) for k in range(3))
    keys = key if kept is None else np.concatenate([kept[0], key], axis=2)
    values = value if kept is None else np.concatenate([kept[1], value], axis=2)
    scores = softmax(query @ keys.swapaxes(2, 3) / np.sqrt(WIDTH // HEADS))
    x = x + (scores @ values).transpose(0, 2, 1, 3).reshape(BATCH, -1, WIDTH) @ weights[3]
    return x + np.maximum(normed(x) @ weights[4], 0) @ weights[5], (keys, values)


def write(length, rng, model, embedding):
    letters = rng.integers(LETTERS, size=(BATCH, 1))
    kept = [None] * LAYERS
    while letters.shape[1] < length:
        x = embedding[letters[:, -1:]]
        for k, weights in enumerate(model):
            x, kept[k] = layer(x, weights, kept[k])
        chances = softmax(normed(x)[:, 0] @ embedding.T * 0.2)
        chosen = (chances.cumsum(-1) > rng.random((BATCH, 1))).argmax(-1)
        letters = np.concatenate([letters, chosen[:, None]], axis=1)
    return letters


def main(texts=1, length=160):
    rng = np.random.default_rng(5)
    shapes = [(WIDTH, WIDTH)] * 4 + [(WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)]
    model = [[rng.normal(0, 0.06, s).astype(np.float32) for s in shapes] for _ in range(LAYERS)]
    embedding = rng.normal(0, 1, (LETTERS, WIDTH)).astype(np.float32)
    written = np.concatenate([write(length, rng, model, embedding) for _ in range(texts)])
    print(written.shape)
    print(hashlib.sha256(written.tobytes()).hexdigest())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
