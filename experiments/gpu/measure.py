"""Run a program on a GPU in one way: `run`, in a process of `experiments.gpu`'s."""

from __future__ import annotations

import hashlib
import time
from contextlib import nullcontext
from importlib import import_module

from ..measures.device_training import Use
from ..measures.kept import Row


def run(framework: str, program: str, way: str, quick: bool, watched: bool) -> Row:
    """Run the steps; look at the device after each, and at each of CuPy's requests, if `watched`.

    Returns
    -------
    dict
        ``most`` and ``end``: bytes of the device in use by its driver, beside what was in use before, at most and at
        the end. ``seconds`` of a step, the mean of the later half, in which nothing waits that the program does not
        wait for. ``digest`` of the last step's result. With stowplan's pool ``replayed``, the share of all requests.
    """
    import cupy as cp

    use, synchronize = Use(), cp.cuda.runtime.deviceSynchronize
    programs = import_module(f"{__package__}.{framework}_programs")
    pool = programs.install(way, use.watched if watched else lambda malloc: malloc)
    step = programs.PROGRAMS[program](programs.QUICK if quick else 1)
    half = programs.STEPS // 2
    for number in range(2 * half):
        if number == half:
            synchronize()
            began = time.perf_counter()
        with pool.step() if way == "marked" else nullcontext():
            shown = step(number)
        if watched:
            use.look()
        if pool is not None and number < half:
            pool.wait()
    synchronize()
    found: Row = {"seconds": (time.perf_counter() - began) / half, "end": use.look(), "most": use.most}
    found["digest"] = hashlib.blake2b(cp.asnumpy(cp.asarray(shown)).tobytes(), digest_size=8).hexdigest()
    return found | ({} if pool is None else {"replayed": pool.stats.replayed / max(pool.stats.requests, 1)})
