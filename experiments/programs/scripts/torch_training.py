"""A network of `experiments.torch.networks` is trained on one thread; digests of losses and parameters are printed."""

import sys

import torch

from experiments.torch.networks import NETWORKS
from experiments.torch.session import TRAINING, Session


def main(name, steps=60):
    torch.set_num_threads(1)
    session = Session(NETWORKS[name], TRAINING, quick=steps < 10)
    print(session.run(steps).losses, session.digest())


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
