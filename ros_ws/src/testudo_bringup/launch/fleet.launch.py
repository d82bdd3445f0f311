"""Starts a whole fleet: `ros2 launch testudo_bringup fleet.launch.py fleet:=fleet.yaml`.

What is started, and with which parameters, is decided by `testudo_deploy.plan`.
"""

from dataclasses import replace
from pathlib import Path

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from testudo_deploy.fleet import load_fleet
from testudo_deploy.plan import BACKENDS, LEVELS, plan

ARGUMENTS = (
    DeclareLaunchArgument(
        "fleet", description="Fleet file: robots, types, initial poses and goals."
    ),
    DeclareLaunchArgument(
        "policy",
        default_value="",
        description="Policy file; empty: the one that the fleet file names.",
    ),
    DeclareLaunchArgument(
        "backend",
        default_value="sim",
        choices=list(BACKENDS),
        description="What moves the robots: sim (MuJoCo plant) or hw (their own drivers).",
    ),
    DeclareLaunchArgument(
        "run_folder", default_value="", description="Folder to record into; empty: record nothing."
    ),
    DeclareLaunchArgument("seed", default_value="0", description="Seed of the plant."),
    DeclareLaunchArgument(
        "duration", default_value="60.0", description="Time [s] after which the plant says timeout."
    ),
    DeclareLaunchArgument(
        "log_level",
        default_value="info",
        choices=list(LEVELS),
        description="Log level of every node.",
    ),
    DeclareLaunchArgument(
        "use_sim_time",
        default_value="false",
        choices=["true", "false"],
        description="Stamp log messages by /clock; control runs on the steady clock in any case.",
    ),
)


def fleet_nodes(context: LaunchContext) -> list[Node]:
    """Return the nodes of the plan."""
    value = {
        argument.name: LaunchConfiguration(argument.name).perform(context) for argument in ARGUMENTS
    }
    fleet = load_fleet(value["fleet"])
    if value["policy"]:
        fleet = replace(fleet, policy=Path(value["policy"]).absolute())
    processes = plan(
        fleet,
        run_folder=Path(value["run_folder"]) if value["run_folder"] else None,
        backend=value["backend"],
        seed=int(value["seed"]),
        duration_s=float(value["duration"]),
        log_level=value["log_level"],
    )
    use_sim_time = {"use_sim_time": value["use_sim_time"] == "true"}
    return [
        Node(
            package=process.package,
            executable=process.executable,
            name=process.name,
            namespace=process.namespace,
            parameters=[dict(process.parameters), use_sim_time],
            ros_arguments=list(process.arguments),
            output="screen",
        )
        for process in processes
    ]


def generate_launch_description() -> LaunchDescription:
    """Return the arguments and what they lead to."""
    return LaunchDescription([*ARGUMENTS, OpaqueFunction(function=fleet_nodes)])
