"""What a report shows, as columns: two address maps of the same requests, the live bytes, the top call sites.

::

    address                     A *piece* is a rectangle: a block while it stands at one address. A wrapped block
       |  +---------+ +---+     has two, at both ends of the step. Under a plan they are at the same address; a pool
       |  |    a    | | b |     that cannot see the future may have put the block elsewhere in the step before.
       |==+  +------+-+---+==
       |c |  |      d     | c
       +--+--+------------+---> clock

All is computed once, in NumPy; replaying the requests through the model of the pool takes O(n log n).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...common.files import from_here
from ...common.units import human_bytes
from ...planning import Plan
from ...profiler.profile import UNKNOWN_SITE
from ..pool_models import CupyPoolModel, replay, requests

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class AddressMap:
    """The pieces of one address map.

    Attributes
    ----------
    row
        Which planned block, int64 (k,): a position in `Plan.rows`.
    start, end
        Ticks, int64 (k,).
    address
        Bytes from the bottom of the map, int64 (k,).
    reserved
        Bytes reserved in all.
    """

    row: IntArray
    start: IntArray
    end: IntArray
    address: IntArray
    reserved: int


@dataclass(frozen=True)
class Site:
    """One line of the table of call sites.

    Attributes
    ----------
    name
        The call site, or the size where none were recorded.
    at_peak
        Bytes of its blocks alive at the peak.
    blocks
        How many blocks it requests in a step.
    largest
        Bytes of the largest.
    """

    name: str
    at_peak: int
    blocks: int
    largest: int


def plan_map(plan: Plan) -> AddressMap:
    """Return the address map of a plan."""
    row, start, end, _ = _pieces(plan)
    return AddressMap(row, start, end, plan.placement.offsets[row], plan.arena_bytes)


def pool_map(plan: Plan) -> AddressMap:
    """Return the address map of CuPy's pool, as the model keeps it, on the requests that a plan serves."""
    step = requests(plan.problem)
    pool = _AddressedPool()
    replay(step, pool)
    block = step.block[step.allocate]
    # Each block's address in the last step and in the one before.
    addresses = np.array(pool.addresses[-2 * len(block) :], dtype=np.int64).reshape(2, -1)
    now, before = np.zeros((2, len(plan.rows)), dtype=np.int64)
    before[block], now[block] = addresses
    row, start, end, second = _pieces(plan)
    return AddressMap(row, start, end, np.where(second, before[row], now[row]), pool.peak_reserved)


def top_sites(plan: Plan, peak_tick: int) -> tuple[list[Site], IntArray]:
    """Return the call sites, most bytes at the peak first, and for each planned block which of them is its own.

    Where no call sites were recorded, blocks of one size are taken together.

    Parameters
    ----------
    plan
        The plan.
    peak_tick
        The tick at which most bytes are alive.
    """
    profile, rows = plan.profile, plan.rows
    size = profile.size[rows]
    site = profile.site[rows].astype(np.int64)
    known = bool((site != UNKNOWN_SITE).any())
    values, group = np.unique(site if known else size, return_inverse=True)
    count = np.bincount(group, minlength=len(values))
    alive = profile.alive_at(peak_tick)[rows]
    at_peak = np.zeros(len(values), dtype=np.int64)
    np.add.at(at_peak, group[alive], size[alive])
    largest = np.zeros(len(values), dtype=np.int64)
    np.maximum.at(largest, group, size)
    order = np.lexsort((-largest, -at_peak))

    def name(value: int) -> str:
        if not known:
            return f"blocks of {human_bytes(value)}"
        return "not known" if value == UNKNOWN_SITE else from_here(profile.sites[value])

    sites = [Site(name(int(values[k])), int(at_peak[k]), int(count[k]), int(largest[k])) for k in order]
    return sites, np.argsort(order)[group]


class _AddressedPool(CupyPoolModel):
    """The model, and where in address its blocks lie."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[int] = []  # of every block, in the order of the requests

    def malloc(self, size: int) -> int:
        handle = super().malloc(size)
        served = self._live[handle]
        self.addresses.append(0 if served is None else served[1].address)
        return handle


def _pieces(plan: Plan) -> tuple[IntArray, IntArray, IntArray, npt.NDArray[np.bool_]]:
    """Row, start, end of every piece, and whether it is the second half of a wrapped block."""
    profile, period = plan.profile, plan.profile.period
    start, end = profile.start[plan.rows], profile.end[plan.rows]
    row = np.arange(len(plan.rows))
    wrapped = row[end > period]
    return (
        np.concatenate([row, wrapped]),
        np.concatenate([start, np.zeros(len(wrapped), dtype=np.int64)]),
        np.concatenate([np.minimum(end, period), end[wrapped] - period]),
        np.arange(len(row) + len(wrapped)) >= len(row),
    )


def raster(
    pieces: AddressMap,
    height_of: IntArray,
    colour_of: IntArray,
    extent: tuple[int, int],
    shape: tuple[int, int],
) -> npt.NDArray[np.uint8]:
    """Paint a map as an image of colour numbers, row 0 at the bottom; 0 where nothing is.

    Parameters
    ----------
    pieces
        The map.
    height_of, colour_of
        Bytes and colour number (from 1) of each planned block, int64.
    extent
        Ticks and bytes that the image spans.
    shape
        Rows and columns.

    Returns
    -------
    ndarray
        uint8, of this shape.
    """
    image = np.zeros(shape, dtype=np.uint8)

    def pixels(low: IntArray, high: IntArray, span: int, count: int) -> tuple[IntArray, IntArray]:
        scale = count / max(span, 1)
        first = np.minimum(np.rint(low * scale), count - 1).astype(np.int64)
        return first, np.maximum(np.rint(high * scale).astype(np.int64), first + 1)

    tall = height_of[pieces.row]
    left, right = pixels(pieces.start, pieces.end, extent[0], shape[1])
    bottom, top = pixels(pieces.address, pieces.address + tall, extent[1], shape[0])
    # The largest last: what is smaller than a pixel shows only where nothing else is.
    order = np.argsort((right - left) * (top - bottom), kind="stable")
    columns = (a[order].tolist() for a in (left, right, bottom, top, colour_of[pieces.row]))
    for x0, x1, y0, y1, colour in zip(*columns, strict=True):
        image[y0:y1, x0:x1] = colour
    return image
