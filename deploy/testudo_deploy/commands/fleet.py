"""`testudo fleet`: makes fleet files from the files of other systems."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Annotated, Literal

import tyro

from testudo_deploy.admission.fleet_admission import check_inside_arena
from testudo_deploy.commands.report import Report, table, warn
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.shipped_policies import policy_file
from testudo_deploy.files.atomic_files import write_whole
from testudo_deploy.fleet.crazyswarm2_import import (
    Swarm,
    SwarmError,
    SwarmFiles,
    SwarmRobot,
    read_swarm,
    read_swarm_files,
)
from testudo_deploy.fleet.fleet import Fleet, FleetRobot, parse_fleet
from testudo_deploy.fleet.fleet_writer import fleet_text
from testudo_deploy.fleet.robot_links import LinkChoice
from testudo_deploy.fleet.robot_poses import PoseSource
from testudo_hardware.links.link_profile import load_link
from testudo_hardware.motion.thrust_margin import thrust_warnings
from testudo_hardware.spec import RobotSpec, load_robot

HIGHEST_M = 20.0  # take-off heights above this are treated as a typing error


def fleet(
    action: tyro.conf.Positional[Literal["import"]],
    file: tyro.conf.Positional[Path],
    policy: Path,
    out: Path = Path("fleet.yaml"),
    height: float = 1.0,
    goals: Literal["stay", "swap"] = "stay",
    robot: Annotated[str | None, tyro.conf.arg(metavar="[TYPE,TYPE:]NAME|FILE")] = None,
    motion_capture: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    server: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    json: Path | None = None,
) -> None:
    """Make a fleet file from another system's files: `import` reads the crazyflies.yaml of Crazyswarm2.

    Takes the enabled drones with their positions and localisation. Controller, estimator, rates of logs and motion
    capture, addresses, distances and radio latency are checked; an error names the line to change. All but the
    distances are checked again at each start of the fleet. The fleet file is written only after all checks.

    Example:
        testudo fleet import crazyflies.yaml --policy policy.onnx --height 1.0 --goals swap

    Args:
        action: import.
        file: crazyflies.yaml of Crazyswarm2.
        policy: the policy file that the fleet runs, or the name of one that ships.
        out: the fleet file to write.
        height: take-off height [m] above the initial position; within the arena of the policy.
        goals: stay: hover at the start; swap: fly to the start of the drone half the fleet farther in the list.
        robot: robot file or name of the drones; by default the robot of the policy. If drones of several robot types of
            crazyflies.yaml are enabled, with the types that it describes: cf21,cf21_deck:NAME.
        motion_capture: motion_capture.yaml; by default the one beside crazyflies.yaml.
        server: server.yaml; by default the one beside crazyflies.yaml.
        json: also write the result to this file.
    """
    if not 0 < height <= HIGHEST_M:
        raise SwarmError(f"--height: found {height:g} m, expected a height above 0 and at most {HIGHEST_M:g} m")
    policy = policy_file(policy)
    types, _, given = (robot or "").rpartition(":")
    kind = given or PolicyArtefact.load(policy).contract.robot
    spec = load_robot(kind)
    artefact = PolicyArtefact.load(policy, robot=spec)
    files = read_swarm_files(file, motion_capture, server)
    _check_out(out, json, [policy, *map(Path, files.names.values())])
    swarm = read_swarm(files, spec, types=tuple(types.split(",")))
    in_use = tuple(dict.fromkeys(one.type for one in swarm.robots))
    _check_distances(swarm, files, artefact.contract.shield.separation_m)
    routes = _routes(swarm, height, 1 if goals == "swap" else 0)
    robots = tuple(
        _robot(one, spec, kind, _link(one, files, in_use), swarm.frame, route)
        for one, route in zip(swarm.robots, routes, strict=True)
    )
    made = Fleet(out, artefact.path.absolute(), artefact.sha256, robots, tracking=all(r.tracked for r in swarm.robots))
    text = fleet_text(made, out)
    parse_fleet(text, out)  # raises now what a start of the fleet would raise
    check_inside_arena(replace(made, file=file), artefact.contract.arena)
    _write(text, out)
    warnings = thrust_warnings([spec])
    _report(made, f"{out}: {len(robots)} drones {action}ed from {file}", warnings).show(json)
    warn(warnings)


def _report(made: Fleet, title: str, warnings: Sequence[str]) -> Report:
    rows = [
        (one.name, one.link.name, one.pose.source, one.initial_position_world, one.goal_world) for one in made.robots
    ]
    shown = table(title, ("robot", "link", "pose", "takes off to", "goal"), rows)
    values = {
        "fleet": str(made.file),
        "warnings": warnings,
        "robots": {
            one.name: {
                "link": one.link.name,
                "pose": one.pose.source,
                "initial_position": list(one.initial_position_world),
                "goal": list(one.goal_world),
            }
            for one in made.robots
        },
    }
    return Report(values, (shown,))


def _check_out(out: Path, json: Path | None, inputs: Sequence[Path]) -> None:
    """Refuse output files that cannot be written or that are inputs."""
    for name, path in (("--out", out), ("--json", json)):
        if path is None:
            continue
        if path.is_dir() or not path.parent.is_dir():
            found = f"found the folder {path}" if path.is_dir() else f"found no folder {path.parent}"
            raise SwarmError(f"{name}: {found}, expected a file in an existing folder")
        if path.resolve() in [one.resolve() for one in inputs]:
            raise SwarmError(f"{name}: found {path}, which is an input, expected another file")


def _check_distances(swarm: Swarm, files: SwarmFiles, least_m: float) -> None:
    """Refuse drones that start nearer to each other than the separation of the shield: they could not be armed."""
    for one, other in combinations(swarm.robots, 2):
        distance_m = math.dist(one.position_world[:2], other.position_world[:2])
        if distance_m < least_m:
            where = files.crazyflies.where("robots", other.name, "initial_position")
            raise SwarmError(
                f"{where}: found {distance_m:.3g} m to that of {one.name}, seen from above; expected at "
                f"least {least_m:.3f} m, the separation of the shield"
            )


def _write(text: str, out: Path) -> None:
    """Write the whole file or nothing."""
    try:
        write_whole(out, text)
    except OSError as error:
        raise SwarmError(f"--out {out}: cannot be written: {error.strerror}") from error


def _routes(swarm: Swarm, height_m: float, swaps: int) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Return the take-off position and the goal of each drone [m, world]."""
    tops = [(*robot.position_world[:2], robot.position_world[2] + height_m) for robot in swarm.robots]
    shift = swaps * (len(tops) // 2)
    return [(top, tops[(index + shift) % len(tops)]) for index, top in enumerate(tops)]


def _link(robot: SwarmRobot, files: SwarmFiles, types: tuple[str, ...]) -> LinkChoice:
    name = "crazyswarm2" if robot.tracked else "crazyswarm2_logged"
    return LinkChoice(name, load_link(name), config=files.names, types=types)


def _robot(
    robot: SwarmRobot,
    spec: RobotSpec,
    kind: str,
    link: LinkChoice,
    frame: str,
    route: tuple[tuple[float, ...], tuple[float, ...]],
) -> FleetRobot:
    pose = PoseSource("mocap", frame, spec.position_error_m / 3, spec.pose_max_age_s)
    return FleetRobot(robot.name, kind, route[0], 0.0, route[1], spec, link=link, pose=pose)
