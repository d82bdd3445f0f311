"""`testudo fleet`: fleet files from what other systems have."""

from __future__ import annotations

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
from testudo_deploy.files.atomic_files import write_whole
from testudo_deploy.fleet.crazyswarm2_import import (
    Swarm,
    SwarmError,
    SwarmFiles,
    SwarmRobot,
    read_swarm,
    read_swarm_files,
)
from testudo_deploy.fleet.fleet import Fleet, FleetRobot, fleet_text, parse_fleet
from testudo_deploy.fleet.robot_links import LinkChoice, PoseSource
from testudo_hardware.links.link_profile import load_link
from testudo_hardware.motion.thrust_margin import thrust_warnings
from testudo_hardware.spec import RobotSpec, load_robot

HIGHEST_M = 20.0
"""Take-off heights beyond this are a slip."""


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
    """Make a fleet file of what another system has: `import` reads the crazyflies.yaml of Crazyswarm2.

    Takes the drones that are enabled, with their places and what localises them. Controller, estimator, rates of logs
    and motion capture, addresses, distances, and the latency of the radio are checked, and refused with the line to
    change; but for distances, they are again each time that the fleet is started. The file is written at the very end.

    Example:
        testudo fleet import crazyflies.yaml --policy policy.onnx --height 1.0 --goals swap

    Args:
        action: import, the only one there is.
        file: crazyflies.yaml of Crazyswarm2.
        policy: the policy file that the fleet runs.
        out: the fleet file to write.
        height: to which drones take off [m], above where they stand; within the arena of the policy.
        goals: where they go: nowhere, or each to the start of the one that is half the fleet farther in the list.
        robot: the robot file or name that describes the drones; left out, the one that the policy is for. Where drones
            of several robot types of crazyflies.yaml are enabled, with those that it describes: cf21,cf21_deck:NAME.
        motion_capture: motion_capture.yaml; left out, the one beside crazyflies.yaml.
        server: server.yaml; left out, the one beside crazyflies.yaml.
        json: also write what was found to this file.
    """
    if not 0 < height <= HIGHEST_M:
        raise SwarmError(f"--height: found {height:g} m, expected a height above 0 and at most {HIGHEST_M:g} m")
    types, _, given = (robot or "").rpartition(":")
    kind = given or PolicyArtefact.load(policy).contract.robot
    spec = load_robot(kind)
    artefact = PolicyArtefact.load(policy, robot=spec)
    files = read_swarm_files(file, motion_capture, server)
    _check_out(out, json, [policy, *map(Path, files.names.values())])
    swarm = read_swarm(files, spec, types=tuple(types.split(",")))
    in_use = tuple(dict.fromkeys(one.type for one in swarm.robots))
    _check_distances(swarm, files, artefact.contract.shield.separation_m)
    ways = _ways(swarm, height, 1 if goals == "swap" else 0)
    robots = tuple(
        _robot(one, spec, kind, _link(one, files, in_use), swarm.frame, way)
        for one, way in zip(swarm.robots, ways, strict=True)
    )
    made = Fleet(out, artefact.path.absolute(), artefact.sha256, robots, tracking=all(r.tracked for r in swarm.robots))
    text = fleet_text(made, out)
    parse_fleet(text, out)  # what is refused there is refused now
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
    """Refuse files that cannot be written, and those that would be written over."""
    for name, path in (("--out", out), ("--json", json)):
        if path is None:
            continue
        if path.is_dir() or not path.parent.is_dir():
            found = f"found the folder {path}" if path.is_dir() else f"found no folder {path.parent}"
            raise SwarmError(f"{name}: {found}, expected a file in a folder that is there")
        if path.resolve() in [one.resolve() for one in inputs]:
            raise SwarmError(f"{name}: found {path}, which is read, expected another file")


def _check_distances(swarm: Swarm, files: SwarmFiles, least_m: float) -> None:
    """Refuse drones that take off nearer to each other than the shield keeps them: none could be armed, or move."""
    for one, other in combinations(swarm.robots, 2):
        distance_m = math.dist(one.position_world[:2], other.position_world[:2])
        if distance_m < least_m:
            where = files.crazyflies.where("robots", other.name, "initial_position")
            raise SwarmError(
                f"{where}: is {distance_m:.3g} m from that of {one.name}, seen from above; expected at "
                f"least {least_m:.3f} m, which the shield keeps between them"
            )


def _write(text: str, out: Path) -> None:
    """Write the whole file or nothing, so that a file from before is never left half written."""
    try:
        write_whole(out, text)
    except OSError as error:
        raise SwarmError(f"--out {out}: cannot be written: {error.strerror}") from error


def _ways(swarm: Swarm, height_m: float, swaps: int) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Return where each drone takes off to, and where it goes."""
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
    way: tuple[tuple[float, ...], tuple[float, ...]],
) -> FleetRobot:
    pose = PoseSource("mocap", frame, spec.position_error_m / 3, spec.pose_max_age_s)
    return FleetRobot(robot.name, kind, way[0], 0.0, way[1], spec, link=link, pose=pose)
