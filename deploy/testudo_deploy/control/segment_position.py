"""Where a robot is relative to the segment that it reserves."""

from collections.abc import Sequence

import numpy as np

from testudo_deploy.shield.geometry import point_distance
from testudo_deploy.shield.reservations import ReservedSpace
from testudo_deploy.shield.stop_tube import StopTubeParameters


def off_segment(own: ReservedSpace, space: StopTubeParameters, position_world: Sequence[float]) -> tuple[bool, float]:
    """Return whether a place is outside of the reserved segment and its errors, and its distance from it [m]."""
    off_m = float(point_distance(np.array(position_world, float), *own.owned_world))
    return not off_m <= space.segment_reach_m, off_m


def off_segment_text(own: ReservedSpace, space: StopTubeParameters, position_world: Sequence[float]) -> str:
    """Return how far a place is off the reserved segment; empty if it is within its errors."""
    is_off, off_m = off_segment(own, space, position_world)
    allowed = f"allowed {space.segment_reach_m:.2f} m"
    return f"found {off_m:.2f} m off its reserved segment, {allowed}" if is_off else ""
