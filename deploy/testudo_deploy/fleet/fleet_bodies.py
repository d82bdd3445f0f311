"""The bodies of a fleet that are no robots, `bodies` in the fleet file: boxes on the floor that robots push."""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testudo_deploy.fleet.robot_links import FleetError
from testudo_hardware.strict_files import OPTIONAL, read_as

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TURN_RAD = 2 * math.pi
_FARTHEST_M = 10_000.0
_SIZES_M = (0.005, 100.0)
_MASSES_KG = (0.001, 10_000.0)


@dataclass(frozen=True)
class FleetBody:
    """A box on the floor, and its start in the fleet's frame; its pose is measured on `/task/NAME/pose`."""

    name: str  # as the task calls it
    size_m: tuple[float, float, float]  # length, width and height
    mass_kg: float
    friction: float  # sliding friction on the floor [1]
    initial_position_world: tuple[float, float]  # [m]: centre
    initial_yaw: float  # [rad]


@dataclass(frozen=True)
class BodyEntry:
    """A body in the file; lengths m, mass kg, angles rad."""

    size: tuple[float, ...]
    mass: float
    friction: float
    initial_position: tuple[float, ...]
    initial_yaw: float = field(default=0.0, metadata=OPTIONAL)


def fleet_bodies(entries: Mapping[str, Any], robots: Collection[str], file: Path) -> tuple[FleetBody, ...]:
    """Return the bodies of a fleet file; ``robots`` are the names that are taken.

    Raises:
        FleetError: a name that is taken or no name, an unknown or missing key, or a number out of range.
    """
    return tuple(_body(name, values, robots, f"{file}: bodies.{name}") for name, values in entries.items())


def _body(name: Any, values: Any, robots: Collection[str], where: str) -> FleetBody:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in robots:
        raise FleetError(
            f"{where}: found the name {name!r}, expected small letters, digits and _, a letter first, of no robot"
        )
    entry: BodyEntry = read_as(BodyEntry, values, where, FleetError)
    for key, numbers, count in (("size", entry.size, 3), ("initial_position", entry.initial_position, 2)):
        if len(numbers) != count:
            raise FleetError(f"{where}.{key}: found {len(numbers)} numbers, expected {count}")
    for key, number, low, high in (
        *(("size", side_m, *_SIZES_M) for side_m in entry.size),
        ("mass", entry.mass, *_MASSES_KG),
        ("friction", entry.friction, 0.0, 5.0),
        *(("initial_position", place_m, -_FARTHEST_M, _FARTHEST_M) for place_m in entry.initial_position),
        ("initial_yaw", entry.initial_yaw, -_TURN_RAD, _TURN_RAD),
    ):
        if not low <= number <= high:  # NaN, too
            raise FleetError(f"{where}.{key}: found {number:g}, expected {low:.4g} to {high:.5g}")
    length, width, height = entry.size
    x, y = entry.initial_position
    return FleetBody(name, (length, width, height), entry.mass, entry.friction, (x, y), entry.initial_yaw)


def body_tables(bodies: tuple[FleetBody, ...]) -> dict[str, Any]:
    """Return the entry `bodies` of a fleet file; empty without any."""
    if not bodies:
        return {}
    return {
        "bodies": {
            body.name: {
                "size": [float(side_m) for side_m in body.size_m],
                "mass": float(body.mass_kg),
                "friction": float(body.friction),
                "initial_position": [float(place_m) for place_m in body.initial_position_world],
                "initial_yaw": float(body.initial_yaw),
            }
            for body in bodies
        }
    }
