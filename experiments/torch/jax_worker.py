"""A process that runs turns of steps of JAX: ``python -m experiments.torch.jax_worker``; see `turns`.

A step is one call of a compiled function: loss, gradients and update of a perceptron of twelve layers. XLA places what
is alive within the call in one buffer, which it asks malloc for at each call.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import Any

import click
import jax
import numpy as np
from jax import numpy as jnp

from .turns import counted, serve, take_answers

LAYERS, WIDTH, ROWS = 12, 512, 2048
QUICK_WIDTH, QUICK_ROWS = 128, 1024


@jax.jit
def _step(weights: list[Any], inputs: Any, targets: Any) -> tuple[Any, list[Any]]:
    def loss_of(weights: list[Any]) -> Any:
        found = inputs
        for weight in weights:
            found = jnp.tanh(found @ weight)
        return ((found - targets) ** 2).mean()

    loss, gradients = jax.value_and_grad(loss_of)(weights)
    return loss, [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)]


@click.command()
@click.option("--quick", is_flag=True, help="A small network.")
def main(quick: bool) -> None:
    """Run turns of a compiled step, as standard input says."""
    answers = take_answers()
    width, rows = (QUICK_WIDTH, QUICK_ROWS) if quick else (WIDTH, ROWS)
    rng = np.random.default_rng(0)
    weights = [
        jnp.asarray(rng.normal(0, width**-0.5, (width, width)).astype(np.float32)) for _ in range(LAYERS)
    ]

    def run(steps: int) -> str:
        nonlocal weights
        found = hashlib.sha256()
        for _ in range(steps):
            inputs, targets = rng.normal(0, 1, (2, rows, width)).astype(np.float32)
            loss, weights = _step(weights, inputs, targets)
            found.update(np.asarray(loss).tobytes())
        return found.hexdigest()

    def digest() -> str:
        return hashlib.sha256(b"".join(np.asarray(weight).tobytes() for weight in weights)).hexdigest()

    serve(answers, lambda steps: asdict(counted(steps, run)), lambda: {"digest": digest()})


if __name__ == "__main__":
    main()
