"""Chainer's own example scripts, on synthetic data of the same shapes, with and without a pool: two lines differ.

What the original scripts do is kept (model, iterators, updater, trainer, extensions); downloads, plots and snapshots,
which have nothing to do with memory, are left out. ``--pool`` toggles the two lines.
"""
