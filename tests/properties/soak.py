"""The programs of pool_program for as long as you like: ``python -m tests.properties.soak --operations 1_000_000_000``.

Run from the root of the repository. A random generator chooses the operations, by the seed that is printed; what must
hold is looked at after every request, and everything after each round.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from collections import Counter
from importlib import import_module
from typing import Any

from .pool_program import KEYS, PLACES, SIZES, FailureError, Planned, PoolProgram

ROUND = 20_000
"""Operations of one program; then another begins, with other steps."""
MOST_HELD = 200
"""Blocks that a program holds before it rather frees some."""

DEEPEST = 3
"""Interruptions within each other before no more are begun: while there is one, every step is refused."""


BACKENDS = {
    "numpy": "NumpyBackend",
    "cupy": "CupyBackend",
    "native": "NativeBackend",
    "torch-cuda": "TorchCudaBackend",
}
"""By pool: the class of its module in this folder."""


def random_script(chance: random.Random) -> list[Planned]:
    return [Planned(chance.choice(SIZES), chance.randint(1, 12)) for _ in range(chance.randint(1, 40))]


def a_round(backend: Any, chance: random.Random, operations: int) -> PoolProgram:
    """Run one program for about so many operations, and see that it leaves nothing behind."""
    program = PoolProgram(backend())
    program.scripts = {key: random_script(chance) for key in KEYS}
    looked = 0
    while program.operations < operations:
        do_something(program, backend, chance)
        if program.operations > looked + 1000:
            looked = program.operations
            program.check()
    program.finish()
    return program


def do_something(program: PoolProgram, backend: Any, chance: random.Random) -> None:
    """Do one thing of those that hypothesis may choose among, hot steps most often."""
    script = program.scripts[program.key]
    draw = chance.random()
    if len(program.live) > MOST_HELD and (blocks := program.droppable()):
        for block in chance.sample(blocks, len(blocks) // 2):
            program.free(block)
    elif program.step is None and draw < 0.6:
        program.hot_step(chance.choice(KEYS))
        if chance.random() < 0.2:
            program.wait()
    elif program.step is None and draw < 0.9:
        program.begin(chance.choice(KEYS))
    elif program.step is not None and draw < 0.7 and program.position < len(script):
        usual = chance.random() < 0.9
        missing = 0 if usual else chance.randint(0, 2)
        late = 0 if usual else chance.choice((0, 3, 50))
        program.planned_request(missing, late, 0 if usual else chance.choice((0, -60, 500)))
    elif program.step is not None and draw < 0.8:
        program.end(FailureError if chance.random() < 0.1 else None)
    else:
        something_rare(program, backend, chance)


def something_rare(program: PoolProgram, backend: Any, chance: random.Random) -> None:
    blocks = program.droppable()
    draw = chance.random()
    if draw < 0.3:
        place = "here" if chance.random() < 0.9 else chance.choice(PLACES)
        program.allocate(chance.choice(SIZES), zeroed=chance.random() < 0.5, place=place)
    elif draw < 0.5 and blocks:
        program.free(chance.choice(blocks), elsewhere=chance.random() < 0.05)
    elif draw < 0.55 and blocks and program.backend.resizes:
        program.resize(chance.choice(blocks), chance.choice(SIZES))
    elif draw < 0.6 and blocks:
        program.leave_in_a_cycle(chance.choice(blocks))
    elif draw < 0.7 and program.depth < DEEPEST:
        program.interrupt()
    elif draw < 0.85:
        program.resume()
    elif draw < 0.95:
        program.backend.fail(chance.choice((0, 0, 1, 1, 4)))
    elif program.step is None and draw < 0.99:
        program.scripts[chance.choice(KEYS)] = random_script(chance)
    elif program.step is None and draw < 0.994:
        program.worker_hot_step(chance.choice(KEYS))
    elif program.step is None and draw < 0.996:
        program.replace_pool(backend())
    elif program.step is None and draw < 0.998:
        program.reload(backend)
    elif draw >= 0.998 and program.backend.installs:
        program.install_or_uninstall()


def soak(backend: Any, operations: int, seed: int, say: Any = None) -> Counter[str]:
    """Run programs until so many operations are done; return what the pools counted."""
    chance = random.Random(seed)
    counts = Counter(operations=0, failures=0)
    gc.collect()
    gc.freeze()
    try:
        while counts["operations"] < operations:
            program = a_round(backend, chance, min(ROUND, operations - counts["operations"]))
            counts.update(program.counts, operations=program.operations, failures=program.failures)
            if say is not None:
                say(counts["operations"])
    finally:
        gc.unfreeze()
    return counts


def main() -> None:
    """Read the arguments, and soak."""
    parser = argparse.ArgumentParser(description="Random programs through a pool.")
    parser.add_argument("--operations", type=lambda text: int(float(text.replace("_", ""))), default=10**6)
    parser.add_argument("--pool", choices=BACKENDS, default="cupy")
    parser.add_argument("--process", action="store_true", help="steps are the process's: native, torch-cuda")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    module, name = f"{options.pool.replace('-', '_')}_backend", BACKENDS[options.pool]
    backend: Any = getattr(
        import_module(f".{module}", __package__), f"Process{name}" if options.process else name
    )
    seed = random.randrange(2**32) if options.seed is None else options.seed
    print(f"{options.pool}, seed {seed}", flush=True)
    began = time.monotonic()
    say = lambda done: print(f"\r{done:,} operations", end="", flush=True)  # noqa: E731
    counts = soak(backend, options.operations, seed, say)
    print(f"\n{time.monotonic() - began:.0f} s\n{json.dumps(counts)}")
    gc.collect()  # the last pool goes while its upstream, which is Python's, can still be called


if __name__ == "__main__":
    main()
