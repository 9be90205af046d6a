"""Fuzz the importers: whatever a file holds, reading it gives a profile or a `StowplanError`, and runs nothing.

    python tests/fuzz/importers.py              1,000,000 inputs, guided by coverage (pip install atheris)
    python tests/fuzz/importers.py 5000         so many

The first byte of an input chooses the importer, the rest is the file. Exit status 0 where all inputs are survived;
atheris writes the input that was not to a file ``crash-...`` in the current folder.
"""

from __future__ import annotations

import os
import pickle
import random
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
DATA = HERE.parent / "data"
FORMS = ("minimalloc", "rmm", "torch", "profile")
LONGEST = 4096


def seeds() -> list[bytes]:
    """Return inputs of each format, from the samples of the tests."""
    from stowplan.profiler import Profile

    frame = {"filename": "a.py", "line": 7, "name": "f"}
    entries = [
        {"action": action, "addr": 1 << 40, "size": 64, "stream": 0, "time_us": 5, "frames": [frame]}
        for action in ("free_completed", "alloc", "free_requested", "free_completed", "alloc")
    ]
    snapshot = {"segments": [], "device_traces": [[], entries], "x": [(), (1,), None, True, 0.5, -(2**70)]}
    files = [
        (0, b"id,lower,upper,size,alignment,gaps,offset\na,0,9,64,8,2-4 5-7@0:32,8\nb,1,3,8,1,,-1\n"),
        (0, b"buffer,start,end,size\nx,0,8,4\ny,3,4,5\n"),
        (1, (DATA / "rmm.csv").read_bytes()),
        *((2, pickle.dumps(snapshot, protocol)) for protocol in (2, 4)),
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "step.profile")
        Profile([64, 8], [0, 1], [2, 5], period=4, site=[0, -1], sites=("a.py:7 f",)).save(path)
        files.append((3, path.read_bytes()))
    return [bytes([form]) + content for form, content in files]


def survivor() -> Callable[[bytes], None]:
    """Return what takes one input. Anything but a `StowplanError` passes through."""
    from stowplan.errors import StowplanError
    from stowplan.profiler import formats

    memory = Path("/dev/shm")
    handle, path = tempfile.mkstemp(prefix="fuzz-", dir=memory if memory.is_dir() else None)

    def survive(data: bytes) -> None:
        form = FORMS[data[0] % len(FORMS)] if data else FORMS[0]
        os.truncate(path, 0)
        os.pwrite(handle, data[1:], 0)
        try:
            profile = formats.read(path, form)
        except StowplanError:
            return
        assert len(profile.live_bytes()) == profile.period

    return survive


def mutated(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """Change a few bytes: overwrite, insert, delete, repeat a part, or take a part of another input."""
    mutant = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(mutant) + 1)
        kind = rng.randrange(5)
        if kind == 0 and at < len(mutant):
            mutant[at] = rng.randrange(256)
        elif kind == 1:
            mutant[at:at] = rng.choice(
                (b"0", b"-1", b",", b"\n", b"9" * 20, b"\xff", b"(", b"}", b"nan", b"0x")
            )
        elif kind == 2:
            del mutant[at : at + rng.randint(1, 8)]
        elif kind == 3:
            part = mutant[at : at + rng.randint(1, 40)]
            mutant[at:at] = part
        else:
            other = rng.choice(others)
            k = rng.randrange(len(other))
            mutant[at:at] = other[k : k + rng.randint(1, 60)]
    return bytes(mutant[:LONGEST])


def run_atheris(runs: int) -> None:
    """Let atheris (libFuzzer) look for inputs that reach new code. Ends the process."""
    import atheris

    with atheris.instrument_imports(include=["stowplan"]):
        survive = survivor()
    with tempfile.TemporaryDirectory() as corpus:
        for k, seed in enumerate(seeds()):
            Path(corpus, f"seed{k}").write_bytes(seed)
        atheris.Setup(
            [sys.argv[0], f"-runs={runs}", f"-max_len={LONGEST}", "-print_final_stats=1", corpus], survive
        )
        atheris.Fuzz()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run_atheris(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
