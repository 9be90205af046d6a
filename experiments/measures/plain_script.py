"""Run a script as ``stowplan run`` does, but without a pool: what `experiments.unannotated` compares with.

``python -m experiments.measures.plain_script RESULT SCRIPT [ARGUMENTS]`` writes the minor page faults of the script's
run to the file RESULT, as JSON, and ends with the script's exit status.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from stowplan.cli.scripts import Script


def main(result: str, path: str, *arguments: str) -> int:
    """Run a script; return its exit status."""
    script = Script(path)
    before = _minor_faults()
    status = script.run(arguments)
    Path(result).write_text(json.dumps({"minor_faults": _minor_faults() - before}))
    return status


def _minor_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
