"""Requests of a step, and pools driven with them."""

import numpy as np

from stowplan.insight.pool_models import POOL_MODELS, CupyPoolModel, Requests, replay


def test_what_was_reserved_and_alive_after_each_request():
    # Two blocks of 512, then one of 1024: CuPy's pool joins nothing across reservations, so the second half of the
    # step reserves 1024 more, and the second step nothing.
    step = Requests(
        block=np.array([0, 1, 0, 1, 2, 2]),
        allocate=np.array([True, True, False, False, True, False]),
        size=np.array([512, 100, 1024]),
    )
    use = replay(step, CupyPoolModel(), steps=2)
    assert use.reserved.tolist() == [512, 1024, 1024, 1024, 2048, 2048, *[2048] * 6]
    assert use.live.tolist() == [512, 612, 100, 0, 1024, 0] * 2
    assert (use.reserved_peak, use.live_peak, use.steps, use.steady) == (2048, 1024, 2, True)
    assert not replay(step, CupyPoolModel(), steps=1).steady
    free_at_once = replay(step, POOL_MODELS["none"]())
    assert free_at_once.reserved[:6].tolist() == [512, 768, 256, 0, 1024, 0]
    assert (free_at_once.steps, free_at_once.steady) == (4, True)  # one that reserves, three that do not
