"""Principal components of more rows than fit at once: scikit-learn's IncrementalPCA, chunk by chunk."""

import hashlib
import sys

import numpy as np
from sklearn.decomposition import IncrementalPCA


def main(chunks=25, rows=500, features=300):
    rng = np.random.default_rng(0)
    basis = rng.normal(size=(20, features))
    model = IncrementalPCA(n_components=40)
    for k in range(chunks):
        model.partial_fit(rng.normal(size=(rows, 20)) @ basis + 0.1 * rng.normal(size=(rows, features)))
        if k % 5 == 0:
            print(k, float(model.explained_variance_[0]))
    scores = model.transform(rng.normal(size=(rows, 20)) @ basis)
    print(hashlib.sha256(scores.tobytes()).hexdigest())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
