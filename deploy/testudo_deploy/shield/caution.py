"""What a robot does while its motion is outside of its file: less speed, more distance in layer 1.

Only the wish and layer 1's distances change, so that the guarantee of layers 2 and 3 does not depend on it: segments
and their clearance are agreed among robots and stay as they are.
"""

from dataclasses import dataclass, replace

from testudo_deploy.shield.shield import Shield
from testudo_hardware.arrays import Array, is_number
from testudo_hardware.motion.motion_state import shorten


@dataclass(frozen=True)
class Caution:
    """Limits of a robot that is outside of its file."""

    speed_m_s: float  # most of the wanted speed
    margin_m: float  # more distance from peers, walls and obstacles in layer 1


def stricter(first: Caution | None, second: Caution | None) -> Caution | None:
    """Return the lower speed and the wider margin of two."""
    if first is None or second is None:
        return second if first is None else first
    return Caution(min(first.speed_m_s, second.speed_m_s), max(first.margin_m, second.margin_m))


def slower(caution: Caution | None, nominal_world: Array) -> Array:
    """Return the nominal velocity (D, ...) [m/s], shortened."""
    return nominal_world if caution is None else shorten(nominal_world, caution.speed_m_s)


def wider(caution: Caution | None, shield: Shield) -> Shield:
    """Return the shield with more distance in layer 1; an uncertain place is also an uncertain direction (kappa)."""
    if caution is None or is_number(caution.margin_m, 0.0):
        return shield
    own, more = shield.parameters, caution.margin_m
    kept = replace(own, separation_m=own.separation_m + own.direction_factor * more, wall_m=own.wall_m + more)
    return replace(shield, parameters=kept)
