"""Writes a fleet file, with the paths in it relative to its folder."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from testudo_deploy.fleet.fleet import FILE_VERSION, Fleet, FleetRobot
from testudo_deploy.fleet.fleet_bodies import body_tables
from testudo_deploy.fleet.hold_switch import hold_tables
from testudo_deploy.fleet.robot_links import link_tables
from testudo_deploy.fleet.robot_poses import pose_tables
from testudo_deploy.fleet.scan_source import scan_tables


def save_fleet(fleet: Fleet, path: str | Path) -> None:
    """Write a fleet file, with the paths in it relative to its folder."""
    Path(path).write_text(fleet_text(fleet, Path(path)), encoding="utf-8")


def fleet_text(fleet: Fleet, file: Path) -> str:
    """Return the text of a fleet as ``file`` holds it, with the paths in it relative to its folder."""
    tables: dict[str, Any] = {
        "fileversion": FILE_VERSION,
        "policy": _relative(fleet.policy, file.parent),
        "policy_sha256": fleet.policy_sha256,
        "robots": {
            robot.name: {
                "type": _moved(robot.type, fleet.file, file),
                "initial_position": _plain(robot.initial_position_world),
                "initial_yaw": float(robot.initial_yaw),
                **_goal(robot, tasked=fleet.task is not None),
                **({"untrusted": True} if robot.untrusted else {}),
                **({"untrusted_speed_m_s": robot.untrusted_speed_m_s} if robot.untrusted_speed_m_s else {}),
                **({"host": robot.host} if robot.host else {}),
                **_link(robot, fleet.file, file),
                **pose_tables(robot.pose, robot.spec),
                **scan_tables(robot.scan),
            }
            for robot in fleet.robots
        },
        **({"tracking": True} if fleet.tracking else {}),
        **({"key_file": _relative(fleet.key_file, file.parent)} if fleet.key_file is not None else {}),
        **({"estop_heartbeat_s": float(fleet.estop_heartbeat_s)} if fleet.estop_heartbeat_s else {}),
        **hold_tables(fleet.hold_to_run),
    }
    if fleet.orders:
        tables["orders"] = True
    if fleet.task is not None:
        tables["task"] = dict(fleet.task)
    tables |= body_tables(fleet.bodies)
    if fleet.policies:
        tables["policies"] = {
            _moved(kind, fleet.file, file): {
                "policy": _relative(one.path, file.parent),
                "policy_sha256": one.sha256,
            }
            for kind, one in fleet.policies.items()
        }
    return yaml.dump(tables, Dumper=_FlowLists, sort_keys=False, width=100)


def _goal(robot: FleetRobot, *, tasked: bool) -> dict[str, Any]:
    if tasked and robot.goal_world == robot.initial_position_world:
        return {}
    if robot.follows is None:
        return {"goal": _plain(robot.goal_world)}
    offset = {"offset": _plain(robot.follows.offset)} if robot.follows.offset else {}
    return {"follow": {"robot": robot.follows.robot, **offset}}


def _moved(name: str, before: Path, after: Path) -> str:
    """Return a name, or the path of a .toml file relative to a fleet file, relative to another one."""
    return _relative(before.parent / name, after.parent) if name.endswith(".toml") else name


def _link(robot: FleetRobot, before: Path, after: Path) -> dict[str, Any]:
    config = {name: _relative(before.parent / path, after.parent) for name, path in robot.link.config.items()}
    return link_tables(robot.link, _moved(robot.link.name, before, after), config)


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.absolute(), folder.absolute())).as_posix()


def _plain(values: Iterable[float]) -> list[float]:
    return [float(value) for value in values]


class _FlowLists(yaml.SafeDumper):
    """Writes lists of numbers on one line."""


_FlowLists.add_representer(
    list,
    lambda dumper, values: dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=True),
)
