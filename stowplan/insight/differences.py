"""Which call sites hold more at the fullest moment of one program than of another: ``stowplan diff``.

::

    before   net.py:10 f  400 MB    net.py:12 g  100 MB
    after    net.py:10 f  400 MB    net.py:15 g  300 MB    net.py:20 h  50 MB

    net.py:12 g -> :15   + 200 MB          (the same function, and no other line of it is left over)
    net.py:20 h          +  50 MB

A call site of both programs is one row. Those that are left over are paired in the order of their lines where they
differ in line numbers, or in the folders above the last `PARTS` parts of a path, alone: another release moves lines.
Where one profile has more callers in its call sites, these are left out. O(n log n) in the call sites.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..common.errors import ProfileError
from ..profiler import Profile
from ..profiler.program_summary import Holder

PARTS = 3
"""Parts of a file's path that are compared."""

EQUAL = 0.99
"""The share of a peak from which on another moment is as full."""

CALLS = " > "
"""Between a caller and what it calls."""


class Difference(NamedTuple):
    """One call site before and after.

    Attributes
    ----------
    site
        After; before, where it holds nothing after.
    before, after
        Bytes that it holds at the fullest moment.
    blocks_before, blocks_after
        And in how many blocks.
    """

    site: str
    before: int
    after: int
    blocks_before: int
    blocks_after: int

    @property
    def more(self) -> int:
        """Bytes that it holds more."""
        return self.after - self.before


def differences(before: Profile, after: Profile) -> list[Difference]:
    """Return how the call sites differ in what they hold at the fullest moment of the whole run.

    In profiles without `Program.holders`, which other tools wrote, it is the fullest moment of the step.

    Parameters
    ----------
    before, after
        Profiles with call sites.

    Returns
    -------
    list of Difference
        The largest differences first, those that hold more before those that hold less.

    Raises
    ------
    ProfileError
        One of them has no call sites.
    """
    sides = [{holder.site: holder for holder in holders(profile)} for profile in (before, after)]
    old, new = _in_terms_of(*sides), _in_terms_of(*reversed(sides))
    pairs = [(old.pop(site), new.pop(site)) for site in [*old] if site in new]
    places = _by_place(new)
    for place, sites in _by_place(old).items():
        for site, other in zip(sites, places.get(place, []), strict=False):
            pairs.append((old.pop(site), new.pop(other)))
    pairs += [(holder, Holder(site, 0, 0)) for site, holder in old.items()]
    pairs += [(Holder(site, 0, 0), holder) for site, holder in new.items()]
    found = [Difference(b.site, a.bytes, b.bytes, a.blocks, b.blocks) for a, b in pairs]
    return sorted(found, key=lambda difference: (-abs(difference.more), -difference.more, difference.site))


def holders(profile: Profile) -> tuple[Holder, ...]:
    """Return what holds the fullest moment of the program; of the step where the program's is not known.

    Raises
    ------
    ProfileError
        The profile has no call sites.
    """
    if profile.program is not None and any(holder.site for holder in profile.program.holders):
        return profile.program.holders
    if not profile.sites:
        raise ProfileError("the profile has no call sites; expected one that stowplan profile wrote")
    return at_peak(profile)


def at_peak(profile: Profile) -> tuple[Holder, ...]:
    """Return what holds the fullest moment of a step, or of a log, by call site, or by size if it has none."""
    parts = profile.at_live_peak()
    tick = int(profile.step_bytes().argmax()) if parts is None else parts.tick
    alive = profile.alive_at(tick)
    found = {holder.site: holder for holder in held(profile, alive)}
    if parts is not None and (older := sum(parts[1:]) - int(profile.size[alive].sum())) > 0:
        unknown = found.get("", Holder("", 0, 0))
        found[""] = unknown._replace(bytes=unknown.bytes + older)
    return tuple(sorted(found.values(), key=lambda holder: -holder.bytes))


def other_peaks(profile: Profile) -> list[tuple[str, int]]:
    """Return call sites that ask for memory at other moments as full as a step's peak, within `EQUAL`, and the bytes.

    Between such a moment and the peak less is live: who lowers the one alone has lowered nothing.
    """
    if not len(profile) or not profile.sites:
        return []
    live = profile.step_bytes()
    first = int(live.argmin())  # from here on once round: no moment is cut in two
    high = np.roll(live >= EQUAL * live.max(), -first)
    ends = np.flatnonzero(np.diff(high, prepend=False, append=False)) + first
    asked = dict(zip(profile.start.tolist(), profile.site.tolist(), strict=True))
    sites, own = dict[int, int](), -1
    for start, end in ends.reshape(-1, 2).tolist():
        ticks = np.arange(start, end) % len(live)
        site, size = asked.get(int(ticks[live[ticks].argmax()]), -1), int(live[ticks].max())
        if live.argmax() in ticks:
            own = site
        elif site >= 0:
            sites[site] = max(size, sites.get(site, 0))
    sites.pop(own, None)
    return sorted(((profile.sites[site], size) for site, size in sites.items()), key=lambda found: -found[1])


def held(profile: Profile, blocks: npt.NDArray[Any]) -> Iterator[Holder]:
    """Yield what each call site has of some blocks (rows, or a mask); what each size has if there are no sites."""
    sizes = profile.size[blocks]
    key = profile.site[blocks] if profile.sites else sizes
    for value in np.unique(key).tolist():
        of = key == value
        name = f"{value:,} bytes" if not profile.sites else profile.sites[value] if value >= 0 else ""
        yield Holder(name, int(of.sum()), int(sizes[of].sum()))


def _in_terms_of(side: Mapping[str, Holder], other: Mapping[str, Holder]) -> dict[str, Holder]:
    """Return holders by call sites as the other side has them, which may lack outer frames; those of one together."""
    found: dict[str, Holder] = {}
    for holder in side.values():
        frames = holder.site.split(CALLS)
        names = [CALLS.join(frames[k:]) for k in range(len(frames))]
        site = next((name for name in names if name in other), holder.site)
        known = found.get(site, Holder(site, 0, 0))
        found[site] = Holder(site, known.blocks + holder.blocks, known.bytes + holder.bytes)
    return found


def _by_place(sites: Iterable[str]) -> dict[str, list[str]]:
    """Group call sites by what they are without line numbers and leading folders, each group by its lines."""
    groups: dict[str, list[str]] = defaultdict(list)
    for site in sites:
        frames = ["/".join(frame.split("/")[-PARTS:]) for frame in site.split(CALLS)]
        groups[re.sub(r":\d+ ", ": ", CALLS.join(frames))].append(site)
    for found in groups.values():
        found.sort(key=lambda site: [int(line) for line in re.findall(r":(\d+) ", site)])
    return groups
