"""Lanes as the store sees them: the highest byte of a sequence number."""

LANE_SHIFT = 56
LANE_SEQS = 1 << LANE_SHIFT
"""As many sequence numbers has a lane; those of lane 0 are below it."""


def lane_of(seq: int) -> int:
    """The lane in which a sequence number is."""
    return seq >> LANE_SHIFT
