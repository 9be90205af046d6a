"""Make the files of tests/data/golden: ``python -m tests.golden record [NAME ...]``, and the same with ``expect``.

``record`` runs programs and takes down their requests; ``expect`` takes down what becomes of all streams today, for
test_golden.py to compare with.
"""

from __future__ import annotations

import gzip
import json
import os
import sys

from .catalogue import DATA, NAMES, RECORDED
from .recording import Recording
from .replayed import replay
from .stream import save


def main() -> None:
    """Do as the arguments say."""
    command, *names = sys.argv[1:] or [""]
    if command not in ("record", "expect") or not set(names) <= set(NAMES):
        raise SystemExit(f"usage: python -m tests.golden record|expect [{' | '.join(NAMES)}] ...")
    DATA.mkdir(parents=True, exist_ok=True)
    for name in names or (RECORDED if command == "record" else NAMES):
        if command == "record":
            recording = Recording()
            RECORDED[name](recording)
            save(DATA / f"{name}.npz", recording.stream())
            print(f"{name}: {recording.requests:,} requests")
        else:
            served = replay(name)
            text = json.dumps(served.as_json(), indent=None, separators=(",", ":"), sort_keys=True)
            (DATA / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
            print(f"{name}: {len(served.rows):,} requests, {served.stats['plans']} plans")
    sys.stdout.flush()
    os._exit(0)  # arrays that are left would call the recording's functions when the interpreter has gone


main()
