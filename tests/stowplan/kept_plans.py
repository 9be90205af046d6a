"""What a directory of plans holds."""

from pathlib import Path


def placements(directory: Path) -> int:
    """Return how many placements were kept: packed once each, by whichever run came first.

    Which of its steps a run finds, or plans beside which, depends on the time it has. So a later run may pack what no
    run before it came to; what one has packed, no other packs.
    """
    return len(list(directory.glob("*.plan")))
