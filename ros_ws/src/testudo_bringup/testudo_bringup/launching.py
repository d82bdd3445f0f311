"""Turns the launch plan of a fleet, or the part of one computer, into nodes of `launch`."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction, Shutdown
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from testudo_bringup.params_file import params_file
from testudo_deploy.files.atomic_files import dated_folder
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.launch_plan import (
    BACKENDS,
    LEVELS,
    plan,
    with_button,
    with_hold_to_run,
    with_until,
)
from testudo_deploy.launch.ros_domain import LOOPBACK
from testudo_deploy.launch.topic_names import ARRIVED
from testudo_hardware.errors import TestudoError

_PACKAGE = "testudo_bringup"
_REFUSED = 2  # exit status of a node that refuses its parameters at the start
_RESPAWNED = ("guard", "policy", "driver", "emergency_stop", "markers")
"""Nodes that may start again by themselves. A robot whose guard or policy was replaced stands until somebody arms it.
A recorder would begin a file that is there, a plant another world, and a station or task another run."""
_RESPAWN_DELAY_S = 2.0

DATED, _NOTHING = "dated", ("", "none")  # values of `run_folder`


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
        description="Policy file; empty: the one in the fleet file.",
    ),
    DeclareLaunchArgument(
        "backend",
        default_value="sim",
        choices=list(BACKENDS),
        description="Source of motion: sim (MuJoCo plant on the station) or hw (the drivers of the robots).",
    ),
    DeclareLaunchArgument(
        "run_folder",
        default_value=DATED,
        description="Folder to record into; dated: a new one below runs; none: no record.",
    ),
    _switch(
        "start",
        "Start the robots once all are armed; false: an operator starts them.",
        default=True,
    ),
    DeclareLaunchArgument(
        "localhost",
        default_value="auto",
        choices=["auto", "true", "false"],
        description="Use DDS on this machine only; auto: true for sim, false for hw.",
    ),
    DeclareLaunchArgument("seed", default_value="0", description="Seed of the plant."),
    DeclareLaunchArgument(
        "duration",
        default_value="",
        description="Time-out of a run on the plant [s]; empty: 60, or the length of the task of the fleet file.",
    ),
    DeclareLaunchArgument(
        "watch",
        default_value="",
        description="Further nodes of the station, separated by commas: task (scores), markers (RViz, Foxglove).",
    ),
    DeclareLaunchArgument(
        "button",
        default_value="",
        description="Button of the emergency stop: a device such as /dev/input/event3, or TOPIC:NUMBER of a joystick.",
    ),
    DeclareLaunchArgument(
        "hold_to_run",
        default_value="",
        description="Button of a joystick to be held for motion, TOPIC:NUMBER; several computers: in the fleet file.",
    ),
    DeclareLaunchArgument(
        "until",
        default_value="",
        choices=["", ARRIVED],
        description="arrived: a fleet that takes orders ends once every robot is at the last of its goals.",
    ),
    DeclareLaunchArgument(
        "params_file",
        default_value="",
        description="YAML file of ROS parameters that neither the fleet file nor a launch argument decides.",
    ),
    _switch(
        "respawn",
        "Start a guard, policy, driver, emergency stop or marker node again when it ends; robots wait to be armed.",
        default=False,
    ),
    DeclareLaunchArgument(
        "log_level",
        default_value="info",
        choices=list(LEVELS),
        description="Log level of every node.",
    ),
    _switch(
        "lock_step",
        "Run on simulated time; the plant waits for every robot; backend sim only.",
        default=False,
    ),
    _switch(
        "use_sim_time",
        "Stamp log messages by /clock; control uses the steady clock, except in lock-step.",
        default=False,
    ),
)


def arguments(*, robot: bool = True, plant: bool = True) -> tuple[DeclareLaunchArgument, ...]:
    """Return the arguments of a launch file.

    Args:
        robot: whether it starts a single robot, whose name is an argument.
        plant: whether it also starts the plant and the recorder.
    """
    left_out = {
        *(() if robot else ("robot",)),
        *(() if plant else ("run_folder", "seed", "duration", "watch", "button", "hold_to_run", "start", "until")),
    }
    return tuple(argument for argument in _KNOWN if argument.name not in left_out)


def planned_nodes(
    context: LaunchContext, declared: Sequence[DeclareLaunchArgument], *, station: bool = False
) -> list[Node]:
    """Return the nodes of the plan: all, those of one robot if that is an argument, or those of the station.

    Args:
        context: holds the values of the arguments.
        declared: the arguments of the launch file.
        station: leave out the nodes of robots.

    Raises:
        TestudoError: the fleet file, or a value, is refused.
    """
    value = {argument.name: LaunchConfiguration(argument.name).perform(context) for argument in declared}
    fleet = load_fleet(value["fleet"])
    if value["policy"]:
        fleet = replace(fleet, policy=Path(value["policy"]).absolute())
    if "robot" in value:
        fleet.robot(value["robot"])  # refuses an empty name, which would mean all robots
    processes = plan(
        fleet,
        run_folder=_run_folder(value.get("run_folder", "")),
        backend=value["backend"],
        log_level=value["log_level"],
        robot=value.get("robot", ""),
        station=station,
        lock_step=value["lock_step"] == "true",
        **_given(value),
    )
    given_file = params_file(value["params_file"])
    respawn = value["respawn"] == "true"
    if respawn and value["lock_step"] == "true":
        raise TestudoError("respawn: found true with lock_step true, expected one of them: a round waits for its nodes")
    common = {"use_sim_time": "true" in (value["use_sim_time"], value["lock_step"])}
    here = value["localhost"] == "true" or (value["localhost"] == "auto" and value["backend"] == "sim")
    starts = {"start": value.get("start") != "false"}
    processes = with_button(processes, value.get("button", ""))
    processes = with_hold_to_run(processes, value.get("hold_to_run", ""), whole=not station)
    processes = with_until(processes, value.get("until", ""), orders=fleet.orders)
    return [
        Node(
            package=process.package,
            executable=process.executable,
            name=process.name,
            namespace=process.namespace,
            parameters=[*given_file, dict(process.parameters), common | (starts if process.name == "station" else {})],
            additional_env=LOOPBACK if here else {},
            ros_arguments=[*process.arguments, *process.enclave_arguments],
            output="screen",
            respawn=respawn and process.name in _RESPAWNED,
            respawn_delay=_RESPAWN_DELAY_S,
            on_exit=_end_if_refused_or_done if "until" in process.parameters else _end_if_refused,
        )
        for process in processes
    ]


def refuse_unknown(file: str, known: Sequence[str], words: Sequence[str]) -> None:
    """Refuse unknown arguments: `launch` itself accepts `strat:=false`, and starts the robots.

    Args:
        file: the launch file.
        known: its arguments.
        words: the command line. If it names another launch file, which includes this one, nothing is refused.

    Raises:
        TestudoError: an argument is unknown.
    """
    if not any(_names(before, word, Path(file)) for before, word in pairwise(words)):
        return
    for word in words:
        name, is_argument, _ = word.partition(":=")
        if is_argument and name not in known:
            raise TestudoError(f"{name}: unknown argument; {Path(file).name} takes {', '.join(known)}")


def _names(before: str, word: str, file: Path) -> bool:
    """Return whether a word names the launch file: as a path, or after `testudo_bringup`."""
    path = Path(word)
    return path.name == file.name and (before == _PACKAGE or (path.exists() and path.samefile(file)))


def _run_folder(text: str) -> Path | None:
    """Return the run folder; a dated one is below the working directory of the launch."""
    if text in _NOTHING:
        return None
    return dated_folder("runs") if text == DATED else Path(text)


def _given(value: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of the plan that not every launch file declares."""
    options: dict[str, Any] = {}
    if "watch" in value:
        options["watch"] = [kind for kind in value["watch"].split(",") if kind]
    if "seed" in value:
        options["seed"] = _number("seed", value, int)
    if value.get("duration"):
        options["duration_s"] = _number("duration", value, float)
    return options


def _number(name: str, values: Mapping[str, str], kind: type[int | float]) -> int | float:
    try:
        return kind(values[name])
    except ValueError as error:
        expected = "a whole number" if kind is int else "a number"
        raise TestudoError(f"{name}: found {values[name]!r}, expected {expected}") from error


def _end_if_refused(event: Any, _: LaunchContext) -> None:
    """End the launch, with status 1, if a node refused to start; if a node ends later, the guards brake the robots."""
    if event.returncode == _REFUSED:
        raise TestudoError(f"{event.process_name} refused to start; its own line above gives the reason")


def _end_if_refused_or_done(event: Any, context: LaunchContext) -> list[Shutdown]:
    """End the launch as well when the task node says by its end that every robot has arrived."""
    _end_if_refused(event, context)
    return [Shutdown(reason="every robot is at the last of its goals")] if event.returncode == 0 else []


def description(file: str, declared: Sequence[DeclareLaunchArgument], *, station: bool = False) -> LaunchDescription:
    """Return the arguments of a launch file and its nodes; see `planned_nodes`.

    Raises:
        TestudoError: see `refuse_unknown`.
    """
    refuse_unknown(file, [argument.name for argument in declared], sys.argv)
    nodes = OpaqueFunction(function=planned_nodes, args=[declared], kwargs={"station": station})
    return LaunchDescription([*declared, nodes])
