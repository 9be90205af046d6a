"""Candidate steps: how often each repeated, and its share of the program's requests and bytes."""

from __future__ import annotations

from dataclasses import dataclass

from .profile import Profile


@dataclass(frozen=True)
class StepCandidate:
    """A step that was found, and what it covers.

    Attributes
    ----------
    profile
        Of one of its runs.
    start
        Requests of the program before that run.
    times
        How often just these requests came, one run not overlapping another.
    requests, bytes
        Shares of all requests, and of all the bytes asked for, that these runs cover; 0 to 1.
    chosen
        Whether it is the step that `Recorder.profile` returns: of those that cover most bytes, up to a 25th, the
        shortest. So an iteration is, rather than the epoch of many, unless the epoch covers notably more.
    """

    profile: Profile
    start: int
    times: int
    requests: float
    bytes: float
    chosen: bool

    def __len__(self) -> int:
        """Return the requests of the step."""
        return len(self.profile)
