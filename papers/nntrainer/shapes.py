"""Layers of ``layers`` from the shapes of their arrays, and layers that are unrolled in time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...common.errors import GraphError
from .layers import Layer, Lifespan


def unroll(layers: Sequence[Layer], steps: int, before: Mapping[str, str]) -> list[Layer]:
    """Return layers for so many time steps, numbered ``"name 0"`` and so on, which share the first one's weights.

    Parameters
    ----------
    layers
        Those of one time step. Other layers that they read are the same in all steps.
    steps
        1 or more.
    before
        By the name of a layer, one whose output of the time step before it reads as well.
    """
    found = []
    own = {layer.name for layer in layers}
    for step in range(steps):
        for number, layer in enumerate(layers):
            names = layer.inputs
            if names is None:
                names = (layers[number - 1].name,) if number else ()
            inputs = [f"{name} {step}" if name in own else name for name in names]
            if step and layer.name in before:
                inputs.append(f"{before[layer.name]} {step - 1}")
            shares = f"{layer.name} 0" if step and layer.weights else None
            weights = layer.weights if step == 0 else ()
            name = f"{layer.name} {step}"
            found.append(replace(layer, name=name, inputs=tuple(inputs), weights=weights, shares=shares))
    return found


def linear(name: str, shape: Sequence[int], units: int, *, element: int = 4, **options: Any) -> Layer:
    """Return a fully connected layer with a bias.

    Parameters
    ----------
    name
        The layer's name.
    shape
        The input's shape; its last dimension is the one that is multiplied.
    units
        Units of the output.
    element
        Bytes of each.
    options
        More of `.Layer`.
    """
    rows = math.prod(shape[:-1])
    weights = (shape[-1] * units * element, units * element)
    operations = 2 * rows * shape[-1] * units
    return Layer(name, rows * units * element, weights=weights, operations=operations, **options)


def conv2d(
    name: str,
    shape: Sequence[int],
    channels: int,
    kernel: int | tuple[int, int],
    *,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    element: int = 4,
    **options: Any,
) -> Layer:
    """Return a convolution of N:C:H:W with a bias; what it needs besides (im2col) is not counted.

    Raises
    ------
    GraphError
        The kernel is larger than the padded input.
    """
    batch, incoming, *space = shape
    kernel, stride, padding = _pair(kernel), _pair(stride), _pair(padding)
    size = [(s + 2 * p - k) // d + 1 for s, k, d, p in zip(space, kernel, stride, padding, strict=True)]
    if min(size) < 1:
        raise GraphError(
            f"layer {name}: a kernel of {kernel} on {tuple(space)}, padded by {padding}; expected less"
        )
    weights = (channels * incoming * math.prod(kernel) * element, channels * element)
    elements = batch * channels * math.prod(size)
    operations = 2 * elements * incoming * math.prod(kernel)
    return Layer(name, elements * element, weights=weights, operations=operations, **options)


def lstm(
    name: str, batch: int, steps: int, features: int, units: int, *, element: int = 4, **options: Any
) -> Layer:
    """Return an LSTM that returns its last output: gates and cell states are kept, and have derivatives backward."""
    weights = tuple(count * element for count in (features * 4 * units, units * 4 * units, 4 * units))
    states = batch * steps * units * element
    kept = tuple((states * count, Lifespan.ITERATION) for count in (1, 1, 4))  # hidden, cell, gates
    derived = tuple((states * count, Lifespan.GRADIENT | Lifespan.DERIVATIVE) for count in (1, 1, 4))
    operations = 2 * batch * steps * (features + units) * 4 * units
    return Layer(
        name,
        batch * units * element,
        weights=weights,
        temporaries=kept + derived,
        operations=operations,
        **options,
    )


def _pair(of: int | tuple[int, int]) -> tuple[int, int]:
    return (of, of) if isinstance(of, int) else of
