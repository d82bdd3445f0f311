"""The free rectangle of a calibration drive, and what the robot's margins leave of it."""

import math
import re
from dataclasses import dataclass
from typing import Self

from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec

_SIZE = re.compile(r"(\d+(?:\.\d+)?)x(\d+(?:\.\d+)?)")
LARGEST_M = 100.0


@dataclass(frozen=True)
class Area:
    """A free rectangle with sides along the axes of the fleet's frame."""

    centre_world: tuple[float, float]  # [m]
    size_m: tuple[float, float]  # along x and y

    @classmethod
    def parse(cls, text: str, centre_world: tuple[float, float]) -> Self:
        """Return the area of a text such as `2x2` [m] about a centre.

        Raises:
            TestudoError: not two lengths.
        """
        found = _SIZE.fullmatch(text)
        size = tuple(float(part) for part in found.groups()) if found else ()
        if len(size) != 2 or not all(0 < side <= LARGEST_M for side in size):
            raise TestudoError(f"--area: found {text!r}, expected the sides along x and y in metres, such as 2x2")
        return cls(centre_world, (size[0], size[1]))

    @classmethod
    def of(cls, arena: Arena) -> Self:
        """Return the area of the walls of a policy file."""
        (x_low, y_low), (x_high, y_high) = arena.low_world[:2], arena.high_world[:2]
        return cls(((x_low + x_high) / 2, (y_low + y_high) / 2), (x_high - x_low, y_high - y_low))

    @property
    def arena(self) -> Arena:
        """Return the area as walls of a policy file."""
        low, high = (
            tuple(c + sign * side / 2 for c, side in zip(self.centre_world, self.size_m, strict=True))
            for sign in (-1, 1)
        )
        return Arena(low, high)

    def local(self, place_world: tuple[float, ...]) -> tuple[float, float]:
        """Return a place (2,) [m] seen from the centre."""
        return place_world[0] - self.centre_world[0], place_world[1] - self.centre_world[1]


@dataclass(frozen=True)
class Room:
    """Where the drive may bring the control point: it and its places of rest stay this near to the centre."""

    half_x_m: float
    half_y_m: float


def drive_room(spec: RobotSpec, area: Area) -> Room:
    """Return the room of a drive at full speed in which layer 1 of the shield changes no command.

    Layer 1 bounds the speed of the control point by its gap over `reach_s`: the gap that full speed needs, and the kept
    distance, are taken from all sides.

    Raises:
        TestudoError: a robot of another kind, or nothing is left of the area.
    """
    if spec.kind != DIFFERENTIAL_DRIVE:
        raise TestudoError(
            f"calibrate: {spec.name}: found a {spec.kind}, expected a {DIFFERENTIAL_DRIVE}: other robots are "
            "identified from a recorded run, see docs/replay.md"
        )
    shield = projection_parameters(spec)
    gap_m = spec.speed_limit_m_s * shield.reach_s / shield.gap_share
    kept_m = shield.wall_m + gap_m + spec.look_ahead_m
    least_m = kept_m + 2 * stop_m(spec)
    for side_m in area.size_m:
        if side_m / 2 < least_m:
            size = math.ceil(20 * least_m) / 10
            raise TestudoError(
                f"--area: found {area.size_m[0]:g}x{area.size_m[1]:g} m, expected at least {size:g}x{size:g} m for a "
                f"{spec.name}: from full speed it stops within {stop_m(spec):.2f} m, and its shield keeps "
                f"{kept_m:.2f} m from the sides (radius {spec.body_radius_m:g} m, position error "
                f"{spec.position_error_m:g} m)"
            )
    return Room(area.size_m[0] / 2 - kept_m, area.size_m[1] / 2 - kept_m)


def stop_m(spec: RobotSpec) -> float:
    """Return the longest way [m] from the sending of a brake at full speed to rest, by the file's intervals."""
    lag, delay, scale = (
        spec.quantities[f"dynamics.{key}"].high for key in ("velocity_lag", "command_delay", "speed_scale")
    )
    speed = spec.speed_limit_m_s * scale
    least = spec.quantities["limits.acceleration"].low
    braking = speed**2 / (2 * least) + least * lag**2 / 2 if speed > least * lag else lag * speed
    return speed * (delay + spec.control_period_s) + braking
