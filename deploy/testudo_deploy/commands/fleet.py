"""`testudo fleet`: fleet files from what other systems have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from testudo_deploy.artefact import Artefact
from testudo_deploy.commands.report import Report, table, warn
from testudo_deploy.crazyswarm import Swarm, SwarmError, SwarmFiles, SwarmRobot, read_swarm, read_swarm_files
from testudo_deploy.fleet import Fleet, FleetRobot, load_fleet, save_fleet
from testudo_deploy.fleet_links import LinkChoice, PoseSource
from testudo_hardware.links.profile import load_link
from testudo_hardware.spec import RobotSpec, load_robot
from testudo_hardware.thrust_margin import thrust_warnings


def fleet(
    action: tyro.conf.Positional[Literal["import"]],
    file: tyro.conf.Positional[Path],
    policy: Path,
    out: Path = Path("fleet.yaml"),
    height: float = 1.0,
    goals: Literal["stay", "swap"] = "stay",
    robot: Annotated[str | None, tyro.conf.arg(metavar="NAME|FILE")] = None,
    motion_capture: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    server: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    json: Path | None = None,
) -> None:
    """Make a fleet file of what another system has: `import` reads the crazyflies.yaml of Crazyswarm2.

    Takes the drones that are enabled, with their places and what localises them. Controller, estimator, rates of logs
    and motion capture, and the latency of the radio are checked, and refused with the line to change; so they are
    again each time that the fleet is started.

    Example:
        testudo fleet import crazyflies.yaml --policy policy.onnx --height 1.0 --goals swap

    Args:
        action: import, the only one there is.
        file: crazyflies.yaml of Crazyswarm2.
        policy: the policy file that the fleet runs.
        out: the fleet file to write.
        height: to which drones take off [m], above where they stand.
        goals: where they go: nowhere, or each to the start of the one that is half the fleet farther in the list.
        robot: the robot file or name that describes the drones; left out, the one that the policy is for.
        motion_capture: motion_capture.yaml; left out, the one beside crazyflies.yaml.
        server: server.yaml; left out, the one beside crazyflies.yaml.
        json: also write what was found to this file.
    """
    artefact = Artefact.load(policy)
    spec = load_robot(robot or artefact.contract.robot)
    files = read_swarm_files(file, motion_capture, server)
    swarm = read_swarm(files, spec)
    if not height > 0:
        raise SwarmError(f"--height: found {height}, expected a height above 0 m")
    ways = _ways(swarm, height, 1 if goals == "swap" else 0)
    robots = tuple(_robot(one, spec, robot or artefact.contract.robot, files, swarm.frame, way)
                   for one, way in zip(swarm.robots, ways, strict=True))
    made = Fleet(out, artefact.path.absolute(), artefact.sha256, robots, tracking=all(r.tracked for r in swarm.robots))
    save_fleet(made, out)
    load_fleet(out)  # what is refused there is refused now
    rows = [(one.name, one.link.name, one.pose.source, one.initial_position_world, one.goal_world)
            for one in made.robots]
    title = f"{out}: {len(rows)} drones {action}ed from {file}"
    shown = table(title, ("robot", "link", "pose", "takes off to", "goal"), rows)
    warnings = thrust_warnings([spec])
    values = {"fleet": str(out), "warnings": warnings,
              "robots": {one.name: {"link": one.link.name, "pose": one.pose.source,
                                    "initial_position": list(one.initial_position_world),
                                    "goal": list(one.goal_world)} for one in made.robots}}
    Report(values, (shown,)).show(json)
    warn(warnings)


def _ways(swarm: Swarm, height_m: float, swaps: int) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Return where each drone takes off to, and where it goes."""
    tops = [(*robot.position_world[:2], robot.position_world[2] + height_m) for robot in swarm.robots]
    shift = swaps * (len(tops) // 2)
    return [(top, tops[(index + shift) % len(tops)]) for index, top in enumerate(tops)]


def _robot(robot: SwarmRobot, spec: RobotSpec, kind: str, files: SwarmFiles, frame: str,
           way: tuple[tuple[float, ...], tuple[float, ...]]) -> FleetRobot:
    name = "crazyswarm2" if robot.tracked else "crazyswarm2_logged"
    pose = PoseSource("mocap", frame, spec.position_error_m / 3, spec.pose_max_age_s)
    link = LinkChoice(name, load_link(name), config=files.names)
    return FleetRobot(robot.name, kind, way[0], 0.0, way[1], spec, link=link, pose=pose)
