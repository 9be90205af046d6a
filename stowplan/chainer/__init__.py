"""Chainer on a pool: its Trainer in steps, and schedules that lower what a training step has alive.

``training``   the updater, evaluators and report for `chainer.training`

Importing this package imports Chainer, by `stowplan.compat.enable_chainer`: an ``import chainer`` after it works on
today's NumPy and Python.
"""

from .training import MemoryReport, Updater, evaluate_in_steps, update_in_steps

__all__ = ["MemoryReport", "Updater", "evaluate_in_steps", "update_in_steps"]
