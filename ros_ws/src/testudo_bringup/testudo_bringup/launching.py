"""Turns a launch plan, or the part of one computer, into nodes of `launch`; `launch_plan` says which."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from testudo_deploy.files.atomic_files import dated_folder
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.launch_plan import BACKENDS, DEFAULT_DURATION_S, LEVELS, plan
from testudo_deploy.launch.ros_domain import LOOPBACK
from testudo_deploy.launch.sros2_enclave import enclave_words
from testudo_hardware.errors import TestudoError

_PACKAGE = "testudo_bringup"
_REFUSED = 2
"""Exit status of a node that refuses what it was given, before it does anything."""

DATED, _NOTHING = "dated", ("", "none")
"""Values of `run_folder`."""


def _switch(name: str, description: str, *, default: bool) -> DeclareLaunchArgument:
    return DeclareLaunchArgument(
        name, default_value=str(default).lower(), choices=["true", "false"], description=description
    )


_KNOWN = (
    DeclareLaunchArgument("fleet", description="Fleet file: robots, types, links, initial poses and goals."),
    DeclareLaunchArgument("robot", description="Name of this robot in the fleet file."),
    DeclareLaunchArgument(
        "policy",
        default_value="",
        description="Policy file; empty: the one that the fleet file names.",
    ),
    DeclareLaunchArgument(
        "backend",
        default_value="sim",
        choices=list(BACKENDS),
        description="What moves the robots: sim (MuJoCo plant on the station) or hw (their own drivers).",
    ),
    DeclareLaunchArgument(
        "run_folder",
        default_value=DATED,
        description="Folder to record into; dated: a new one below runs; none: no record.",
    ),
    _switch(
        "start",
        "Start the robots once all are armed; false: they are armed, and people start them.",
        default=True,
    ),
    DeclareLaunchArgument(
        "localhost",
        default_value="auto",
        choices=["auto", "true", "false"],
        description="Speak on this machine only; auto: with the plant, not with real robots.",
    ),
    DeclareLaunchArgument("seed", default_value="0", description="Seed of the plant."),
    DeclareLaunchArgument(
        "duration",
        default_value=str(DEFAULT_DURATION_S),
        description="Time [s] after which the plant says timeout.",
    ),
    DeclareLaunchArgument(
        "watch",
        default_value="",
        description="Also start on the station: task (scores it) and markers (for RViz, Foxglove), with a comma.",
    ),
    DeclareLaunchArgument(
        "log_level",
        default_value="info",
        choices=list(LEVELS),
        description="Log level of every node.",
    ),
    _switch(
        "lock_step",
        "Rounds of simulated time in which the plant waits for every robot; backend sim only.",
        default=False,
    ),
    _switch(
        "use_sim_time",
        "Stamp log messages by /clock; control runs on the steady clock but in lock-step.",
        default=False,
    ),
)


def arguments(*, robot: bool = True, plant: bool = True) -> tuple[DeclareLaunchArgument, ...]:
    """Return the arguments of a launch file.

    Args:
        robot: whether it starts a single robot, which has to be named.
        plant: whether it starts the plant and the recorder, too.
    """
    left_out = {
        *(() if robot else ("robot",)),
        *(() if plant else ("run_folder", "seed", "duration", "watch", "start")),
    }
    return tuple(argument for argument in _KNOWN if argument.name not in left_out)


def planned_nodes(
    context: LaunchContext, declared: Sequence[DeclareLaunchArgument], *, station: bool = False
) -> list[Node]:
    """Return the nodes of the plan, of one robot if that is an argument, or of the station.

    Args:
        context: holds the values of the arguments.
        declared: the arguments of the launch file.
        station: leave out what runs for a robot.

    Raises:
        TestudoError: the fleet file, or a value, is refused.
    """
    value = {argument.name: LaunchConfiguration(argument.name).perform(context) for argument in declared}
    fleet = load_fleet(value["fleet"])
    if value["policy"]:
        fleet = replace(fleet, policy=Path(value["policy"]).absolute())
    if "robot" in value:
        fleet.robot(value["robot"])  # an empty name would mean all of them
    options: dict[str, Any] = {}
    if "watch" in value:
        options["watch"] = [kind for kind in value["watch"].split(",") if kind]
    if "seed" in value:
        options |= {"seed": _number("seed", value, int), "duration_s": _number("duration", value, float)}
    processes = plan(
        fleet,
        run_folder=_run_folder(value.get("run_folder", "")),
        backend=value["backend"],
        log_level=value["log_level"],
        robot=value.get("robot", ""),
        station=station,
        lock_step=value["lock_step"] == "true",
        **options,
    )
    common = {"use_sim_time": "true" in (value["use_sim_time"], value["lock_step"])}
    here = value["localhost"] == "true" or (value["localhost"] == "auto" and value["backend"] == "sim")
    starts = {"start": value.get("start") != "false"}
    return [
        Node(
            package=process.package,
            executable=process.executable,
            name=process.name,
            namespace=process.namespace,
            parameters=[dict(process.parameters), common | (starts if process.name == "station" else {})],
            additional_env=LOOPBACK if here else {},
            ros_arguments=[*process.arguments, *enclave_words(process)],
            output="screen",
            on_exit=_judge_exit,
        )
        for process in processes
    ]


def refuse_unknown(file: str, known: Sequence[str], words: Sequence[str]) -> None:
    """Refuse an argument that the launch file does not have: `launch` takes `strat:=false` and starts the robots.

    Args:
        file: the launch file.
        known: its arguments.
        words: of the command line. One that names another launch file, which includes this one, has arguments of its
            own.

    Raises:
        TestudoError: an argument is unknown; the known ones are named.
    """
    if not any(_names(before, word, Path(file)) for before, word in pairwise(words)):
        return
    for word in words:
        name, is_argument, _ = word.partition(":=")
        if is_argument and name not in known:
            raise TestudoError(f"{name}: unknown argument; {Path(file).name} takes {', '.join(known)}")


def _names(before: str, word: str, file: Path) -> bool:
    """Return whether a word, or with the one before it `testudo_bringup fleet.launch.py`, names a launch file."""
    path = Path(word)
    return path.name == file.name and (before == _PACKAGE or (path.exists() and path.samefile(file)))


def _run_folder(text: str) -> Path | None:
    """Return where to record; a dated folder is one of the directory in which the launch was begun."""
    if text in _NOTHING:
        return None
    return dated_folder("runs") if text == DATED else Path(text)


def _number(name: str, values: Mapping[str, str], kind: type[int | float]) -> int | float:
    try:
        return kind(values[name])
    except ValueError as error:
        expected = "a whole number" if kind is int else "a number"
        raise TestudoError(f"{name}: found {values[name]!r}, expected {expected}") from error


def _judge_exit(event: Any, _: LaunchContext) -> None:
    """End the launch, with status 1, for a node that refused; without one that dies later the robots still brake."""
    if event.returncode == _REFUSED:
        raise TestudoError(f"{event.process_name} refused to start; its own line above says why")


def description(file: str, declared: Sequence[DeclareLaunchArgument], *, station: bool = False) -> LaunchDescription:
    """Return the arguments of a launch file and the nodes that they lead to; see `planned_nodes`.

    Raises:
        TestudoError: see `refuse_unknown`.
    """
    refuse_unknown(file, [argument.name for argument in declared], sys.argv)
    nodes = OpaqueFunction(function=planned_nodes, args=[declared], kwargs={"station": station})
    return LaunchDescription([*declared, nodes])
