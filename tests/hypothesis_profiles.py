"""How many examples hypothesis tries. Contracts import this themselves: they run outside of this folder, too.

A property says what one of its examples costs, by ``@settings(settings.get_profile("cheap"))``:

========  ===================================================  ============
cheap     some milliseconds                                    300 examples
usual     tens of milliseconds; where nothing else is said      60
dear      a tenth of a second                                   15
dearest   a second, or more                                      4
========  ===================================================  ============

The environment variable ``STOWPLAN_HYPOTHESIS`` multiplies them: ``quick`` (a third, the default), ``new`` (by 1),
``full`` (by 5), ``thorough`` (by 25). ``quick`` draws the same examples everywhere and every time, so it tries fewer;
the others draw new ones: what fails is printed as a decorator that reproduces it. No profile has a deadline, as that
would be an assertion about time.
"""

from __future__ import annotations

import math
import os

import pytest
from hypothesis import settings

EXAMPLES = {"cheap": 300, "usual": 60, "dear": 15, "dearest": 4}
TIMES = {"quick": 1 / 3, "new": 1, "full": 5, "thorough": 25}

_chosen = os.environ.get("STOWPLAN_HYPOTHESIS") or "quick"
if _chosen not in TIMES:
    raise pytest.UsageError(f"STOWPLAN_HYPOTHESIS is {_chosen!r}; expected one of: {', '.join(TIMES)}")
for _cost, _examples in EXAMPLES.items():
    settings.register_profile(
        _cost,
        max_examples=math.ceil(TIMES[_chosen] * _examples),
        deadline=None,
        derandomize=_chosen == "quick",
        print_blob=_chosen != "quick",
    )
settings.load_profile("usual")
