"""Small runs of poses and commands, made without ROS: robots that do as they are told, and the way they went."""

from pathlib import Path

import numpy as np

from testudo_hardware.motion import LagResponse, MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.spec import load_robot
from testudo_runs.alignment import AlignedRobot, Commands, RobotReport, TeamRecording, Trajectory
from testudo_runs.recording.recording import Recording, RobotRecording, Series

SPEC = load_robot("gritsbot_x")


def driven(name, start, yaw, told, seconds=8.0, *, does=None, goal=None, spec=SPEC):
    """Return a robot under commands ``told(t)``; ``does(t)`` is what acts in their place, if given."""
    model, period = motion_model(spec), spec.control_period_s
    state = MotionState(np.array(start, float), np.array(float(yaw)), np.zeros(spec.dimension))
    response = LagResponse.create(np.array(period), spec.velocity_lag_s)
    stamps, rows, commands = np.arange(0, seconds, period), [], []
    for t in stamps:
        rows.append((*state.position_world, state.yaw, *state.velocity))
        commands.append(told(t))
        acting = (does or told)(t - spec.command_delay_s) if t >= spec.command_delay_s else np.zeros(spec.dimension)
        state = model.step(state, effective_command(model, np.array(acting, float)), response)
    table, size = np.array(rows), spec.dimension
    motion = Trajectory(
        stamps, table[:, :size], table[:, size], table[:, size + 1 :], np.ones(len(stamps), bool), 5 * period
    )
    told_commands = Commands(stamps, np.array(commands, float))
    return AlignedRobot(name, spec, motion, motion, told_commands, RobotReport(name, {}, {}, {}), goal_world=goal)


def ahead(speed):
    return lambda _: (speed, 0.0)


def story(*robots, arena=None):
    return TeamRecording(robots, Recording({}, 0, Path("run")), walls=arena)


def meeting(beside, speed=0.15, seconds=8.0):
    """Return two robots that drive towards and past each other, ``beside`` [m] apart."""
    return story(
        driven("r0", (-0.6, 0.0), 0.0, ahead(speed), seconds), driven("r1", (0.6, beside), np.pi, ahead(speed), seconds)
    )


def recording(told_story, robot_type="gritsbot_x"):
    """Return the story as an imported recording: poses and commands alone."""
    robots = {}
    for robot in told_story.robots:
        motion, sent = robot.trajectory, robot.commands
        pose = np.zeros((len(motion.stamp_s), 7))
        pose[:, :2] = motion.position_world
        pose[:, 5], pose[:, 6] = np.sin(motion.yaw / 2), np.cos(motion.yaw / 2)
        twist = np.zeros((len(sent.stamp_s), 6))
        twist[:, 0], twist[:, 5] = sent.values.T
        robots[robot.name] = RobotRecording(
            robot.name,
            robot_type,
            {
                "pose": Series(motion.stamp_s, pose, None, "world"),
                "command": Series(sent.stamp_s, twist, None, f"{robot.name}/base_link"),
            },
        )
    return Recording(robots, 1_000_000_000)
