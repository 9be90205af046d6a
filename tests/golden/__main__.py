"""Make the files of tests/data/golden anew: ``python -m tests.golden expect [NAME ...]``.

It takes down what becomes of the streams today, for test_golden.py to compare with.
"""

from __future__ import annotations

import gzip
import json
import sys

from .catalogue import DATA, NAMES
from .replayed import replay

command, *names = sys.argv[1:] or [""]
if command != "expect" or not set(names) <= set(NAMES):
    raise SystemExit(f"usage: python -m tests.golden expect [{' | '.join(NAMES)}] ...")
for name in names or NAMES:
    served = replay(name)
    text = json.dumps(served.as_json(), indent=None, separators=(",", ":"), sort_keys=True)
    (DATA / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{name}: {len(served.rows):,} requests, {served.stats['plans']} plans")
