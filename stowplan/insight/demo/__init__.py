"""The main job: train a real network with NumPy's allocator, through the pool, and lean through the pool; compare.

``models``   the networks and their losses, in Chainer
``training`` one training run: steps with their loss, time and page faults, and the state at the end
``compare``  all three runs, and figures of them

Chainer is imported when a run begins, after `stowplan.compat.enable_chainer`.
"""

from __future__ import annotations

MODELS = ("googlenet", "alexnet", "resnet50")
