"""Policy groups of a fleet: one policy file for each kind of robot, and what keeps the groups apart.

Robots with one policy file are a group: its members are peers, and the shield keeps them apart. Groups do not receive
each other's messages, so they are separated by height: robots on the ground below, drones above a floor of their arena
that no robot on the ground reaches.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from testudo_deploy.contract.contract import Contract
from testudo_deploy.fleet.robot_links import FleetError
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.spec import RobotSpec
from testudo_hardware.strict_files import OPTIONAL

SHA256 = re.compile(r"[0-9a-f]{64}")
HEADROOM_M = 0.1
"""Least distance between the highest ground robot and the lowest drone, besides the errors in the margins."""


@dataclass(frozen=True)
class PolicyGroup:
    """A policy file with its hash."""

    path: Path  # absolute
    sha256: str  # required hash


@dataclass(frozen=True)
class PolicyEntry:
    """A policy file of one kind of robot in a fleet file."""

    policy: str
    policy_sha256: str


@dataclass(frozen=True)
class Follow:
    """Goal of a robot that follows another one: a position relative to it, in the axes of the world."""

    robot: str  # the leader's name
    offset: tuple[float, ...] = field(default=(), metadata=OPTIONAL)
    """(D,) [m] from the leader's position; zero if left out."""

    def goal_world(self, leader_world: Sequence[float], dimension: int) -> tuple[float, ...]:
        """Return the goal (D,) [m] for a leader at (2,) or (3,) [m]; a leader on the ground has height 0."""
        place = (*leader_world, 0.0)[:dimension]
        offset = self.offset or (0.0,) * dimension
        return tuple(float(a) + float(b) for a, b in zip(place, offset, strict=True))


def check_sha256(found: str, where: str) -> None:
    """Check the form of a hash.

    Raises:
        FleetError: not a SHA-256 hash.
    """
    if not SHA256.fullmatch(found):
        raise FleetError(
            f"{where}: found {found!r}, expected 64 digits 0-9 and a-f: what "
            "`testudo inspect policy.onnx` shows as sha256"
        )


def policy_files(entries: Mapping[str, PolicyEntry], types: Sequence[str], file: Path) -> dict[str, PolicyGroup]:
    """Return the policy files by type of robot.

    Raises:
        FleetError: no robot is of a named type, or an invalid hash.
    """
    for kind, entry in entries.items():
        if kind not in types:
            raise FleetError(
                f"{file}: policies.{kind}: no robot is of this type; those of the fleet are "
                f"{', '.join(sorted(set(types)))}"
            )
        check_sha256(entry.policy_sha256, f"{file}: policies.{kind}.policy_sha256")
    return {
        kind: PolicyGroup((file.parent / entry.policy).absolute(), entry.policy_sha256)
        for kind, entry in entries.items()
    }


def check_follow(
    name: str, follow: Follow, dimensions: Mapping[str, int], follows: Mapping[str, Any], where: str
) -> None:
    """Check the goal of a following robot; ``dimensions`` of all robots, and goals of following robots, by name.

    Raises:
        FleetError: the leader is missing, is the robot itself or follows another, or the offset has another dimension.
    """
    if follow.robot not in dimensions or follow.robot == name or follow.robot in follows:
        leaders = [other for other in dimensions if other != name and other not in follows]
        raise FleetError(
            f"{where}.robot: found {follow.robot!r}, expected another robot that follows none: "
            f"{', '.join(leaders) or 'there is none'}"
        )
    if follow.offset and len(follow.offset) != dimensions[name]:
        raise FleetError(f"{where}.offset: found {len(follow.offset)} coordinates, expected {dimensions[name]}")


def check_groups_apart(contracts: Mapping[str, tuple[RobotSpec, Contract]]) -> None:
    """Check that the robots of different policy groups cannot meet, whatever each group does.

    The shield of a drone keeps its body above the floor of its arena, including all errors in its margins; no ground
    robot is higher than its body. So a floor above the highest robot, with `HEADROOM_M`, is sufficient. A drone has no
    floor during take-off and landing: fleet admission refuses such fleets (`FleetRobot.has_flight_phases`).

    Args:
        contracts: by a robot's name, one for each group: its description and its contract.

    Raises:
        FleetError: two groups on the ground, or two in the air, or a floor that is too low.
    """
    for (one, (spec, contract)), (other, (second, theirs)) in combinations(contracts.items(), 2):
        if spec.dimension == second.dimension:
            where = "on the ground" if spec.dimension == 2 else "in the air"
            raise FleetError(
                f"{one} and {other}: both are {where} and run different policy files; robots of two "
                "policy files are kept apart by height only: one kind on the ground, one in the air"
            )
        drone, ground = (other, spec) if spec.dimension == 2 else (one, second)
        flown = theirs if spec.dimension == 2 else contract
        _check_floor(drone, flown, ground)


def _check_floor(drone: str, flown: Contract, ground: RobotSpec) -> None:
    least_m = ground.body_height_m + HEADROOM_M
    found_m = None if flown.arena is None else flown.arena.low_world[2]
    if found_m is None or found_m < least_m:
        found = "no arena" if found_m is None else f"a floor at {found_m:g} m"
        raise FleetError(
            f"{drone}: its policy file has {found}, expected a floor at {least_m:g} m or above: the "
            f"height of {ground.name} below it, {ground.body_height_m:g} m, and {HEADROOM_M:g} m"
        )


def clear_of(ground: RobotSpec, drone: RobotSpec, height_m: float) -> bool:
    """Return whether a drone at a height [m] is above a ground robot, with the errors in its margins."""
    return height_m - stop_tube_parameters(drone).wall_m > ground.body_height_m
