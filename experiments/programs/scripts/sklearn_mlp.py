"""scikit-learn's MLPRegressor on a made-up response, with early stopping's validation set."""

import hashlib
import sys
import warnings

import numpy as np
from sklearn.neural_network import MLPRegressor


def main(epochs=25):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 60))
    y = np.sin(x[:, 0] * x[:, 1]) + x[:, 2:10].sum(axis=1) + 0.1 * rng.normal(size=len(x))
    model = MLPRegressor(
        hidden_layer_sizes=(256, 128),
        batch_size=300,
        max_iter=epochs,
        early_stopping=True,
        n_iter_no_change=epochs,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has not converged: it was not meant to
        model.fit(x, y)
    for epoch, value in enumerate(model.loss_curve_):
        print(epoch, float(value))
    print(hashlib.sha256(model.predict(x).tobytes()).hexdigest())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
