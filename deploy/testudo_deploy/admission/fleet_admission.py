"""Fleet admission: checks each robot with its policy file, each policy group, and the groups against each other."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from testudo_deploy.admission.safety_contract_rules import check_fleet
from testudo_deploy.admission.safety_contracts import Obligation, fleet_obligations
from testudo_deploy.contract.command_types import check_link, check_shielded
from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.rules import TASK_SIGNALS
from testudo_deploy.fleet.fleet import Fleet, FleetRobot
from testudo_deploy.fleet.policy_groups import check_groups_apart
from testudo_deploy.fleet.robot_links import FleetError
from testudo_deploy.shield.arena import Arena, distance_to
from testudo_deploy.shield.flight_column import ClimbVolume
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.spec import RobotSpec


def checked_safety_contracts(fleet: Fleet, known: Mapping[str, PolicyArtefact] | None = None) -> tuple[Obligation, ...]:
    """Load and check everything that the robots of a fleet depend on, and return their safety contracts.

    Args:
        fleet: all robots, of one or several policy groups.
        known: loaded policy files, by hash.

    Raises:
        TestudoError: a policy file is refused for a robot, the safety contracts of a group do not fit (`check_fleet`),
            a robot would touch a wall or an obstacle at its start, goal or take-off, or two groups could meet
            (`check_groups_apart`).
    """
    _check_phases(fleet)
    found: list[Obligation] = []
    teams: dict[str, tuple[RobotSpec, Contract]] = {}
    for team in fleet.teams:
        artefact = (known or {}).get(team.policy_sha256)
        if artefact is None:
            loaded = [load_policy(team, one.spec) for one in team.robots]
            artefact = loaded[-1]
        check_commands(team, artefact.contract)
        _check_starts(team, artefact.contract)
        obligations = fleet_obligations(team, artefact.contract)
        check_fleet(obligations)
        found += obligations
        teams[team.names[0]] = (team.robots[0].spec, artefact.contract)
    check_groups_apart(teams)
    for team in fleet.teams:
        check_inside_arena(team, teams[team.names[0]][1].arena)
    return tuple(found)


def load_policy(team: Fleet, spec: RobotSpec, path: str | Path = "") -> PolicyArtefact:
    """Return the policy of a policy group for one of its robots, from ``path`` if that is not the fleet file's.

    Raises:
        TestudoError: the file is refused, or reads a signal of the task that no link of the robots names, and the fleet
            file has no `task`.
    """
    profiles = [robot.link.profile.signals for robot in team.robots]
    sensed = [name for name in profiles[0] if all(name in one for one in profiles)]
    signals = (*TASK_SIGNALS, *sensed) if team.task is None else None
    return PolicyArtefact.load(path or team.policy, robot=spec, sha256=team.policy_sha256, task_signals=signals)


def check_inside_arena(team: Fleet, arena: Arena | None) -> None:
    """Refuse starts and goals of a policy group at which a body is not inside the arena; None has no walls.

    Raises:
        FleetError: at a start or a goal the body would touch a wall or an obstacle, or is behind one, or the place is
            above the ceiling or below the floor.
    """
    if arena is None:
        return
    for robot in team.robots:
        for key, place in (("initial_position", robot.initial_position_world), ("goal", robot.goal_world)):
            where = f"{team.file}: robots.{robot.name}.{'follow' if key == 'goal' and robot.follows else key}"
            if fault := _touching(robot.spec, place, arena, f"the arena of {team.policy.name}"):
                raise FleetError(f"{where}: {fault}")


def _touching(spec: RobotSpec, place_world: tuple[float, ...], arena: Arena, name: str) -> str:
    """Return what a robot at a place (D,) [m] would touch, and what is expected; empty if nothing."""
    body_m = spec.body_radius_m
    for axis, value, low, high in zip("xyz", place_world, arena.low_world, arena.high_world, strict=False):
        margin_m = 0.0 if axis == "z" else body_m  # floor and ceiling limit the place of a drone, not its body
        if not low + margin_m <= value <= high - margin_m:
            less = f" less the body of {body_m:g} m" if margin_m else ""
            return f"found {axis} = {value:g} m, expected {low + margin_m:g} to {high - margin_m:g} m: {name}{less}"
    for number, obstacle in enumerate(arena.obstacles):
        room_m = float(distance_to(obstacle, np.asarray(place_world)))
        if room_m < body_m:
            return (
                f"found {list(place_world)}, {room_m:.3g} m from obstacle {number} of {name}, expected at least "
                f"{body_m:g} m, the radius of the body"
            )
    return ""


def climb_volume_of(robot: FleetRobot, contract: Contract) -> ClimbVolume:
    """Return the volume for the climb of a drone."""
    return ClimbVolume(contract.arena, stop_tube_parameters(robot.spec).wall_m)


def _check_starts(team: Fleet, contract: Contract) -> None:
    """Refuse a drone whose climb ends where its shield would not let it fly."""
    for robot in team.robots:
        start = robot.initial_position_world
        if robot.has_flight_phases and (fault := climb_volume_of(robot, contract).fault(start, start[2])):
            raise FleetError(
                f"{team.file}: robots.{robot.name}.initial_position: {fault}: the drone climbs there "
                "without the shield; change the position or the height, or use a policy with a larger arena"
            )


def _check_phases(fleet: Fleet) -> None:
    """Refuse drones that land where robots of another policy group drive."""
    flying = [robot.name for robot in fleet.robots if robot.has_flight_phases]
    if flying and any(robot.spec.dimension == 2 for robot in fleet.robots):
        raise FleetError(
            f"{fleet.file}: robots.{flying[0]}.link: found flight phases, expected none in a fleet with "
            "robots on the ground: a drone that takes off or lands does not see them; fly it to its "
            "start and land it by hand, or by another program, while the ground is clear"
        )


def check_commands(fleet: Fleet, contract: Contract) -> None:
    """Check that the link and the shield of every robot of a fleet accept the command type of its policy.

    Raises:
        CommandTypeError: naming the robot, the field and both values.
    """
    for robot in fleet.robots:
        check_link(contract.command.type, robot.name, robot.link.profile)
        check_shielded(contract.command.type, robot.name)


def world_arena(fleet: Fleet) -> Arena | None:
    """Return the common arena of a fleet's policy files: with groups on the ground and in the air the one with heights.

    Raises:
        TestudoError: a policy file is refused, or the groups have different walls: there is one world.
    """
    arenas = [PolicyArtefact.load(team.policy, sha256=team.policy_sha256).contract.arena for team in fleet.teams]
    if len(arenas) == 1:
        return arenas[0]
    walls = [None if arena is None else (tuple(arena.low_world[:2]), tuple(arena.high_world[:2])) for arena in arenas]
    if len(set(walls)) > 1 or any(arena is not None and arena.obstacles for arena in arenas):
        raise FleetError(
            f"{fleet.file}: policies: found walls {' and '.join(map(str, walls))}, expected "
            "the same in x and y, and no obstacles: the plant is one world"
        )
    return max(arenas, key=lambda arena: 0 if arena is None else len(arena.low_world))
